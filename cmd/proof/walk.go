package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"deepwork/actor/wait"
)

// The parts of the sessions with which something out of the ordinary is done.
const (
	partAborted  = 0.05
	partBack     = 0.04 // of those, a step is gone back to
	partRead     = 0.10 // get_step is called
	partListed   = 0.02 // get_workflows is called
	partVanished = 0.01 // the client crashes, and takes its work up again
	partMoved    = 0.05 // the work is taken up on the other server
	partNamed    = 0.50 // of the calls, those that name their session
	partRequest  = 0.50 // of the calls of finished_step, those with a request_id
	partSpot     = 0.02 // of the transitions, those whose file is looked at at once
)

const (
	mostFailures = 10                   // after how many failed rounds in a row a walker gives up
	handedWithin = 20 * time.Second     // how long a session may stay its server's after its connection was closed
	askAgain     = 5 * time.Millisecond // how long who wants it waits before it asks again
)

// A walker is an agent of a load. It has a stack of sessions, one nested in the other, to
// itself, so that it can predict every reply.
type walker struct {
	*agent
	load  *load
	stack []*opened
}

// An opened session is one on a walker's stack.
type opened struct {
	id   string
	job  int
	goal string
	open []string // members of the group that are not finished
}

// A wrong is a reply, or a file, that must not be.
type wrong struct{ kind, text string }

func (w *wrong) Error() string { return w.text }

func wrongf(kind, format string, args ...any) error {
	return &wrong{kind, fmt.Sprintf(format, args...)}
}

// errOver ends a walker's work: the time is over.
var errOver = errors.New("the time is over")

