package workflow

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// moves are what Options.Moved was told.
type moves struct {
	mu  sync.Mutex
	all []string
}

func (m *moves) told(v *machine.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, fmt.Sprintf("%s/%s %s %s", v.JobName, v.WorkflowName, v.Status, v.CurrentStepID))
}

// Each transition that others see is told once, in order, when it is on disk; what
// moves nothing is not.
func TestMovedIsToldOfEachTransition(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	var m moves
	srv := p.open(func(o *Options) {
		o.Moved = func(v *machine.State) {
			if s, err := newRecordsOf(t, p).Read(v.SessionID); err != nil || s.CurrentStepID != v.CurrentStepID || s.Status != v.Status {
				t.Errorf("told of %+v, which is not on disk: %v", v, err)
			}
			m.told(v)
		}
	})
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	finish := func() {
		t.Helper()
		testkit.Must(t, errOf(c.Finish(ctx, FinishArgs{Outputs: []byte(`{"report":"r.md"}`)})))
	}
	_, err := c.Finish(ctx, FinishArgs{Outputs: []byte(`{"report":"none.md"}`)})
	refused(t, err, session.ToolError, session.CodeOf(err))
	testkit.Must(t, errOf(c.Step(ctx, StepArgs{})))
	finish()
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	finish()
	finish()
	p.start(c, "alpha", "main")
	testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "e"})))
	want := []string{"alpha/main active one", "alpha/main active two", "alpha/main active one", "alpha/main active two", "alpha/main completed two",
		"alpha/main active one", "alpha/main aborted one"}
	m.mu.Lock()
	defer m.mu.Unlock()
	// Where an actor begins, it reports its session's step again.
	if got := slices.Compact(m.all); !slices.Equal(got, want) {
		t.Errorf("told %q\nwant %q", got, want)
	}
}

func newRecordsOf(t *testing.T, p *project) *Archive {
	t.Helper()
	a, err := OpenArchive(p.state(), p.stores(), nil)
	testkit.Must(t, err)
	t.Cleanup(func() { a.Close() })
	return a
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
