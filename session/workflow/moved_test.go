package workflow

import (
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
)

// Options.Moved is called after each transition that others see, of this process or another one.
func TestMovedIsToldOfEachTransition(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	moved := make(chan struct{}, 100)
	srv := p.open(func(o *Options) { o.Moved = func() { moved <- struct{}{} } })
	told := func(of string) {
		t.Helper()
		select {
		case <-moved:
		case <-time.After(patience):
			t.Fatalf("nothing is told of %s", of)
		}
	}
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	told("a start")
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	told("a step")
	for len(moved) > 0 {
		<-moved
	}
	other := p.open().Connect("local")
	testkit.Must(t, errOf(other.Abort(ctx, AbortArgs{Explanation: "e", SessionID: &id})))
	told("an abort at another server")
}

func TestCheckWorkflow(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	if err := CheckWorkflow(ctx, srv.catalog, "alpha", "main"); err != nil {
		t.Error(err)
	}
	for _, c := range [][3]string{{"none", "main", "job_not_found"}, {"alpha", "none", "workflow_not_found"}} {
		refused(t, CheckWorkflow(ctx, srv.catalog, c[0], c[1]), session.ToolError, c[2])
	}
}
