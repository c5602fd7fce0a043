package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// leads is a Leader that runs agents with these prompts one after the other, all for one step, and then
// ends. It gives each leader's advice to advised.
func leads(t *testing.T, end board.RunEnd, advised chan<- string, prompts ...string) Leader {
	return func(ctx context.Context, l *Lead) board.RunEnd {
		advised <- l.Advice
		agent := uuid.NewString()
		for _, prompt := range prompts {
			x := task.Execution{ID: uuid.NewString(), LogID: agent, WorkflowSessionID: "12345678", StepID: "write", Executor: l.Attempt.Executor}
			testkit.Works(t, testkit.Get(l.RunAgent(ctx, Agent{Execution: x, Prompt: prompt})).Err(), "running an agent")
			l.Note("step write: ended")
		}
		return end
	}
}

// texts are what messages of a kind say.
func texts(all []Message, kind string) (found []string) {
	for _, m := range all {
		if m.Kind == kind {
			found = append(found, m.Text)
		}
	}
	return found
}

func (s *server) tailOf(a TailArgs) *TailReply {
	s.t.Helper()
	a.AfterIndex = new(int64(-1))
	return testkit.Get(s.TailAttempt(ctx, me, a)).Must(s.t)
}

// startRun starts a run in a worktree, or in place.
func (s *server) startRun(inPlace bool) *board.RunReply {
	s.t.Helper()
	return testkit.Get(s.RunWorkflow(ctx, me, RunWorkflowArgs{JobName: "texts", WorkflowName: "write", Goal: "Write a text.", Executor: new("TEST"), InPlace: &inPlace})).Must(s.t)
}

// tail_attempt returns the output of one process of an agent, also if another one for the same step follows
// in its log; without execution_id, what the leader notes.
func TestTailOfARun(t *testing.T) {
	p := newProject(t)
	advised := make(chan string, 10)
	s := p.open(func(o *Options) {
		o.Leader = leads(t, board.RunEnd{State: board.Failed, Step: "write", Reason: "No agent finished it."}, advised, "! say one\n", "! say two\n")
	})
	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	run := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: made.RunID})).Must(t)
	testkit.Need(t, run.State == board.Failed && len(run.Steps) == 2, "%+v", run)
	for i, want := range []string{"one", "two"} {
		got := texts(s.tailOf(TailArgs{Target: the(made.RunID), ExecutionID: &run.Steps[i].ExecutionID}).Messages, "output")
		other := []string{"two", "one"}[i]
		testkit.True(t, slices.Contains(got, want) && !slices.Contains(got, other), "the agent %d said %q", i, got)
	}
	all := s.tailOf(TailArgs{Target: the(made.RunID)}).Messages
	notes := texts(all, "system")
	testkit.True(t, len(texts(all, "output")) == 0 && slices.Contains(notes, "step write: ended"), "the leader's notes are %q", notes)
	_, err := s.TailAttempt(ctx, me, TailArgs{Target: the(made.RunID), ExecutionID: new(uuid.NewString())})
	testkit.True(t, session.CodeOf(err) == "unknown_execution" && strings.Contains(err.Error(), "get_run"), "an unknown execution: %v", err)
	testkit.Equal(t, s.get(made.RunID).Lead, task.ServerLeads, "lead in get_attempt")
	kept := testkit.Get(s.GetTask(ctx, me, board.TaskArgs{TaskID: made.TaskID})).Must(t)
	testkit.Equal(t, kept.Lead, task.ServerLeads, "lead in get_task")
	testkit.Equal(t, s.newTask().Lead, task.AgentLeads, "lead in get_task")
}

// A follow-up lets a run go on, with the message as advice, unless it is complete.
func TestFollowUpOfARun(t *testing.T) {
	p := newProject(t)
	advised := make(chan string, 10)
	end := board.RunEnd{State: board.Failed, Step: "write", Reason: "No agent finished it."}
	s := p.open(func(o *Options) { o.Leader = leads(t, end, advised) })
	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	testkit.Equal(t, <-advised, "", "the first leader was advised")
	eve := session.Caller{Identity: "eve", Rights: session.RightAgents}
	refused(t, testkit.Get(s.GetRun(ctx, eve, board.RunArgs{RunID: made.RunID})).Err(), session.ToolError, "unknown_run")
	refused(t, testkit.Get(s.FollowUp(ctx, eve, FollowUpArgs{Target: the(made.RunID), Action: ActionSend, Prompt: new("mine")})).Err(), session.ToolError, "unknown_attempt")
	s.stop()
	end = board.RunEnd{State: board.Completed}
	s = p.open(func(o *Options) { o.Leader = leads(t, end, advised) })
	testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(made.RunID), Action: ActionSend, Prompt: new("use short words")})).Must(t)
	testkit.Equal(t, <-advised, "use short words", "the second leader was advised")
	s.reaches(made.RunID, task.Completed)
	for _, action := range []string{ActionSend, ActionQueue} {
		_, err := s.FollowUp(ctx, me, FollowUpArgs{Target: the(made.RunID), Action: action, Prompt: new("more")})
		testkit.Equal(t, session.CodeOf(err), "run_complete", "%s to a complete run: %v", action, err)
	}
}

