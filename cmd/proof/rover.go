package main

import (
	"context"
	"maps"
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

// A pair is which sessions two rovers have under way, each with the steps that can be
// finished.
type pair struct {
	mu       sync.Mutex
	sessions map[string][]string
}

// openSessions is how many a pair of rovers has under way.
const openSessions = 4

// act makes a call.
func (a *rover) act(ctx context.Context) {
	if a.below(30) == 0 { // what it has may go on at another server
		_ = a.drop(a.home.current()).leave()
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
	id, likely := "", []string(nil)
	a.pair.mu.Lock()
	ids := slices.Sorted(maps.Keys(a.pair.sessions))
	n := len(ids)
	if n > 0 {
		id = ids[a.below(n)]
		likely = a.pair.sessions[id]
	}
	a.pair.mu.Unlock()
	if n == 0 || n < openSessions && a.below(5) == 0 {
		in := input{Tool: "start_workflow", Job: jobName(a.below(jobCount)), Workflow: []string{"chain", "groups", "fork", "short"}[a.below(4)],
			Goal: a.token("goal "), Request: a.request()} // always: else a lost one is never known
		if n > 0 && a.below(2) == 0 {
			in.Parent = id
		}
		return in
	}
	in := input{Session: id}
	if a.below(3) == 0 {
		in.Request = a.request()
	}
	switch k := a.below(100); {
	case k < 62:
		in.Tool, in.Outputs, in.Text = "finished_step", a.outputs(), a.token("note ")
		if len(likely) > 0 && a.below(8) > 0 {
			in.Step = likely[a.below(len(likely))]
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
	likely := t.reply.Pending
	if likely == nil {
		likely = t.reply.steps()
	}
	if t.kind == gone || t.over() {
		delete(b.sessions, in.Session)
	} else if likely != nil && (in.Tool == "start_workflow" || b.sessions[in.Session] != nil) {
		b.sessions[in.Session] = likely
	}
}
