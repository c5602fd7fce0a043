package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/why"
)

// leads is a Leader that runs agents with these prompts one after the other, all for one step, and then
// ends. It gives each leader's advice to advised.
func leads(t *testing.T, end board.RunEnd, advised chan<- string, prompts ...string) Leader {
	return func(ctx context.Context, l *Lead) board.RunEnd {
		advised <- l.Advice
		log := uuid.NewString()
		for _, prompt := range prompts {
			x := agentOf(l, prompt)
			x.Execution.LogID = log
			testkit.Works(t, testkit.Get(l.RunAgent(ctx, x)).Err(), "running an agent")
			l.Note("step write: ended")
		}
		return end
	}
}

// agentOf is the next agent of a run's step.
func agentOf(l *Lead, prompt string) Agent {
	return Agent{
		Execution: task.Execution{
			ID:                uuid.NewString(),
			LogID:             uuid.NewString(),
			WorkflowSessionID: "12345678",
			StepID:            "write",
			Executor:          l.Attempt.Executor,
		},
		Prompt: prompt,
	}
}

// ending has each run end so, at once.
func ending(end board.RunEnd) func(*Options) {
	return func(o *Options) { o.Leader = func(context.Context, *Lead) board.RunEnd { return end } }
}

var unfinished = board.RunEnd{State: board.Failed, Step: "write", Why: []why.Why{{Kind: why.Agent, Tries: 3}}}

func (s *server) run(id string) *board.RunReply {
	s.t.Helper()
	return testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: id})).Must(s.t)
}

// resumes lets a run go on.
func (s *server) resumes(id, advice string) {
	s.t.Helper()
	testkit.Get(s.ResumeRun(ctx, me, id, advice, func(*board.Run) {})).Must(s.t)
}

// texts are what messages of a kind say.
func texts(all []Message, kind string) string {
	text := "|"
	for _, m := range all {
		if m.Kind == kind {
			text += m.Text + "|"
		}
	}
	return text
}

func (s *server) tailOf(a TailArgs) []Message {
	s.t.Helper()
	a.AfterIndex = new(int64(-1))
	return testkit.Get(s.TailAttempt(ctx, me, a)).Must(s.t).Messages
}

// aText are the arguments of a run.
func aText() RunWorkflowArgs {
	return RunWorkflowArgs{JobName: "texts", WorkflowName: "write", Goal: "Write a text.", Executor: new("TEST")}
}

// startRun starts a run in a worktree, or in place.
func (s *server) startRun(inPlace bool) *board.RunReply {
	s.t.Helper()
	a := aText()
	a.InPlace = &inPlace
	return testkit.Get(s.RunWorkflow(ctx, me, a)).Must(s.t)
}