// A run that was stopped before it began is not resumed, and its caller is told so.
func TestResumeOfARunThatNeverBegan(t *testing.T) {
	s := newProject(t).open(passive)
	made := s.startRun(false)
	testkit.Get(s.StopAttempt(ctx, me, AttemptArgs{Target: the(made.RunID)})).Must(t)
	_, err := s.ResumeRun(ctx, me, made.RunID, "", func(*board.Run) {})
	testkit.True(t, session.CodeOf(err) == "no_session", "resuming it: %v", err)
}

// A run that is stopped while it waits to go on is stopped, however it had ended before.
func TestARunIsStoppedBeforeItGoesOn(t *testing.T) {
	p, s := opened(t, func(o *Options) {
		o.Leader = func(context.Context, *Lead) board.RunEnd {
			return board.RunEnd{State: board.Failed, Step: "write", Reason: "No agent finished it."}
		}
	})
	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	s.stop()
	s = p.open(passive)
	testkit.Get(s.ResumeRun(ctx, me, made.RunID, "", func(*board.Run) {})).Must(t)
	testkit.Equal(t, s.stopAttempt(made.RunID).State, board.Stopped)
	r := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: made.RunID})).Must(t)
	testkit.Equal(t, deref(r.Reason), board.StoppedByPerson)
}

// A run whose workspace could not be made, or that was interrupted while it was made, goes on when it is resumed:
// its workspace is made then.
func TestResumeOfARunWithoutAWorkspace(t *testing.T) {
	p := newProject(t)
	up := filepath.Join(p.Root, "..", "up")
	setups := []struct {
		state board.State
		setup string
	}{{board.Failed, "! say no compiler here\n! exit 4"}, {board.Interrupted, "! touch " + up + "\n! sleep 1h"}, {board.Stopped, "! touch " + up + "\n! sleep 1h"}}
	advised := make(chan string, 10)
	s := p.open(func(o *Options) {
		o.Leader = leads(t, board.RunEnd{State: board.Completed}, advised, "! write new.txt text\n")
	})
	var made *board.RunReply
	for i, c := range setups {
		must(t, os.RemoveAll(up))
		p.Configure(func(cfg *config.Config) { cfg.Attempts.Setup = []string{os.Args[0], "agent", "setup", c.setup} })
		if i == 0 {
			made = s.startRun(false)
		} else {
			testkit.Get(s.ResumeRun(ctx, me, made.RunID, "", func(*board.Run) {})).Must(t)
			appears(t, up)
			if c.state == board.Interrupted {
				testkit.True(t, s.Interrupt(made.RunID), "it is not led here")
			} else {
				s.stopAttempt(made.RunID)
			}
		}
		s.ends(made.RunID)
		run := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: made.RunID})).Must(t)
		testkit.True(t, run.State == c.state && run.Reason != nil && (i != 0 || strings.Contains(*run.Reason, "no compiler here")), "after %q it is %s: %s", c.setup, run.State, deref(run.Reason))
		testkit.True(t, len(advised) == 0 && (run.Workspace == "" || !Exists(run.Workspace)), "after %q it has a leader or a workspace", c.setup)
	}
	p.Configure(func(*config.Config) {})
	testkit.Get(s.ResumeRun(ctx, me, made.RunID, "use short words", func(*board.Run) {})).Must(t)
	s.reaches(made.RunID, task.Completed)
	run := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: made.RunID})).Must(t)
	got := <-advised
	testkit.True(t, got == "use short words" && Exists(filepath.Join(run.Workspace, "new.txt")), "it was advised %q, and worked in %s", got, run.Workspace)
	p.finds()
}

