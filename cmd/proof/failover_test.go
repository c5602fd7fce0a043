package main

import (
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
