package run

import (
	"context"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	definition "deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/board"
	"deepwork/session/workflow/machine"
)

var me = session.LocalCaller(session.ChannelStdio)

func TestMain(m *testing.M) { attempttest.Main(m, "") }

// A desk is a Workplace whose workflow has the step draft, which is finished when so many agents have worked on it, and
// the step review, which a person passes after one.
type desk struct {
	agents int
	moved  chan struct{}

	mu       sync.Mutex
	ended    map[string]int
	question *machine.Question
	passed   bool
	granted  []Grant
}

func (w *desk) state() *machine.State {
	s := &machine.State{SessionID: "12345678", JobName: "texts", WorkflowName: "write", Goal: "Ship it.\n! prompt", Status: machine.Active, CurrentStepID: "draft"}
	switch {
	case w.passed:
		s.Status = machine.Completed
	case w.ended["draft"] >= w.agents:
		s.CurrentStepID = "review"
	}
	s.StepProgress = s.StepProgress.Set(s.CurrentStepID, &machine.StepProgress{StepID: s.CurrentStepID, Question: w.question})
	return s
}

func (w *desk) State(context.Context, string) (*machine.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state(), nil
}

func (w *desk) Step(_ context.Context, id string, _ *string) (*machine.StepReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	step := w.state().CurrentStepID
	return &machine.StepReply{Members: []machine.Member{{StepID: step, State: "started"}}, BeginStep: &machine.StepInfo{StepID: step, SessionID: id}}, nil
}

func (w *desk) Admit(g Grant) (Connection, func() bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted = append(w.granted, g)
	return Connection{Called: func() time.Time { return time.Time{} }}, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ended[g.Step]++; g.Step == "review" {
			w.question = &machine.Question{AskedAt: time.Now(), RunEach: "step", Digest: "d"}
		}
		return true
	}, nil
}

func (w *desk) Finish(context.Context, string, string, *machine.Question) (*machine.FinishReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed = true
	return &machine.FinishReply{Status: machine.WorkflowComplete}, nil
}

func (w *desk) Start(context.Context, *board.Run, string) (string, error)   { return "12345678", nil }
func (w *desk) Started(context.Context, map[string]bool) ([]Started, error) { return nil, nil }
func (w *desk) Changed(context.Context, *machine.State, string) string      { return "" }
func (w *desk) Isolate(context.Context, string, string, string) error       { return nil }
func (w *desk) Moved() <-chan struct{}                                      { return w.moved }
func (w *desk) Defined(context.Context, *machine.State, string) (*definition.Step, error) {
	return &definition.Step{}, nil
}

// begun starts a run that has a leader.
func begun(t *testing.T, leader attempt.Leader) (*attempt.Engine, *board.RunReply) {
	p := attempttest.New(t)
	e := testkit.Get(attempt.Open(t.Context(), attempt.Options{
		Options: board.Options{Root: p.Root, Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil }},
		Leader:  leader,
		Poll:    20 * time.Millisecond,
	})).Must(t)
	t.Cleanup(func() { testkit.Same(t, e.Close(context.Background()), nil, "not stopped") })
	return e, testkit.Get(e.RunWorkflow(t.Context(), me, attempt.RunWorkflowArgs{JobName: "texts", WorkflowName: "write", Goal: "Ship it.", Executor: new("TEST")})).Must(t)
}

// aLead returns what the leader of a run is given, which nobody leads.
func aLead(t *testing.T) *attempt.Lead {
	leads := make(chan *attempt.Lead)
	begun(t, func(ctx context.Context, l *attempt.Lead) board.RunEnd {
		select {
		case leads <- l:
			<-ctx.Done()
		case <-ctx.Done():
		}
		return board.RunEnd{State: board.Failed}
	})
	return <-leads
}

// led starts a run that works at a desk, whose step has at most two agents.
func led(t *testing.T, agents int) (*attempt.Engine, *desk, func(board.State) *board.RunReply) {
	w := &desk{agents: agents, moved: make(chan struct{}, 1), ended: map[string]int{}}
	e, made := begun(t, func(ctx context.Context, l *attempt.Lead) board.RunEnd { return Lead(ctx, l, w, 1) })
	return e, w, func(want board.State) (r *board.RunReply) {
		t.Helper()
		testkit.Until(t, "the run is "+string(want), func() bool {
			r = testkit.Get(e.GetRun(t.Context(), me, board.RunArgs{RunID: made.RunID})).Must(t)
			return r.State == want
		})
		return r
	}
}

// A run goes from step to step: an agent that ends without finishing its step is followed by another one, which is told
// so, and a person passes what the last one handed in.
func TestARunIsLedToItsEnd(t *testing.T) {
	t.Parallel()
	e, w, reaches := led(t, 2)
	waits := reaches(board.WaitingForYou)
	testkit.Equal(t, len(waits.Waits), 1, "waits")
	w.mu.Lock()
	answered := *w.question
	answered.Answer = &machine.Answer{Passed: true}
	w.question = &answered
	w.mu.Unlock()
	w.moved <- struct{}{}
	r := reaches(board.Completed)
	var steps, prompts []string
	for _, s := range r.Steps {
		steps = append(steps, s.StepID+" "+string(s.State))
		tail := testkit.Get(e.TailAttempt(t.Context(), me, attempt.TailArgs{Target: board.Target{AttemptID: &r.RunID}, ExecutionID: &s.ExecutionID, AfterIndex: new(int64(-1))})).Must(t)
		said := ""
		for _, m := range tail.Messages {
			said += m.Text + "\n"
		}
		prompts = append(prompts, said)
	}
	testkit.Same(t, steps, []string{"draft completed", "draft completed", "review completed"})
	testkit.ContainsAll(t, prompts[0], []string{"Ship it.", "# Your step: draft"})
	testkit.Contains(t, prompts[1], "An agent has worked on this step before", "the second agent is told")
	testkit.Contains(t, prompts[2], "# Your step: review")
	w.mu.Lock()
	g := w.granted[1]
	w.mu.Unlock()
	testkit.Same(t, []string{g.Execution, g.Session, g.Step}, []string{r.Steps[1].ExecutionID, "12345678", "draft"}, "the second agent may")
	testkit.Equal(t, testkit.Get(e.GetTask(t.Context(), me, board.TaskArgs{TaskID: r.TaskID})).Must(t).Status, string(task.InReview))
}

// A step whose agents all end without finishing it ends the run.
func TestARunWhoseAgentsFinishNothing(t *testing.T) {
	t.Parallel()
	_, _, reaches := led(t, 99)
	r := reaches(board.Failed)
	testkit.Equal(t, len(r.Steps), 2, "agents")
	testkit.Contains(t, *r.Reason, "Step draft: 2 agents ended without finishing it")
}