// A leader that panics stops its run, whose agents end, and which can be resumed.
func TestLeaderPanics(t *testing.T) {
	p := newProject(t)
	up := filepath.Join(p.Root, "..", "up")
	var led atomic.Int32
	s := p.open(func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			if led.Add(1) > 1 {
				return board.RunEnd{State: board.Completed}
			}
			x := task.Execution{ID: uuid.NewString(), LogID: uuid.NewString(), WorkflowSessionID: "12345678", StepID: "write", Executor: l.Attempt.Executor}
			var agents sync.WaitGroup
			defer agents.Wait()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			agents.Go(func() { _, _ = l.RunAgent(ctx, Agent{Execution: x, Prompt: "! touch " + up + "\n! sleep 1h"}) })
			appears(t, up)
			panic("no idea")
		}
	})
	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	run := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: made.RunID})).Must(t)
	testkit.True(t, run.State == board.Failed && run.Reason != nil && strings.Contains(*run.Reason, "no idea") && len(run.Steps) == 1 && run.Steps[0].State == board.Stopped, "%+v: %s", run, deref(run.Reason))
	testkit.Get(s.ResumeRun(ctx, me, made.RunID, "", func(*board.Run) {})).Must(t)
	s.reaches(made.RunID, task.Completed)
}

// A pendingStore returns ErrPending once for an agent that it has added, or given a slot, after it was to wait.
type pendingStore struct {
	store.Database
	add, claim atomic.Bool
}

type pendingBoard struct {
	store.Board
	of *pendingStore
}

func (s *pendingStore) Board() store.Board { return pendingBoard{s.Database.Board(), s} }

func (b pendingBoard) AddStep(ctx context.Context, x task.Execution, most int, c *task.Claim, l task.Limits) (bool, error) {
	if b.of.claim.Load() {
		most = 0
	}
	claimed, err := b.Board.AddStep(ctx, x, most, c, l)
	if err == nil && b.of.add.Swap(false) {
		return false, fmt.Errorf("adding: %w", store.ErrPending)
	}
	return claimed, err
}

func (b pendingBoard) ClaimStep(ctx context.Context, attempt, id string, most int, c *task.Claim, l task.Limits) (bool, error) {
	claimed, err := b.Board.ClaimStep(ctx, attempt, id, most, c, l)
	if claimed && b.of.claim.Swap(false) {
		return false, fmt.Errorf("claiming: %w", store.ErrPending)
	}
	return claimed, err
}

// An agent that has a slot although that could not be learned is ended, so that the slot is free for the next one.
func TestAnAgentThatMayHaveASlotFreesIt(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	pending := &pendingStore{}
	pending.add.Store(true)
	pending.claim.Store(true)
	s := p.open(func(o *Options) {
		o.Stores = p.StoresWith(func(d store.Database) store.Database {
			pending.Database = d
			return pending
		})
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			for i := range 3 {
				x := task.Execution{ID: uuid.NewString(), LogID: uuid.NewString(), WorkflowSessionID: "12345678", StepID: "write", Executor: l.Attempt.Executor}
				_, err := l.RunAgent(ctx, Agent{Execution: x, Prompt: "! say hello"})
				testkit.True(t, (i == 0) == (err != nil) && (i != 0 || board.Passing(err)), "agent %d: %v", i, err)
			}
			return board.RunEnd{State: board.Completed}
		}
	})
	made := s.startRun(false)
	s.reaches(made.RunID, task.Completed)
	r := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: made.RunID})).Must(t)
	var states []string
	for _, x := range r.Steps {
		states = append(states, string(x.State))
	}
	testkit.Equal(t, strings.Join(states, " "), "stopped stopped completed", "the agents")
}

// A run is made once, with its task, by a call that is repeated while it is in progress: what such a call left would be
// started by attempts.auto_start.
func TestARunIsMadeWithItsTask(t *testing.T) {
	s := newProject(t).open(passive)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			_, err := s.RunWorkflow(ctx, me, RunWorkflowArgs{JobName: "texts", WorkflowName: "write", Goal: "Write a text.", Executor: new("TEST"), RequestID: new("once")})
			testkit.Works(t, err)
		})
	}
	calls.Wait()
	project, _ := s.rootProject()
	runs := testkit.Get(s.Runs(ctx, me)).Must(t)
	tasks := testkit.Get(s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t)
	testkit.Equal(t, fmt.Sprint(len(runs), " ", tasks.Total), "1 1", "runs and tasks")
}