// tail_attempt returns the output of one process of an agent, also if another one for the same step follows in its log;
// without execution_id, what the leader notes. A follow-up lets a run go on, with the message as advice,
// unless it is complete.
func TestFollowUpOfARun(t *testing.T) {
	advised := make(chan string, 10)
	p, s := opened(t, func(o *Options) { o.Leader = leads(t, unfinished, advised, "! say one\n", "! say two\n") })
	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	testkit.Equal(t, <-advised, "", "the first leader was advised")
	run := s.run(made.RunID)
	testkit.Need(t, run.State == board.Failed && len(run.Steps) == 2, "%+v", run)
	for i, want := range []string{"one", "two"} {
		got := texts(s.tailOf(TailArgs{Target: the(made.RunID), ExecutionID: &run.Steps[i].ExecutionID}), "output")
		testkit.True(t, strings.Contains(got, "|"+want+"|") && !strings.Contains(got, []string{"|two|", "|one|"}[i]),
			"the agent %d said %q", i, got)
	}
	all := s.tailOf(TailArgs{Target: the(made.RunID)})
	testkit.True(t, texts(all, "output") == "|" && strings.Contains(texts(all, "system"), "|step write: ended|"),
		"without execution_id: %+v", all)

	refused(t,
		testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(made.RunID), ExecutionID: new(uuid.NewString())})).
			Err(), session.ToolError, "unknown_execution", "get_run")
	testkit.Equal(t, s.get(made.RunID).Lead+" "+s.task(made.TaskID).Lead+" "+s.newTask().Lead,
		task.ServerLeads+" "+task.ServerLeads+" "+task.AgentLeads, "lead")

	send := FollowUpArgs{Target: the(made.RunID), Action: ActionSend, Prompt: new("use short words")}
	eve := session.Caller{Identity: "eve", Rights: session.RightAgents}
	refused(t, testkit.Get(s.GetRun(ctx, eve, board.RunArgs{RunID: made.RunID})).Err(), session.ToolError,
		"unknown_run")
	refused(t, testkit.Get(s.FollowUp(ctx, eve, send)).Err(), session.ToolError, "unknown_attempt")
	s.stop()
	completes := leads(t, board.RunEnd{State: board.Completed}, advised, "! await "+p.hold)
	s = p.open(func(o *Options) { o.Leader = completes })
	s.follow(send)
	testkit.Equal(t, <-advised, "use short words", "the second leader was advised")

	s.reaches(made.RunID, task.Running)
	s.follow(FollowUpArgs{Target: the(made.RunID), Action: ActionQueue, Prompt: new("use long ones")})
	must(t, os.WriteFile(p.hold, nil, 0o644))
	end := s.reaches(made.RunID, task.Completed)
	testkit.Need(t, len(advised) == 0, "of what was queued it says %q", deref(end.FinalMessage))
	testkit.Need(t, end.Error == nil, "of what was queued it says %q", deref(end.FinalMessage))
	testkit.True(t, containsAll(deref(end.FinalMessage), "was dropped", "use long ones"),
		"of what was queued it says %q", deref(end.FinalMessage))

	for _, send.Action = range []string{ActionSend, ActionQueue} {
		testkit.Equal(t, session.CodeOf(testkit.Get(s.FollowUp(ctx, me, send)).Err()), "run_complete",
			"%s to a complete run", send.Action)
	}
}

// A run that was stopped before it began is not resumed, and its caller is told so. One that is stopped while
// it waits to go on is stopped, however it had ended before.
func TestARunThatIsStoppedWhileItWaits(t *testing.T) {
	p, s := opened(t, passive)
	once := aText()
	once.RequestID = new("once")
	never := testkit.Get(s.RunWorkflow(ctx, me, once)).Must(t)
	s.stopAttempt(never.RunID)
	testkit.Equal(t, session.CodeOf(testkit.Get(s.ResumeRun(ctx, me, never.RunID, "", func(*board.Run) {})).Err()),
		"no_session")

	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: never.TaskID})).Must(t)
	refused(t, testkit.Get(s.RunWorkflow(ctx, me, once)).Err(), session.ToolError, "deleted_since", "request_id")
	s.stop()
	s = p.open(ending(unfinished))
	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	s.stop()
	s = p.open(passive)
	s.resumes(made.RunID, "")
	testkit.Equal(t, string(s.stopAttempt(made.RunID).State)+": "+deref(s.run(made.RunID).Reason),
		"stopped: "+"It was stopped.")
}

