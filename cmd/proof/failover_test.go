package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

// A server is killed: another machine's finishes the next step of its session at once.
func TestFailover(t *testing.T) {
	t.Parallel()
	f := newFleet(t.TempDir(), 1, 0, 1)
	f.count = 2
	t.Cleanup(func() { testkit.Must(t, f.close()) })
	pgtest.Need(t, f.layOut(t.Context()))
	for _, m := range f.machines {
		testkit.Must(t, f.serve(t.Context(), m, 0))
	}
	a := f.agent(0)
	a.strict, a.lose = true, 0
	begun := a.perform(t.Context(), input{Tool: "start_workflow", Job: jobName(0), Workflow: "chain", Goal: "survive", Request: a.request()})
	if begun.kind != given {
		t.Fatalf("%+v", begun)
	}
	in := input{Tool: "finished_step", Session: begun.reply.Begin.Session, Outputs: a.outputs(), Request: a.request()}
	testkit.Must(t, f.machines[0].current().kill())
	killed := time.Now()
	a.home = f.machines[1].server
	next := a.perform(t.Context(), in)
	if next.kind != given || isRefusal(next.said) {
		t.Fatalf("%+v", next)
	}
	t.Logf("another server has answered after %v", time.Since(killed))
	if f.history.check(); len(f.history.faults) > 0 {
		t.Error(f.history.found())
	}
}

// The database's server crashes in the middle of calls, and its synchronous standby takes its place: nothing
// acknowledged is lost, and what was not is seen whole or not at all.
func TestStandby(t *testing.T) {
	if *fleetTime < 15*time.Second {
		t.Skip("it takes half a minute: -fleet.time=15s runs it")
	}
	ctx := t.Context()
	f := newFleet(t.TempDir(), *simSeed, 0, 12)
	f.count = 2
	t.Cleanup(func() { testkit.Must(t, f.close()) })
	pgtest.Need(t, f.layOut(ctx))
	for _, m := range f.machines {
		testkit.Must(t, f.serve(ctx, m, 0))
	}
	testkit.Must(t, f.db.Follow())
	working, done := context.WithCancel(ctx)
	defer done()
	var all sync.WaitGroup
	f.rove(working, &all, 1)
	f.keepBoard(working, &all, true)
	calls := func(more int) {
		for begun, enough := f.answered(), false; !enough; enough = f.answered() > begun+more {
			time.Sleep(10 * time.Millisecond)
		}
	}
	calls(300)
	testkit.Must(t, f.db.FailOver())
	calls(300)
	done()
	all.Wait()
	testkit.Must(t, f.end(ctx))
	if n, what := f.history.found(); n > 0 || len(f.history.sessions) == 0 || len(f.tasks) == 0 {
		t.Errorf("%d sessions, %d tasks: %s", len(f.history.sessions), len(f.tasks), what)
	}
	t.Log(f)
}

// answered is how many calls had an answer.
func (f *fleet) answered() (n int) {
	f.history.with(func() { n = f.history.calls - f.history.lost - f.history.refused })
	return n
}
