package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	definition "deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/store"
)

var me = session.LocalCaller(session.ChannelStdio)

func TestMain(m *testing.M) { attempttest.Main(m, "") }

// A desk is a Workplace whose workflow has the step draft, which is finished when so many agents have worked on it, and
// the step review, which a person passes after one.
type desk struct {
	called
	agents  int
	began   time.Time // the steps, by the clock of the sessions
	moved   chan struct{}
	dropped chan string // the folder of an item that nobody works on

	mu      sync.Mutex
	ended   map[string]int
	handed  []*judging.Submission // of the current step
	passed  bool
	granted []Grant
}

func (w *desk) state() *machine.State {
	s := &machine.State{
		SessionID:     "12345678",
		JobName:       "texts",
		WorkflowName:  "write",
		Goal:          "Ship it.\n! prompt",
		Status:        machine.Active,
		CurrentStepID: "draft",
	}

	switch {
	case w.passed:
		s.Status = machine.Completed
	case w.ended["draft"] >= w.agents:
		s.CurrentStepID = "review"
	}
	s.StepProgress = s.StepProgress.Set(s.CurrentStepID,
		&machine.StepProgress{StepID: s.CurrentStepID, StartedAt: w.began, Submissions: w.handed})
	return s
}

func (w *desk) State(context.Context, string) (*machine.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state(), nil
}

func (w *desk) Step(_ context.Context, id string, _ *string) (*replies.Step, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	step := w.state().CurrentStepID
	return &replies.Step{
		Members:   []replies.Member{{StepID: step, State: "started"}},
		BeginStep: &replies.StepInfo{StepID: step, SessionID: id},
	}, nil
}

func (w *desk) Admit(g Grant) (Connection, func() bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted = append(w.granted, g)
	return Connection{Called: func() time.Time { return time.Time{} }}, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended[g.Step]++
		if g.Step == "review" {
			w.handed = asksPerson()
		}
		return true
	}, nil
}

func (w *desk) Finish(context.Context, string, string, *judging.Submission) (*replies.Finish, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed = true
	return &replies.Finish{Status: replies.WorkflowComplete}, nil
}

func (w *desk) Start(context.Context, *board.Run, string) (string, error) { return "12345678", nil }
func (w *desk) Moved() <-chan struct{}                                    { return w.moved }
func (w *desk) Defined(context.Context, *machine.State, string) (*definition.Step, error) {
	return &definition.Step{}, nil
}

// begun starts a run that has a leader.
func begun(t *testing.T, leader attempt.Leader) (*attempt.Engine, *board.RunReply) {
	p := attempttest.New(t)
	e := testkit.Get(attempt.Open(t.Context(), attempt.Options{
		Options: board.Options{
			Root:   p.Root,
			Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil },
		},
		Leader: leader,
		Poll:   20 * time.Millisecond,
	})).Must(t)

	t.Cleanup(func() { testkit.Same(t, e.Close(context.Background()), nil, "not stopped") })
	return e,
		testkit.Get(e.RunWorkflow(t.Context(), me, attempt.RunWorkflowArgs{
			JobName:      "texts",
			WorkflowName: "write",
			Goal:         "Ship it.",
			Executor:     new("TEST"),
		})).Must(t)
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

