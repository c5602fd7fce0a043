package main

import (
	"context"
	"maps"
	"slices"
)

// A rover is a client of a simulation that makes random calls about its own sessions and sometimes
// about those of its neighbor.
type rover struct {
	*agent
	open map[string]bool // sessions under way, its own and its neighbour's; guarded by the history
	last input           // the last one that changed something
}

// roamed are the steps of the workflows that rovers run.
var roamed = stepNames[:7]

// openSessions is how many two neighbours have under way.
const openSessions = 4

// act makes a call.
func (a *rover) act(ctx context.Context) {
	if a.below(30) == 0 { // its work may continue at another server
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
	a.history.with(func() {
		if t.kind == gone || t.over() {
			delete(a.open, in.Session)
		} else if t.kind == given && in.Tool == "start_workflow" {
			a.open[in.Session] = true
		}
	})
}

// choose chooses the next call.
func (a *rover) choose() input {
	var ids []string
	a.history.with(func() { ids = slices.Sorted(maps.Keys(a.open)) })
	id, n := "", len(ids)
	if n > 0 {
		id = ids[a.below(n)]
	}
	if n == 0 || n < openSessions && a.below(5) == 0 {
		in := input{Tool: "start_workflow", Job: jobName(a.below(jobCount)), Workflow: []string{"chain", "groups", "fork", "short"}[a.below(4)],
			Goal: a.token("goal "), Request: a.request()} // always: otherwise a lost one is never found
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
		if a.below(2) == 0 { // else the step is not named
			in.Step = roamed[a.below(len(roamed))]
		}
	case k < 70 && a.last.Tool != "" && a.last.Tool != "start_workflow":
		in = a.last // once more
		in.Request = ""
	case k < 86:
		in.Tool, in.Request = "get_step", ""
	case k < 95:
		in.Tool, in.Step, in.All = "go_to_step", roamed[a.below(len(roamed))], a.below(2) == 0
	default:
		in.Tool, in.Text = "abort_workflow", a.token("because ")
	}
	return in
}
