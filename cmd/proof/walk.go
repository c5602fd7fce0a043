package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// The fractions of sessions with unusual events.
const (
	partAborted = 0.05
	partBack    = 0.04 // of those, a step is gone back to
	partRead    = 0.10 // get_step is called
	partMoved   = 0.05 // the work is taken up on the other server
	partNamed   = 0.50 // of the calls, those that name their session
	partRequest = 0.50 // of the calls of finished_step, those with a request_id
)

// A walker is an agent of a load. It has its own stack of nested sessions, so that it can predict
// every reply.
type walker struct {
	*agent
	load *load
}

// An opened session is one that an agent has begun.
type opened struct {
	id       string
	job      int
	workflow string
	goal     string
	parent   *opened
	turn     atomic.Int64 // of the server that gets the next call
}

// stack returns the session below those that it is nested in, as replies list them; none of nil.
func (s *opened) stack() []string {
	if s == nil {
		return nil
	}
	return append(s.parent.stack(), s.id+" "+jobName(s.job)+"/"+s.workflow)
}

var errWalk = errors.New("something is wrong, and is recorded")

// wrong records that something is wrong.
func (a *agent) wrong(kind, format string, args ...any) error {
	a.history.fault(kind, format, args...)
	return errWalk
}

// work builds stack after stack until ctx ends, or something is wrong.
func (a *walker) work(ctx context.Context) {
	for a.nest(ctx, nil, 0) == nil {
	}
	if err := a.leave(); err != nil {
		a.history.fault("a connection that did not end", "%v", err)
	}
}

// nest works on a session and, in the middle, on one nested in it.
func (a *walker) nest(ctx context.Context, parent *opened, level int) error {
	if level == a.load.depth {
		return nil
	}

	s := &opened{
		job:      a.below(jobCount),
		workflow: "wide",
		parent:   parent,
		goal:     fmt.Sprintf("load %s: agent %d, level %d", a.request(), a.number, level),
	}

	plan := func(ctx context.Context, s *opened) error { return a.finish(ctx, s, "s0") }
	moves := []func(context.Context, *opened) error{a.start, plan, a.disturb,
		func(ctx context.Context, s *opened) error { return a.nest(ctx, s, level+1) }, a.finishGroup}
	if a.chance(partBack) {
		moves = append(moves, func(ctx context.Context, s *opened) error {
			return a.do(ctx, s, input{Tool: "go_to_step", Step: "s0", Request: a.request()})
		}, plan, a.finishGroup)
	}
	for _, move := range append(moves, a.end) {
		if err := move(ctx, s); err != nil {
			return err
		}
	}

	return nil
}

// disturb now and then moves the connection, or makes the agent forget what it has read.
func (a *walker) disturb(ctx context.Context, s *opened) error {
	switch {
	case a.version != "" && len(a.servers) > 1 && a.chance(partMoved):
		return a.move(ctx, s)
	case a.chance(partRead):
		return a.do(ctx, s, input{Tool: "get_step", Bare: a.bare()})
	}
	return nil
}

// bare decides whether a call omits its session.
func (a *walker) bare() bool { return a.version != "" && !a.chance(partNamed) }

// start starts a session on top of the stack.
func (a *walker) start(ctx context.Context, s *opened) error {
	in := input{Tool: "start_workflow", Job: jobName(s.job), Workflow: s.workflow, Goal: s.goal, Request: a.request()}
	if s.parent != nil {
		in.Parent, in.Bare = s.parent.id, a.bare()
	}
	return a.do(ctx, s, in)
}

// finish finishes a step.
func (a *walker) finish(ctx context.Context, s *opened, step string) error {
	in := input{Tool: "finished_step", Step: step, Outputs: a.outputs(), Text: a.token("note "), Bare: a.bare()}
	if a.chance(partRequest) {
		in.Request = a.request()
	}
	return a.do(ctx, s, in)
}

// finishGroup finishes the members of the group concurrently.
func (a *walker) finishGroup(ctx context.Context, s *opened) error {
	var all errgroup.Group
	for _, step := range workflows["wide"][1] {
		all.Go(func() error { return a.finish(ctx, s, step) })
	}
	return all.Wait()
}

// end ends a session: it finishes the last step or sometimes aborts.
func (a *walker) end(ctx context.Context, s *opened) error {
	if a.chance(partAborted) {
		return a.do(ctx, s, input{Tool: "abort_workflow", Text: a.token("enough "), Request: a.request()})
	}
	return a.finish(ctx, s, "s5")
}

// do makes a call about a session, and checks what the model of a single session does not know.
func (a *walker) do(ctx context.Context, s *opened, in input) error {
	if in.Tool != "start_workflow" {
		in.Session = s.id
	}

	last := a.saves.last(s.job)
	t := a.perform(ctx, in)
	switch {
	case t.kind == given && !isRefusal(t.said):
		return a.check(s, in, t, last)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return a.wrong("a call that failed: "+t.code, "%s of session %s: %s", in.Tool, s.id, t.text)
}

// check checks that a reply's definitions are from one save, no older than the last that had ended before the call, and
// that its stack is the agent's. It sets the id of a started session.
func (a *agent) check(s *opened, in input, t answer, last int) error {
	h, r := a.history, &t.reply
	if in.Tool == "start_workflow" {
		s.id = r.Begin.Session
	}

	want := s.stack()
	if t.over() {
		want = s.parent.stack()
	}

	oldest := 0
	for i, info := range r.infos() {
		save, err := a.saves.step(s.job, last, info)
		if err == nil && i > 0 && save != oldest {
			err = fmt.Errorf("one reply is made of the saves %d and %d of job.yml", oldest, save)
		}
		if err != nil || info.Session != s.id {
			return a.wrong(wrongDefinition, "session %s: %v (of session %s)", s.id, err, info.Session)
		}
		oldest = save
	}
	if in.Tool != "get_step" { // it moved, so that the file has its definition
		h.with(func() { h.sessions[s.id].save = max(h.sessions[s.id].save, oldest) })
	}

	var got []string
	for _, o := range r.Stack {
		got = append(got, o.Session+" "+o.Workflow)
	}

	at := func(step string) int { return (&state{workflow: s.workflow}).entryOf(step) }
	if !slices.Equal(want, got) || r.Begin != nil && at(r.Stack[len(got)-1].Step) != at(r.Begin.Step) {
		return a.wrong("a wrong stack", "agent %d, session %s: the reply %q has the stack %v, and the sessions are %v",
			a.number, s.id, t.said, r.Stack, want)
	}
	return nil
}

// move closes the connection and resumes the work on the other server.
func (a *walker) move(ctx context.Context, s *opened) error {
	if err := a.drop(a.home.current()).leave(); err != nil {
		return a.wrong("a connection that did not end", "%v", err)
	}
	a.home = a.servers[(a.home.number+1)%len(a.servers)]
	a.load.moves.Add(1)
	return a.do(ctx, s, input{Tool: "get_step"})
}