// A run whose workspace could not be made, or that was interrupted while it was made, goes on when it is resumed:
// its workspace is made then.
func TestResumeOfARunWithoutAWorkspace(t *testing.T) {
	advised := make(chan string, 10)
	p, s := opened(t, func(o *Options) {
		o.Leader = leads(t, board.RunEnd{State: board.Completed}, advised, "! write new.txt text\n")
	})
	orders := map[board.State]string{
		board.Failed:      "! say no compiler here\n! exit 4",
		board.Interrupted: "! touch " + p.up + "\n! sleep 1h",
		board.Stopped:     "! touch " + p.up + "\n! sleep 1h",
	}
	id := ""
	for _, state := range []board.State{board.Failed, board.Interrupted, board.Stopped} {
		must(t, os.RemoveAll(p.up))
		p.Configure(setup(orders[state]))
		if state == board.Failed {
			id = s.startRun(false).RunID
		} else {
			s.resumes(id, "")
			appears(t, p.up)
		}
		if state == board.Interrupted {
			testkit.True(t, s.Interrupt(id), "it is not led here")
		} else if state == board.Stopped {
			s.stopAttempt(id)
		}

		s.ends(id)
		run := s.run(id)
		testkit.Equal(t, run.State, state, "%s: it is %s: %s", state, run.State, deref(run.Reason))
		testkit.Need(t, run.Reason != nil, "%s: it is %s: %s", state, run.State, deref(run.Reason))
		testkit.True(t, (state != board.Failed || strings.Contains(*run.Reason, "no compiler here")),
			"%s: it is %s: %s", state, run.State, deref(run.Reason))
		testkit.True(t, len(advised) == 0 && (run.Workspace == "" || !Exists(run.Workspace)),
			"%s: it has a leader or a workspace", state)
	}
	p.Configure(func(*config.Config) {})
	s.resumes(id, "use short words")
	s.reaches(id, task.Completed)
	testkit.True(t, <-advised == "use short words" && Exists(filepath.Join(s.run(id).Workspace, "new.txt")),
		"it was advised otherwise, or worked elsewhere")

	p.finds()
}

// The time limit of a run counts from its start or from when it was resumed, whichever leader goes on with
// it. The pause drops what is queued, and says so.
func TestTheTimeOfARunGoesOn(t *testing.T) {
	ends := make(chan time.Time, 3)
	lasts := func(o *Options) {
		o.Leader = func(ctx context.Context, _ *Lead) board.RunEnd {
			at, _ := ctx.Deadline()
			ends <- at
			<-ctx.Done()
			return board.RunEnd{}
		}
	}
	p, s := opened(t, lasts)
	args := aText()
	args.MaxSeconds = new(3600.0)
	id := testkit.Get(s.RunWorkflow(ctx, me, args)).Must(t).RunID
	first := <-ends
	s.die()
	s = p.open(lasts)
	testkit.True(t, !(<-ends).After(first), "the next leader has more time than the first")

	refused(t, testkit.Get(s.ResumeRun(ctx, me, id, "use short words", func(*board.Run) {})).Err(), session.StateError,
		codes.AttemptRunning, "advice")
	s.follow(FollowUpArgs{Target: the(id), Action: ActionQueue, Prompt: new("use short words")})
	s.die()
	s = p.open(passive)
	resumed := time.Now()
	testkit.Get(s.ResumeRun(ctx, me, id, "", func(r *board.Run) { r.MaxTime = time.Second })).Must(t)
	s.stop()
	s = p.open(lasts)
	testkit.True(t, !(<-ends).Before(resumed.Add(time.Second)), "it was resumed, and counts from its start")
	testkit.Until(t, "paused", func() bool { return s.run(id).State == board.Paused })
	testkit.Equal(t, deref(s.run(id).Reason),
		"It has reached its time limit of 1s.\nThe follow-up that was queued was dropped: \"use short words\".")
}

// A process that leads no runs, such as a worker, leaves them to others: those that wait, and those whose
// leader was killed.
func TestRunsAreLeftToWhoLeads(t *testing.T) {
	p, worker := opened(t)
	made := worker.startRun(false)
	leaves := func(owner string, state task.AttemptState) {
		t.Helper()
		worker.ran("! say it has looked")
		for range 100 {
			x := worker.latest(made.RunID)
			testkit.Need(t, x.Owner == owner && x.State == state, "it is %s, of %q", x.State, x.Owner)
		}
	}
	leaves("", task.Waiting)

	leading := func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			_, _ = l.RunAgent(ctx, agentOf(l, "! touch "+p.up+"\n! await "+p.hold))
			return board.RunEnd{State: board.Completed}
		}
	}
	s := p.open(leading)
	appears(t, p.up)
	s.die()
	leaves(s.Members.ID(), task.Running)
	must(t, os.WriteFile(p.hold, nil, 0o644))
	p.open(leading)
	worker.reaches(made.RunID, task.Completed)
}