// A run never works in a repository's own folder for want of a branch: only if it was told to.
func TestARunWithoutABranch(t *testing.T) {
	p, s := opened(t, passive)
	testkit.Git(t, p.Root, "checkout", "--quiet", "--detach")
	args := RunWorkflowArgs{JobName: "texts", WorkflowName: "write", Goal: "Write a text.", Executor: new("TEST")}
	err := testkit.Get(s.RunWorkflow(ctx, me, args)).Err()
	if s.Shared != nil {
		refused(t, err, session.StateError, codes.NoBranch, "check one out")
		return
	}
	refused(t, err, session.ToolError, codes.NoRepos, "in_place: true")
	args.InPlace = new(true)
	testkit.Equal(t, testkit.Get(s.RunWorkflow(ctx, me, args)).Must(t).Workspace, p.Root, "told to, it works in")
	must(t, os.Remove(filepath.Join(p.Root, ".git", "HEAD")))
	args.InPlace = nil
	refused(t, testkit.Get(s.RunWorkflow(ctx, me, args)).Err(), session.ToolError, codes.NoRepos, "cannot be used: reading the current branch", "in_place: true")
}

// A run whose workflow was aborted cannot go on, and nobody is told to resume it.
func TestARunWhoseWorkflowWasAborted(t *testing.T) {
	s := newProject(t).open(func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			err := l.Progress(ctx, task.WorkflowProgress{SessionID: "12345678", Status: board.WorkflowAborted, Step: "write"})
			return board.RunEnd{State: board.Failed, Step: "write", Reason: fmt.Sprint("The workflow was aborted: ", err)}
		}
	})
	made := s.startRun(false)
	s.reaches(made.RunID, task.Failed)
	refused(t, testkit.Get(s.ResumeRun(ctx, me, made.RunID, "", func(*board.Run) {})).Err(), session.StateError, codes.NoSession, "was aborted")
	items := testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items
	testkit.True(t, len(items) == 1 && items[0].Kind == board.AttentionFailed && strings.HasPrefix(items[0].Command, "deepwork board start "), "needs attention: %+v", items)
}

// The owner of the workflow must be named if a server is to lead.
func TestLeadOfATaskIsChecked(t *testing.T) {
	s := newProject(t).open(passive)
	project, _ := s.rootProject()
	for lead, code := range map[string]string{"server": "missing_argument", "me": "invalid_argument", "agent": ""} {
		_, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "x", Lead: &lead})
		testkit.Equal(t, session.CodeOf(err), code, "lead %s: %v", lead, err)
	}
}

// takingInputs sets a workflow that takes inputs.
func takingInputs(o *Options) {
	o.CheckWorkflow = func(_ context.Context, _, workflow string) (*job.Workflow, error) {
		return &job.Workflow{Name: workflow, Inputs: []job.Parameter{
			{Name: "topic", Description: "What about", Required: true, Type: job.Text},
			{Name: "tone", Description: "How", Required: true, Default: new("plain"), Type: job.Text},
		}}, nil
	}
}

// A run has the inputs of its workflow from its first leader to its last, and so do the runs of its task.
func TestInputsOfARun(t *testing.T) {
	p := newProject(t)
	given := make(chan string, 10)
	s := p.open(takingInputs, func(o *Options) {
		o.Leader = func(_ context.Context, l *Lead) board.RunEnd {
			data, _ := json.Marshal(l.Run.Inputs)
			given <- string(data)
			return board.RunEnd{State: board.Failed, Step: "write", Reason: "No agent finished it."}
		}
	})
	args := RunWorkflowArgs{JobName: "texts", WorkflowName: "write", Goal: "Write a text.", Executor: new("TEST")}
	refused(t, testkit.Get(s.RunWorkflow(ctx, me, args)).Err(), session.ToolError, "bad_inputs", "topic", "What about")
	args.Inputs = board.Inputs{"topic": {Paths: []string{"cats"}}}
	made := testkit.Get(s.RunWorkflow(ctx, me, args)).Must(t)
	s.reaches(made.RunID, task.Failed)
	must(t, testkit.Get(s.ResumeRun(ctx, me, made.RunID, "", func(*board.Run) {})).Err())
	s.reaches(made.RunID, task.Failed)
	again := s.begin(&board.Task{TaskID: made.TaskID})
	s.reaches(again.AttemptID, task.Failed)
	for _, which := range []string{"the first leader", "that of the resumed run", "that of another run"} {
		testkit.Equal(t, <-given, `{"topic":"cats"}`, "%s has the inputs", which)
	}

	// A task that a server leads starts only with what its workflow needs.
	project, repo := s.rootProject()
	v := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "T", JobName: new("texts"), WorkflowName: new("write"), Lead: new(task.ServerLeads)})).Must(t)
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}})).Err(), session.ToolError, "bad_inputs", "topic", "update_task")
}