// led starts a run that works at a desk, whose step has at most two agents. The clock of the sessions is
// ahead of the board's.
func led(t *testing.T, agents int, ahead time.Duration) (*attempt.Engine, *desk, func(board.State) *board.RunReply) {
	w := &desk{
		agents:  agents,
		began:   time.Now().Add(ahead).Truncate(time.Microsecond),
		moved:   make(chan struct{}, 1),
		dropped: make(chan string, 1),
		ended:   map[string]int{},
	}
	e, made := begun(t, func(ctx context.Context, l *attempt.Lead) board.RunEnd {
		folder, _ := l.MakeItem(ctx, "dropped")
		w.dropped <- folder
		return Lead(ctx, l, w, 1)
	})
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
	e, w, reaches := led(t, 2, 0)
	testkit.Equal(t, len(reaches(board.WaitingForYou).Waits), 1, "waits")
	w.mu.Lock()
	w.handed[0] = w.handed[0].To("", []*judging.Verdict{{Kind: judging.ByPerson, Passed: true}}, time.Now())
	w.mu.Unlock()
	w.moved <- struct{}{}
	r := reaches(board.Completed)
	folder := <-w.dropped
	testkit.True(t, folder != "", "no item was made")
	testkit.FailsWith(t, testkit.Get(os.Stat(folder)).Err(), os.ErrNotExist, "the worktree of an item that was dropped")

	var steps, prompts []string
	for _, s := range r.Steps {
		steps = append(steps, s.StepID+" "+string(s.State))
		tail := testkit.Get(e.TailAttempt(t.Context(), me, attempt.TailArgs{
			Target:      board.Target{AttemptID: &r.RunID},
			ExecutionID: &s.ExecutionID,
			AfterIndex:  new(int64(-1)),
		})).Must(t)
		prompts = append(prompts, "")
		for _, m := range tail.Messages {
			prompts[len(prompts)-1] += m.Text + "\n"
		}
	}
	testkit.Same(t, steps, []string{"draft completed", "draft completed", "review completed"})
	testkit.ContainsAll(t, prompts[0], []string{"Ship it.", "# Your step: draft"})
	testkit.Contains(t, prompts[1], "An agent has worked on this step before", "the second agent is told")
	testkit.Contains(t, prompts[2], "# Your step: review")

	w.mu.Lock()
	g := w.granted[1]
	w.mu.Unlock()
	testkit.Same(t, []string{g.Execution, g.Session, g.Step}, []string{r.Steps[1].ExecutionID, "12345678", "draft"},
		"the second agent may")
	testkit.Equal(t, testkit.Get(e.GetTask(t.Context(), me, board.TaskArgs{TaskID: r.TaskID})).Must(t).Status,
		string(task.InReview))
}

// A step whose agents all end without finishing it ends the run.
func TestARunWhoseAgentsFinishNothing(t *testing.T) {
	t.Parallel()
	_, _, reaches := led(t, 99, time.Hour)
	r := reaches(board.Failed)
	testkit.True(t, len(r.Steps) == 2 &&
		strings.Contains(*r.Reason, "Step draft: 2 agents ended without finishing it"), "%+v", r)
}

// Only agents count that ended on their own since the run was resumed.
func TestField01_WhatCountsAsATry(t *testing.T) {
	since := time.Now()
	d := &leader{attemptLead: &attempt.Lead{Since: since}, retries: 2}
	x := func(state task.AttemptState, after time.Duration) task.Execution {
		return task.Execution{State: state, CreatedAt: since.Add(after), Error: new("its error")}
	}
	limited := x(task.Failed, 1)
	limited.LimitedUntil = &since
	none := []task.Execution{limited, limited, limited, x(task.Stopped, 1), x(task.Interrupted, 1), x(task.Failed, -1),
		x(task.Completed, -1)}
	testkit.Equal(t, d.exhausted(job{
		state:      new(machine.State),
		executions: append(none, x(task.Failed, 1), x(task.Completed, 1)),
	}).Sentence(), "")
	testkit.Equal(t, d.exhausted(job{
		state:      new(machine.State),
		executions: append(none, x(task.Failed, 1), x(task.Completed, 1), x(task.Failed, 1)),
	}).Sentence(), "3 agents ended without finishing it: its error.")
	loggedOut := x(task.Failed, 1)
	loggedOut.FinalMessage = new("Please run\n/login")
	before := []task.Execution{loggedOut, x(task.Failed, 1), x(task.Failed, 1)}
	before[0].Error, before[0].ExitCode = nil, new(4)
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), executions: before}).Sentence(),
		"3 agents ended without finishing it, last with exit code 4: Please run.")
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), executions: before, refusal: "It changed."}).Sentence(),
		"3 agents ended without finishing it: It changed.")
	testkit.Equal(t, d.exhausted(job{
		stepRef: stepRef{step: "merge:a[0]"}, state: new(machine.State), executions: before, refusal: "In x.",
	}).Sentence(), "Its merge has conflicts: In x.")

	cut := x(task.Interrupted, 1)
	cut.ID, d.cut = "cut", map[string]bool{"cut": true}
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), executions: append(none, cut, cut, cut)}).Sentence(),
		"3 agents ended without finishing it: its error.")

	rows := slices.Repeat([]task.Execution{limited}, board.MaxLimits-1)
	testkit.Equal(t, d.exhausted(
		job{state: new(machine.State), executions: append(rows, x(task.Failed, 1), limited)}).Sentence(),
		"")
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), executions: append(rows, limited)}).Sentence(),
		"A limit of its agent's provider ended 10 agents in a row; resume the run when the limit is over.")
	d.silent = map[stepRef]bool{{}: true}
	testkit.Contains(t, d.exhausted(job{
		state:      new(machine.State),
		executions: []task.Execution{x(task.Completed, 1), x(task.Completed, 1), x(task.Failed, 1)},
	}).Sentence(), "never connected to the MCP server deepwork-run")
}