// A leader that panics stops its run, whose agents end, and which can be resumed.
func TestLeaderPanics(t *testing.T) {
	p := newProject(t)
	var led atomic.Int32
	s := p.open(func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			if led.Add(1) > 1 {
				return board.RunEnd{State: board.Completed}
			}

			var agents sync.WaitGroup
			defer agents.Wait()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			agents.Go(func() { _, _ = l.RunAgent(ctx, agentOf(l, "! touch "+p.up+"\n! sleep 1h")) })
			appears(t, p.up)
			panic("no idea")
		}
	})

	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	run := s.run(made.RunID)
	testkit.Equal(t, run.State, board.Failed)
	testkit.Need(t, len(run.Steps) == 1, "%+v", run)
	testkit.Equal(t, run.Steps[0].State, board.Stopped)
	testkit.Contains(t, deref(run.Reason), "no idea")

	s.resumes(made.RunID, "")
	s.reaches(made.RunID, task.Completed)
}

// A pendingBoard returns ErrPending once for an agent that it has added, or given a slot, after it was to wait.
type pendingBoard struct {
	store.Board
	add, claim *atomic.Bool
}

func (b pendingBoard) AddStep(
	ctx context.Context, x task.Execution, most int, c *task.Claim, l task.Limits,
) (bool, error) {
	if b.claim.Load() {
		most = 0
	}
	claimed, err := b.Board.AddStep(ctx, x, most, c, l)
	if err == nil && b.add.Swap(false) {
		return false, fmt.Errorf("adding: %w", store.ErrPending)
	}
	return claimed, err
}

func (b pendingBoard) ClaimStep(
	ctx context.Context, attempt, id string, most int, c *task.Claim, l task.Limits,
) (bool, error) {
	claimed, err := b.Board.ClaimStep(ctx, attempt, id, most, c, l)
	if claimed && b.claim.Swap(false) {
		return false, fmt.Errorf("claiming: %w", store.ErrPending)
	}
	return claimed, err
}

// An agent that has a slot although that could not be learned is ended, so that the slot is free for the next one.
func TestAnAgentThatMayHaveASlotFreesIt(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	var add, claim atomic.Bool
	add.Store(true)
	claim.Store(true)
	s := p.open(p.boards(func(b store.Board) store.Board { return pendingBoard{b, &add, &claim} }), func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			for i := range 3 {
				_, err := l.RunAgent(ctx, agentOf(l, "! say hello"))
				testkit.True(t, (i == 0) == (err != nil) && (i != 0 || board.Passing(err)), "agent %d: %v", i, err)
			}
			return board.RunEnd{State: board.Completed}
		}
	})

	made := s.startRun(false)
	s.reaches(made.RunID, task.Completed)
	var states []board.State
	for _, x := range s.run(made.RunID).Steps {
		states = append(states, x.State)
	}
	testkit.Same(t, states, []board.State{board.Stopped, board.Stopped, board.Completed}, "the agents")
}

// A run is made once, with its task, by a call that is repeated while it is in progress: what such a call left would be
// started by attempts.auto_start.
func TestARunIsMadeWithItsTask(t *testing.T) {
	s, args := newProject(t).open(passive), aText()
	args.RequestID = new("once")
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() { testkit.Works(t, testkit.Get(s.RunWorkflow(ctx, me, args)).Err()) })
	}
	calls.Wait()
	project, _ := s.rootProject()
	testkit.Same(t, []int{len(testkit.Get(s.Runs(ctx, me)).Must(t)),
		testkit.Get(s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t).Total}, []int{1, 1},
		"runs, tasks")

	// The owner of the workflow must be named if a server is to lead.
	for lead, code := range map[string]string{"server": "missing_argument", "me": "invalid_argument", "agent": ""} {
		_, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "x", Lead: &lead})
		testkit.Equal(t, session.CodeOf(err), code, "lead %s: %v", lead, err)
	}
}

