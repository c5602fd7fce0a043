package main

import (
	"context"
	"slices"
	"sync"
)

// A rover is a client of a simulation that makes random calls about sessions of its own
// and, now and then, about those of its neighbour.
type rover struct {
	*agent
	pair *pair
	last input // the last one that moved something
}

// A pair is which sessions two rovers have under way.
type pair struct {
	mu       sync.Mutex
	sessions []*known
}

// A known session is one that was under way when it was last seen.
type known struct {
	id     string
	likely []string // steps that can be finished
}

// openSessions is how many a pair of rovers has under way.
const openSessions = 4

// act makes a call.
func (a *rover) act(ctx context.Context) {
	if a.below(30) == 0 { // what it has may go on at another server
		_ = a.drop(a.home.current(), false)
	}
	in := a.choose()
	t := a.perform(ctx, in)
	if in.Tool == "start_workflow" && t.kind == given {
		in.Session = t.reply.Begin.Session
	}
	if t.kind == given && in.Tool != "get_step" && !isRefusal(t.said) {
		a.last = in
	}
	a.pair.learn(in, t)
}

// choose makes up the next call.
func (a *rover) choose() input {
	a.pair.mu.Lock()
	n := len(a.pair.sessions)
	var s known
	if n > 0 {
		s = *a.pair.sessions[a.below(n)]
	}
	a.pair.mu.Unlock()
	if n == 0 || n < openSessions && a.below(5) == 0 {
		in := input{Tool: "start_workflow", Job: jobName(a.below(jobCount)), Workflow: []string{"chain", "groups", "fork", "short"}[a.below(4)],
			Goal: a.token("goal "), Request: a.request()} // always: else a lost one is never known
		if n > 0 && a.below(2) == 0 {
			in.Parent = s.id
		}
		return in
	}
	in := input{Session: s.id}
	if a.below(3) == 0 {
		in.Request = a.request()
	}
	switch k := a.below(100); {
	case k < 62:
		in.Tool, in.Outputs, in.Text = "finished_step", a.outputs(), a.token("note ")
		if len(s.likely) > 0 && a.below(8) > 0 {
			in.Step = s.likely[a.below(len(s.likely))]
		} else if a.below(2) == 0 {
			in.Step = stepNames[a.below(7)]
		}
	case k < 70 && a.last.Tool != "" && a.last.Tool != "start_workflow":
		in = a.last // once more
		in.Request = ""
	case k < 86:
		in.Tool, in.Request = "get_step", ""
	case k < 95:
		in.Tool, in.Step = "go_to_step", stepNames[a.below(7)]
	default:
		in.Tool, in.Text = "abort_workflow", a.token("because ")
	}
	return in
}

// learn notes where a session is.
func (b *pair) learn(in input, t answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.IndexFunc(b.sessions, func(s *known) bool { return s.id == in.Session })
	likely := t.reply.Pending
	if likely == nil {
		likely = t.reply.steps()
	}
	switch {
	case at < 0 && in.Tool == "start_workflow" && t.kind == given:
		b.sessions = append(b.sessions, &known{in.Session, likely})
	case at >= 0 && (t.kind == gone || t.over()):
		b.sessions = slices.Delete(b.sessions, at, at+1)
	case at >= 0 && likely != nil:
		b.sessions[at].likely = likely
	}
}