// An away is a Workplace whose database does not answer for a while, and then says something else.
type away struct {
	called
	asked int
}

func (a *away) State(context.Context, string) (*machine.State, error) {
	a.asked++
	if a.asked < 20 {
		return nil, fmt.Errorf("reading: %w", store.ErrUnavailable)
	}
	return nil, errors.New("it is damaged")
}

func (*away) Defined(context.Context, *machine.State, string) (*definition.Step, error) {
	return nil, fmt.Errorf("reading: %w", store.ErrUnavailable)
}

func TestTheFirstPromptHasAllThatAnAgentNeeds(t *testing.T) {
	s := &machine.State{JobName: "alpha", WorkflowName: "main"}
	step := &replies.StepInfo{StepID: "draft", SessionID: "0123abcd"}
	before := &task.Execution{FinalMessage: new("half done\nsee notes.md")}
	got := testkit.Get(firstPrompt(" Ship it\n", s, step, []string{"review"}, before, "the tests fail", true)).Must(t)
	testkit.ContainsAll(t, got, []string{"# Goal\n\nShip it\n\n# Your step: " +
		"draft\n", "workflow alpha/main", "on the steps review: leave", "Commit the files",
		`session_id "0123abcd", step_id "draft"`, "> half done\n> see notes.md\n", "not finished: the tests fail"})

	alone := testkit.Get(firstPrompt("g", s, step, nil, nil, "", false)).Must(t)
	testkit.True(t, !regexp.MustCompile("Other agents|Commit|before").MatchString(alone),
		"an agent alone is told of others:\n%s", alone)
}

// A leader waits for stores that do not answer, until it is stopped, and ends for other errors. It gives no step up
// for them. Without news it looks again.
func TestLeadWaitsForItsStores(t *testing.T) {
	d := newLeader(&attempt.Lead{Attempt: new(task.Attempt)}, new(away), 2)
	testkit.FailsWith(t, d.start(t.Context(), []job{{state: new(machine.State)}}), store.ErrUnavailable)
	testkit.Equal(t, len(d.failed), 0, "steps that are given up")

	synctest.Test(t, func(t *testing.T) {
		at, l := new(away), &attempt.Lead{Attempt: new(task.Attempt), Run: board.Run{SessionID: "01234567"}}
		end := Lead(t.Context(), l, at, 2)
		testkit.Equal(t, end.State, board.Failed, "%+v after %d looks", end, at.asked)
		testkit.Equal(t, end.Reason(), "It is damaged.", "%+v after %d looks", end, at.asked)
		testkit.Equal(t, at.asked, 20, "%+v after %d looks", end, at.asked)

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		*at = (away{})
		testkit.True(t, Lead(ctx, l, at, 2).State != board.Completed, "%d looks in %v", at.asked, time.Since(begun))
		testkit.True(t, at.asked >= 2, "%d looks in %v", at.asked, time.Since(begun))
		testkit.True(t, time.Since(begun) <= 5*time.Second, "%d looks in %v", at.asked, time.Since(begun))
		begun = time.Now()
		testkit.Works(t, newLeader(l, new(desk), 2).wait(t.Context(), time.Time{}))
		testkit.Equal(t, time.Since(begun), lookAgain, "another process may have moved the session")
	})
}