// A run never works in a repository's own folder for want of a branch: only if it was told to.
func TestARunWithoutABranch(t *testing.T) {
	p, s := opened(t, passive)
	p.Git(p.Root, "checkout", "--quiet", "--detach")
	args := aText()
	err := testkit.Get(s.RunWorkflow(ctx, me, args)).Err()
	if s.Shared != nil {
		refused(t, err, session.StateError, codes.NoBranch, "check one out")
		return
	}

	refused(t, err, session.ToolError, codes.NoRepos, "in_place: true")
	testkit.Equal(t, s.startRun(true).Workspace, p.Root, "told to, it works in")
	must(t, os.Remove(filepath.Join(p.Root, ".git", "HEAD")))
	refused(t, testkit.Get(s.RunWorkflow(ctx, me, args)).Err(), session.ToolError, codes.NoRepos,
		"cannot be used: reading the current branch", "in_place: true")
}

// A run whose workflow was aborted cannot go on, and nobody is told to resume it.
func TestARunWhoseWorkflowWasAborted(t *testing.T) {
	s := newProject(t).open(func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			err := l.Progress(ctx, task.WorkflowProgress{
				SessionID: "12345678",
				Status:    board.WorkflowAborted,
				Step:      "write",
			})
			return board.RunEnd{
				State: board.Failed,
				Step:  "write",
				Why:   []why.Why{{Kind: why.Aborted, Said: fmt.Sprint(err)}},
			}
		}
	})

	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	refused(t, testkit.Get(s.ResumeRun(ctx, me, made.RunID, "", func(*board.Run) {})).Err(), session.StateError,
		codes.NoSession, "was aborted")
	items := testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items
	testkit.Need(t, len(items) == 1, "needs attention: %+v", items)
	testkit.Equal(t, items[0].Kind, board.AttentionFailed, "needs attention: %+v", items)
	testkit.True(t, strings.HasPrefix(items[0].Command, "deepwork board start "), "needs attention: %+v", items)
}

// A run has the inputs of its workflow from its first leader to its last, and so do the runs of its task.
func TestInputsOfARun(t *testing.T) {
	given := make(chan string, 10)
	s := newProject(t).open(func(o *Options) {
		o.CheckWorkflow = func(_ context.Context, _, workflow string) (*job.Workflow, error) {
			return &job.Workflow{Name: workflow, Inputs: []job.Parameter{
				{Name: "topic", Description: "What about", Required: true, Type: job.Text},
				{Name: "tone", Description: "How", Required: true, Default: new("plain"), Type: job.Text},
			}}, nil
		}
		o.Leader = func(_ context.Context, l *Lead) board.RunEnd {
			data, _ := json.Marshal(l.Run.Inputs)
			given <- string(data)
			return unfinished
		}
	})

	args := aText()
	refused(t, testkit.Get(s.RunWorkflow(ctx, me, args)).Err(), session.ToolError, "bad_inputs", "topic", "What about")
	args.Inputs = board.Inputs{"topic": {Paths: []string{"cats"}}}
	made := testkit.Get(s.RunWorkflow(ctx, me, args)).Must(t)
	s.reaches(made.RunID, task.Failed)
	s.resumes(made.RunID, "")
	s.reaches(made.RunID, task.Failed)
	s.reaches(s.begin(&board.Task{TaskID: made.TaskID}).AttemptID, task.Failed)
	for _, which := range []string{"the first leader", "that of the resumed run", "that of another run"} {
		testkit.Equal(t, <-given, `{"topic":"cats"}`, "%s has the inputs", which)
	}

	// A task that a server leads starts only with what its workflow needs.
	project, _ := s.rootProject()
	v := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{
		ProjectID:    project,
		Title:        "T",
		JobName:      new("texts"),
		WorkflowName: new("write"),
		Lead:         new(task.ServerLeads),
	})).Must(t)
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, s.starting(v))).Err(), session.ToolError, "bad_inputs", "topic",
		"update_task")
}