// work builds stack after stack until the time is over. What goes wrong is recorded,
// and the work begun again on a new connection.
func (a *walker) work(ctx context.Context) {
	for failed := 0; failed < mostFailures && !a.load.over(ctx); {
		err := a.nest(ctx, 0)
		if err == nil {
			failed = 0
			continue
		}
		failed++
		if errors.Is(err, errOver) || ctx.Err() != nil {
			break
		}
		kind := "a call that failed"
		if w, ok := errors.AsType[*wrong](err); ok {
			kind = w.kind
		}
		if errors.Is(err, errHeldUp) {
			a.load.heldUp.Add(1)
		} else {
			a.history.fault(kind, "%v", err)
		}
		a.stack = nil
		p, _ := a.home.current()
		_ = a.drop(p, true)
		if wait.For(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	if err := a.leave(); err != nil {
		a.history.fault("a connection that did not end", "%v", err)
	}
}

// nest works a session, and in the middle of it one that is nested in it.
func (a *walker) nest(ctx context.Context, level int) (err error) {
	if !a.load.another() {
		return errOver
	}
	s := &opened{job: a.below(jobCount), goal: fmt.Sprintf("load %s: agent %d, level %d", a.request(), a.number, level)}
	then := func(part float64, do func(context.Context, *opened) error) {
		if err == nil && (part == 1 || a.chance(part)) {
			err = do(ctx, s)
		}
	}
	unlessOver := func(context.Context, *opened) error {
		if a.load.over(ctx) {
			return errOver
		}
		return nil
	}
	then(1, a.start)
	then(partListed, a.list)
	then(1, a.plan)
	then(1, unlessOver)
	then(1, a.disturb)
	if err == nil && level+1 < a.load.depth {
		err = a.nest(ctx, level+1)
	}
	then(1, unlessOver)
	then(1, a.finishGroup)
	if err == nil && a.chance(partBack) {
		err = a.do(ctx, s, input{Tool: "go_to_step", Step: "s0", Request: a.request()}, true)
		then(1, a.plan)
		then(1, a.finishGroup)
	}
	if err == nil && a.chance(partAborted) {
		return a.do(ctx, s, input{Tool: "abort_workflow", Text: a.token("enough "), Request: a.request()}, true)
	}
	then(1, func(ctx context.Context, s *opened) error { return a.finish(ctx, s, a.entries()[2][0], true) })
	return err
}

// entries are those of the workflow that walkers run.
func (a *walker) entries() [][]string { return workflows[wide(a.group)] }

// disturb does now and then what connections do: they crash, they move, and
// agents lose what they have read.
func (a *walker) disturb(ctx context.Context, s *opened) error {
	switch {
	case !a.stateless && len(a.servers) > 1 && time.Since(a.crashed) > forgottenAfter && a.chance(partMoved):
		return a.move(ctx, s)
	case !a.stateless && a.chance(partVanished):
		a.load.crashes.Add(1)
		p, _ := a.home.current()
		_ = a.drop(p, true)
		return a.do(ctx, s, input{Tool: "get_step"}, false)
	case a.chance(partRead):
		return a.do(ctx, s, input{Tool: "get_step", Bare: a.bare()}, false)
	}
	return nil
}

// bare decides whether a call does not name its session.
func (a *walker) bare() bool { return !a.stateless && !a.chance(partNamed) }

// start starts a session on top of the stack.
func (a *walker) start(ctx context.Context, s *opened) error {
	in := input{Tool: "start_workflow", Job: jobName(s.job), Workflow: wide(a.group), Goal: s.goal, Request: a.request()}
	if n := len(a.stack); n > 0 {
		in.Parent, in.Bare = a.stack[n-1].id, a.bare()
	}
	return a.do(ctx, s, in, true)
}

// finishing makes up the call that finishes a step.
func (a *walker) finishing(step string) input {
	in := input{Tool: "finished_step", Step: step, Outputs: a.outputs(), Text: a.token("note ")}
	if a.chance(partRequest) {
		in.Request = a.request()
	}
	return in
}

// finish finishes a step. alone reports that no other call runs.
func (a *walker) finish(ctx context.Context, s *opened, step string, alone bool) error {
	in := a.finishing(step)
	in.Bare = a.bare()
	return a.do(ctx, s, in, alone)
}

// plan finishes the first step.
func (a *walker) plan(ctx context.Context, s *opened) error {
	s.open = slices.Clone(a.entries()[1])
	return a.finish(ctx, s, "s0", true)
}

// finishGroup finishes the members of the group, all at once.
func (a *walker) finishGroup(ctx context.Context, s *opened) error {
	errs := make([]error, len(s.open))
	var wg sync.WaitGroup
	for i, step := range s.open {
		wg.Go(func() { errs[i] = a.finish(ctx, s, step, len(s.open) == 1) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// do makes a call about a session, and checks what the model, which has only that
// session, does not know. alone reports that no other call runs.
func (a *walker) do(ctx context.Context, s *opened, in input, alone bool) error {
	if in.Tool != "start_workflow" {
		in.Session = s.id
	}
	m := a.saves.mark(s.job, a.home.number)
	t := a.perform(ctx, in, alone && !in.Bare)
	if err := a.failure(ctx, in.Tool, t, m); err != nil {
		return err
	}
	return a.check(s, in, t, m, alone)
}

// failure is the error of a call that was not carried out.
func (a *walker) failure(ctx context.Context, tool string, t answer, m mark) error {
	text := tool + ": " + t.text
	switch {
	case t.kind == given && !isRefusal(t.said):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case t.kind == heldUp || t.code == "job_not_found" && a.saves.wasAway(m):
		return errHeldUp
	case t.kind == odd && t.code == "":
		return wrongf("a wrong reply", "%s", text)
	case t.code == failedCall || t.code == otherReply:
		return wrongf(t.code, "%s", text)
	case t.kind == lost && t.code == "":
		return wrongf(failedCall, "%s", text)
	}
	return wrongf("a call that was refused: "+t.code, "%s", text)
}

// check checks stack, definitions and, now and then, the file after a reply.
func (a *walker) check(s *opened, in input, t answer, m mark, alone bool) error {
	h, r := a.history, &t.reply
	if in.Tool == "start_workflow" {
		s.id = r.Begin.Session
		a.stack = append(a.stack, s)
	}
	if t.over() {
		a.stack = a.stack[:len(a.stack)-1]
		resumed, at := "", ""
		if n := len(a.stack); n > 0 {
			resumed, at = jobName(a.stack[n-1].job)+"/"+wide(a.group), a.entries()[1][0]
		}
		if orEmpty(r.Resumed) != resumed || orEmpty(r.ResumedAt) != at {
			return wrongf("a wrong reply", "session %s: %q is to go on at %q, and %q at %q is told to", s.id, resumed, at, orEmpty(r.Resumed), orEmpty(r.ResumedAt))
		}
	}
	if in.Tool == "get_step" && r.Goal != s.goal || in.Tool == "abort_workflow" && r.AbortedIn != jobName(s.job)+"/"+wide(a.group) {
		return wrongf("a wrong reply", "session %s: %s", s.id, t.text)
	}
	oldest := 0
	for i, info := range r.infos() {
		save, err := a.saves.step(m, info)
		if err == nil && i > 0 && save != oldest {
			err = fmt.Errorf("one reply is made of the saves %d and %d of job.yml", oldest, save)
		}
		if err != nil && a.saves.wasAway(m) {
			return errHeldUp
		}
		if err != nil || info.Session != s.id {
			return wrongf(wrongDefinition, "session %s: %v (of session %s)", s.id, err, info.Session)
		}
		oldest = save
	}
	if in.Tool != "get_step" { // it moved, so that the file has its definition
		h.with(func() { h.sessions[s.id].save = max(h.sessions[s.id].save, oldest) })
	}
	if err := a.sameStack(s, r, alone); err != nil || !alone || !a.chance(partSpot) {
		return err
	}
	return a.spot(s)
}

// sameStack checks that a reply has the stack that the walker has built.
func (a *walker) sameStack(s *opened, r *reply, alone bool) error {
	same := len(r.Stack) == len(a.stack)
	for i := range min(len(r.Stack), len(a.stack)) {
		same = same && r.Stack[i].Session == a.stack[i].id && r.Stack[i].Workflow == jobName(a.stack[i].job)+"/"+wide(a.group)
	}
	if n := len(r.Stack); same && alone && r.Begin != nil {
		same = r.Stack[n-1].Step == r.Begin.Step
	}
	if same {
		return nil
	}
	var ids []string
	for _, o := range a.stack {
		ids = append(ids, o.id)
	}
	return wrongf("a wrong stack", "agent %d, session %s: the reply's stack is %v, and the sessions are %v", a.number, s.id, r.Stack, ids)
}

// list lists the jobs, and finds all of ours as they are.
func (a *walker) list(ctx context.Context, _ *opened) error {
	var marks [jobCount]mark
	for job := range marks {
		marks[job] = a.saves.mark(job, a.home.number)
	}
	t, _ := a.try(ctx, "get_workflows", map[string]any{}, true, false)
	if err := a.failure(ctx, "get_workflows", t, marks[0]); err != nil {
		return err
	}
	var r struct {
		Jobs []struct{ Name, Summary string }
	}
	if !a.reads(t, &r) {
		return nil
	}
	found := 0
	for _, j := range r.Jobs {
		if job := jobIndex(j.Name); job >= 0 {
			found++
			if err := a.saves.listed(marks[job], j.Summary); err != nil && !a.saves.wasAway(marks[job]) {
				return wrongf(wrongDefinition, "get_workflows: %v", err)
			}
		}
	}
	if found != jobCount && !slices.ContainsFunc(marks[:], a.saves.wasAway) {
		return wrongf(wrongDefinition, "get_workflows: it lists %d of the %d jobs: %.2000s", found, jobCount, t.text)
	}
	return nil
}

// spot looks at the file of a session whose last transition was just acknowledged: it
// must be on disk by then, and the file of one that goes on must name its server.
func (a *walker) spot(s *opened) error {
	h := a.history
	call := h.now()
	r, err := readRecord(a.root, s.id)
	if err != nil {
		return wrongf("a file that cannot be read", "session %s, just after it moved: %v", s.id, err)
	}
	a.load.spots.Add(1)
	h.add(a.number, s.id, input{Tool: "file"}, call, r.state(), h.now())
	if r.Status != "active" {
		return nil // one that has ended needs no owner
	}
	return a.load.saw(a.home.number, s.id, r.Owner)
}

// move closes the connection and takes the work up on the other server: there at
// once in half of the cases; else a connection to each wants the session, and
// exactly one gets it. Then the other server must refuse it.
func (a *walker) move(ctx context.Context, s *opened) error {
	here := a.home
	there := a.servers[(here.number+1)%len(a.servers)]
	p, _ := here.current()
	if err := a.drop(p, false); err != nil {
		return fmt.Errorf("closing a connection to move: %w", err)
	}
	a.home = there
	a.load.moves.Add(1)
	if a.group > 1 && a.chance(0.5) {
		return a.contest(ctx, s, here, there)
	}
	for began := time.Now(); ; {
		err := a.do(ctx, s, input{Tool: "get_step"}, true)
		if w, ok := errors.AsType[*wrong](err); !ok || w.kind != "a call that was refused: session_owned" {
			return err
		}
		if time.Since(began) > handedWithin {
			return wrongf("a session that was not handed over", "session %s, %v after its connection was closed: %v", s.id, handedWithin, err)
		}
		if err := wait.For(ctx, askAgain); err != nil {
			return err
		}
	}
}

// contest has two connections, one to each server, finish the same step of the session
// with different outputs, both again and again until one is told that it has. Who has,
// goes on with it; the other is refused.
func (a *walker) contest(ctx context.Context, s *opened, servers ...*server) error {
	step := s.open[0]
	sides, answers := make([]*agent, len(servers)), make([]answer, len(servers))
	won, win := context.WithCancel(ctx)
	defer win()
	var wg sync.WaitGroup
	for i, where := range servers {
		sides[i] = a.world.agent(a.number)
		sides[i].home, sides[i].lose = where, 0
		in := a.finishing(step)
		in.Session = s.id
		wg.Go(func() {
			for began := time.Now(); time.Since(began) < handedWithin; {
				answers[i] = sides[i].perform(ctx, in, false)
				if answers[i].kind == given {
					win()
				}
				if answers[i].code != "session_owned" || wait.For(won, askAgain) != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	winner := -1
	for i, t := range answers {
		switch {
		case t.kind == given && winner >= 0:
			return wrongf("two owners", "session %s: both servers told that %s is finished, with different outputs", s.id, step)
		case t.kind == given:
			winner = i
		case t.code != "session_owned":
			return a.failure(ctx, "finished_step", t, a.saves.mark(s.job, 0))
		}
	}
	if winner < 0 {
		return wrongf("a session that was not handed over", "session %s, %v after its connection was closed", s.id, handedWithin)
	}
	a.home, a.conns = sides[winner].home, sides[winner].conns
	if err := sides[1-winner].leave(); err != nil {
		return fmt.Errorf("closing a connection: %w", err)
	}
	s.open = slices.DeleteFunc(s.open, func(member string) bool { return member == step })
	if err := a.sameStack(s, &answers[winner].reply, false); err != nil {
		return err
	}
	return a.spot(s)
}