// A broken Workplace panics.
type broken struct{ called }

func (*broken) State(context.Context, string) (*machine.State, error) { panic("no idea") }

// The agents of a leader that panics have ended when the panic arrives at its caller.
func TestPanicEndsTheAgents(t *testing.T) {
	d := newLeader(&attempt.Lead{Run: board.Run{SessionID: "12345678"}}, new(broken), 2)
	for _, step := range []string{"a", "b"} {
		x := &agent{stepRef: stepRef{"12345678", step}, x: new(task.Execution)}
		var ctx context.Context
		ctx, x.cancel = context.WithCancel(t.Context())
		d.agents[x.stepRef] = x
		d.running.Go(func() {
			<-ctx.Done()
			d.ended <- x
		})
	}
	defer func() {
		fault := recover()
		testkit.True(t, fault == "no idea" && len(d.agents) == 0, "it panicked with %v, and the agents %v run",
			fault, d.agents)
	}()
	d.run(t.Context())
	t.Error("it has not panicked")
}

// fakeSessions are the sessions of a run by id, all of one workflow.
type fakeSessions struct {
	states map[string]*machine.State
	def    *machine.Definition
}

func (f fakeSessions) Read(_ context.Context, id string) (*machine.State, error) {
	if s := f.states[id]; s != nil {
		return s, nil
	}
	return nil, errors.New("there is no session " + id)
}

func (f fakeSessions) Definition(*machine.State) (*machine.Definition, error) { return f.def, nil }

// A step has one of the states of runs, whatever its session and its agents are.
func TestField22_StatesOfSteps(t *testing.T) {
	began, later := "2026-01-01T00:00:00Z", time.Now().Add(time.Hour)
	agent := func(state board.State, started, ended *string) []board.RunStep {
		return []board.RunStep{{State: state, StartedAt: started, EndedAt: ended}}
	}

	progress := func(handed ...*judging.Submission) *machine.State {
		return &machine.State{Status: machine.Active, CurrentStepID: "one",
			StepProgress: jsontext.OrderedMap[*machine.StepProgress]{{
				Key:   "one",
				Value: &machine.StepProgress{Submissions: handed},
			}}}
	}
	active, asked := progress(), progress(asksPerson()...)
	for _, test := range []struct {
		want   board.State
		state  *machine.State
		step   Step
		closed bool
	}{
		{board.Queued, active, Step{ID: "one"}, false},
		{board.NotBegun, active, Step{ID: "two"}, false},
		{board.Queued, active, Step{ID: "one", Agents: agent(board.Queued, nil, nil)}, false},
		{board.Running, active, Step{ID: "one", Agents: agent(board.Running, &began, nil)}, false},
		{board.WaitingForYou, asked, Step{ID: "one", Agents: agent(board.Running, &began, nil)}, false},
		{board.WaitingForLimit, active,
			Step{ID: "one", Agents: agent(board.Failed, &began, &began), Until: &later}, false},
		{board.Running, active, Step{
			ID:     "one",
			Agents: agent(board.Completed, &began, &began),
			Nested: []Tree{{}},
		}, false},
		{board.Running, active, Step{ID: "one", Nested: []Tree{{}}}, false},
		{board.Queued, active, Step{ID: "one", Agents: agent(board.Completed, &began, &began)}, false},
		{board.Paused, active, Step{ID: "one"}, true},
		{board.Paused, active, Step{ID: "one", Agents: agent(board.Completed, &began, &began)}, true},
		{board.Interrupted, active, Step{ID: "one", Agents: agent(board.Interrupted, &began, &began)}, true},
		{board.NotBegun, active, Step{ID: "two"}, true},
	} {
		test.step.Session, test.step.Progress = test.state, test.state.Progress(test.step.ID)
		r := &board.RunReply{RunID: "r", State: board.Paused}
		got, _ := (&viewBuilder{run: &View{RunReply: r, Live: !test.closed}}).state(&test.step)
		testkit.Equal(t, got, test.want, "%+v, ended %v", test.step, test.closed)
	}
}

// A run of a group and a step that has started a workflow, with three agents.
func aRun() (*board.RunReply, fakeSessions) {
	stamp := func(seconds int) *string { return new(time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339Nano)) }
	x := func(session, step string, state board.State, from, to int) board.RunStep {
		a := board.RunStep{
			ExecutionID: session + step,
			SessionID:   session,
			StepID:      step,
			State:       state,
			StartedAt:   stamp(from),
			Cost:        &board.ExecutionCost{USD: new(0.5)},
		}
		if to > 0 {
			a.EndedAt, a.FinalMessage = stamp(to), new("said")
		}
		return a
	}

	state := func(id string) *machine.State {
		return &machine.State{
			SessionID:     id,
			JobName:       "j",
			WorkflowName:  "w",
			Status:        machine.Active,
			CurrentStepID: "a",
			StepProgress:  jsontext.OrderedMap[*machine.StepProgress]{{Key: "a", Value: &machine.StepProgress{}}},
		}
	}

	r := &board.RunReply{
		RunID:     "r",
		State:     board.Running,
		Open:      true,
		SessionID: new("s"),
		Workflow:  "j/w",
		Kept:      board.Run{Children: map[string][]string{"s/a": {"n", "gone"}}},
		Steps: []board.RunStep{x("s", "a", "completed", 10, 12), x("s", "a", "completed", 20, 25),
			x("n", "a", "running", 30, 0)},
	}

	def := &machine.Definition{
		Job:      &definition.Job{Steps: []definition.Step{{ID: "a"}}},
		Workflow: &definition.Workflow{Sequence: definition.Sequence{Entries: []definition.Entry{{"a", "b"}, {"c"}}}},
	}
	return r, fakeSessions{map[string]*machine.State{"s": state("s"), "n": state("n")}, def}
}

// The steps are in the order of the workflow, those of nested workflows after their step, with their agents.
func TestLook(t *testing.T) {
	r, sessions := aRun()
	v := Look(t.Context(), r, sessions, map[string]string{"na": "says"})
	testkit.Need(t, v.Fault == nil && v.Live, "live %v, %v", v.Live, v.Fault)
	testkit.Equal(t, fmt.Sprint(r.Plan),
		"[{s a running} {n a running} {n b not_begun} {n c not_begun} {s b not_begun} {s c not_begun}]", "the plan")

	first := v.Tree.Entries[0][0]
	testkit.Equal(t, first.Took, 7*time.Second, "the first step is %+v", first)
	testkit.Equal(t, *first.USD, 1, "the first step is %+v", first)
	testkit.Equal(t, first.Last, "said", "the first step is %+v", first)
	testkit.Need(t, len(first.Agents) == 2, "the first step is %+v", first)
	testkit.True(t, first.Agents[0].EndedAt != r.Steps[0].EndedAt, "the first step is %+v", first)
	testkit.True(t, first.Nested[0].Entries[0][0].Last == "says" && first.Nested[0].Entries[0][0].Since != nil,
		"the nested steps are %+v", first.Nested)

	depths := ""
	v.Tree.Each(func(_ *Step, depth int) { depths += fmt.Sprint(depth) })
	testkit.Equal(t, depths, "011100", "the depths")

	ended := &board.RunReply{
		SessionID: r.SessionID,
		Waits:     []board.RunWaits{{For: board.WaitsForPerson, SessionID: "s", StepID: "a"}},
	}
	testkit.Equal(t, len(Look(t.Context(), ended, sessions, nil).Waits), 0,
		"what an ended run waits for, of a person who has answered")

	// Without its sessions, a run has the steps for which agents were started, and what its leader says of them.
	r, sessions = aRun()
	r.Kept.Waits = []board.RunWait{{Kind: board.WaitsForPerson, SessionID: "s", StepID: "a"}}
	sessions.states = nil
	testkit.True(t, Look(t.Context(), r, sessions, nil).Fault != nil, "no fault")
	testkit.Equal(t, fmt.Sprint(r.Plan), "[{s a waiting_for_you} {n a running}]", "the plan")
}
