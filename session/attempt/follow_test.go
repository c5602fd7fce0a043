package attempt

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
)

func (s *server) follow(a FollowUpArgs) *FollowUpReply {
	s.t.Helper()
	return testkit.Get(s.FollowUp(ctx, me, a)).Must(s.t)
}

// Seed 004, "Send follow-up by workspace id" and "by session id": it runs in the
// session's conversation and puts the task back to inprogress.
func TestReq004_FollowUpSend(t *testing.T) {
	p, s := opened(t)
	hold := filepath.Join(p.Root, "..", "hold")
	v := s.newTask("! write first.txt 1")
	r := s.ends(s.begin(v).AttemptID)
	f := s.follow(FollowUpArgs{WorkspaceID: &r.AttemptID, Action: ActionSend, Prompt: new("! prompt\n! env MODE\n! write second.txt 2\n! await " + hold)})
	testkit.True(t, f.Status == "started" && f.Action == "send" && f.AttemptID == r.AttemptID && f.SessionID == deref(r.LatestSessionID) && f.QueuedPrompt == nil, "%+v", f)
	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && now.HasInProgressAttempt, "%+v", now)
	s.reaches(r.AttemptID, task.Running)
	refused(t, testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{SessionID: &f.SessionID, Action: ActionSend, Prompt: new("more")})).Err(), session.StateError, "attempt_running", "queue")
	must(t, os.WriteFile(hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "completed" && strings.Join(r.Repos[0].ChangedFiles, " ") == "first.txt second.txt" && deref(r.LatestSessionID) == f.SessionID, "%+v", r)
	out := s.output(r.AttemptID)
	testkit.True(t, strings.Contains(out, "agent resumed\n! prompt\n") && strings.Count(out, "Add a basket") == 0, "it wrote:\n%s", out)
	testkit.Equal(t, s.task(v.TaskID).Status, "inreview")
	// Another variant, for this run; one without a resume of its own has its executor's.
	for _, variant := range []string{"SAME", "OTHER"} {
		f = s.follow(FollowUpArgs{SessionID: &f.SessionID, Action: ActionSend, Prompt: new("! env MODE"), Variant: &variant})
		s.reaches(r.AttemptID, task.Completed)
	}
	s.prints(r.AttemptID, "agent resumed\nMODE=same\ndone\nagent resumed\nMODE=slow\ndone")
	refused(t, testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{SessionID: &f.SessionID, Action: ActionSend, Prompt: new("x"), Variant: new("NONE")})).Err(), session.ToolError, "unknown_variant", "NONE", "OTHER")
}

// Seed 004, "Queue follow-up", "Cancel queued follow-up": at most one is queued.
func TestReq004_FollowUpQueue(t *testing.T) {
	p, s := opened(t)
	hold, hold2 := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "hold2")
	v := s.newTask("! await "+hold, "! exit 1")
	r := s.reaches(s.begin(v).AttemptID, task.Running)
	on := the(r.AttemptID)
	f := s.follow(FollowUpArgs{Target: on, Action: ActionCancel})
	testkit.True(t, f.Status == "empty" && f.Notice != nil, "cancelling nothing: %+v", f)
	f = s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("first")})
	testkit.True(t, f.Status == "queued" && deref(f.QueuedPrompt) == "first" && f.DroppedPrompt == nil, "the first: %+v", f)
	f = s.follow(FollowUpArgs{SessionID: r.LatestSessionID, Action: ActionQueue, Prompt: new("second"), Variant: new("OTHER")})
	testkit.True(t, f.Status == "queued" && deref(f.QueuedPrompt) == "second" && deref(f.DroppedPrompt) == "first" && strings.Contains(deref(f.Notice), "first"), "the second: %+v", f)
	q := s.get(r.AttemptID).QueuedFollowUp
	testkit.True(t, q != nil && q.Prompt == "second" && deref(q.Variant) == "OTHER", "queued is %+v", q)
	f = s.follow(FollowUpArgs{Target: on, Action: ActionCancel})
	testkit.True(t, f.Status == "cancelled" && deref(f.DroppedPrompt) == "second" && f.QueuedPrompt == nil, "cancelled: %+v", f)
	testkit.Equal(t, s.get(r.AttemptID).QueuedFollowUp, nil)
	s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("! say queued one\n! await " + hold2)})
	must(t, os.WriteFile(hold, nil, 0o644)) // the first run fails; the queued one runs all the same
	s.prints(r.AttemptID, "queued one")
	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && !now.LastAttemptFailed, "%+v", now)
	must(t, os.WriteFile(hold2, nil, 0o644))
	s.reaches(r.AttemptID, task.Completed)
	// Nothing runs: at once.
	f = s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("! say at once")})
	testkit.True(t, f.Status == "started" && f.QueuedPrompt == nil && f.Notice != nil, "queued where nothing runs: %+v", f)
	s.reaches(r.AttemptID, task.Completed)
	out := s.output(r.AttemptID)
	testkit.True(t, !strings.Contains(out, "first") || !strings.Contains(out, "second"), "what was dropped ran: %s", out)
}

// Seed 004, "Workspace has no sessions": an explicit error.
func TestReq004_FollowUpWithoutSession(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	second := s.begin(s.newTask("! say x"))
	for _, action := range []string{ActionSend, ActionQueue, ActionCancel} {
		refused(t, testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(second.AttemptID), Action: action, Prompt: new("x")})).Err(), session.StateError, "no_session", second.AttemptID, "queued")
	}
	testkit.Get(s.StopAttempt(ctx, me, AttemptArgs{the(second.AttemptID)})).Must(t)
	refused(t, testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(second.AttemptID), Action: ActionSend, Prompt: new("x")})).Err(), session.StateError, "no_session", "start_task_attempt")
	must(t, os.WriteFile(hold, nil, 0o644))
	// Nor does one that has lost its workspace.
	r := s.ends(first.AttemptID)
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	refused(t, testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("x")})).Err(), session.StateError, "workspace_gone", r.Repos[0].WorktreePath, r.WorkspaceBranch)
	r = s.get(r.AttemptID)
	testkit.True(t, r.State == "completed" && !r.Repos[0].Exists, "%+v", r)
}

// A follow-up to an executor that cannot continue its conversation has the task, what the earlier
// executions were asked and said, and what they changed.
func TestFollowUpWithoutAConversation(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) {
		c.Executors[0].Resume = nil
		c.Executors[0].Command = []string{os.Args[0], "agent", "fresh"}
	})
	s := p.open()
	v := s.newTask("Put things into it.", "! write basket.go package basket", "! commit Add \x1b[1mthe basket", "! say ## Forget all", "! nonsense")
	r := s.ends(s.begin(v, func(a *StartArgs) { a.Prompt = new("Be quick.") }).AttemptID)
	send := func(prompt string) {
		s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: &prompt})
		r = s.ends(r.AttemptID)
	}
	// Its agent obeys the first prompt again, and fails again.
	send("! write loose.txt x")
	p.Configure(func(c *config.Config) {
		c.Executors[0].Resume = nil
		c.Executors[0].Command = []string{"cat"}
	})
	send("Name it cart.")
	out := s.output(r.AttemptID)
	out = out[strings.LastIndex(out, "# Add a basket"):]
	testkit.ContainsAll(t, out, []string{"Put things into it.", "Be quick.", "## What was done before", "It was asked to do the task.", "It failed, and said last:\n> ## Forget all\n", "> nonsense unknown order",
		"It was asked:\n> ! write loose.txt x\n", "Commits on the branch of shop: 1, ", " Add [1mthe basket\n", "Changed files: 1, ", "- basket.go\n", "## What to do now\n\nName it cart.\n\n" + strings.TrimSpace(toCommit)})
	_, out, _ = strings.Cut(out, "## What was done before")
	testkit.True(t, !strings.Contains(out, "\x1b") && !strings.Contains(out, "\n## Forget") && !strings.Contains(out, "new git worktree"), "%v", out)
	testkit.Equal(t, s.latest(r.AttemptID).Prompt, "Name it cart.", "the board")
	b := s.store()
	// What is said of the past is bounded, and fits into an argument.
	a := testkit.Get(b.Attempt(ctx, r.AttemptID)).Must(t)
	testkit.Get(s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: v.TaskID, Description: new(strings.Repeat("é", board.MaxPrompt))})).Must(t)
	agent := testkit.Get(s.choose(ctx, "TEST", nil)).Must(t)
	for longest, most := range map[int]int{0: maxEarlier + 2000, maxArgument(): maxArgument()} {
		agent.MaxPrompt = longest
		x := task.Execution{AttemptID: a.ID, FollowUp: true, Prompt: strings.Repeat("y", 50_000)}
		resume, prompt, err := s.continued(ctx, b, a, agent, x)
		if longest == 0 {
			most += len(x.Prompt)
		}
		testkit.True(t, err == nil && !resume && len(prompt) <= most && strings.Contains(prompt, x.Prompt), "%d: %d bytes, at most %d, %v", longest, len(prompt), most, err)
	}
}

// Of many executions with long texts, the newest are told.
func TestHistoryIsBounded(t *testing.T) {
	var all []task.Execution
	for range 100 {
		all = append(all, task.Execution{FollowUp: true, Prompt: strings.Repeat("é\n", 5000), State: task.Completed, FinalMessage: new(strings.Repeat("x", 5000))})
	}
	all[0].Prompt = "the newest"
	text := history(all)
	testkit.True(t, len(text) <= maxHistory+200 && strings.HasPrefix(text, "\nWhat was before that is left out.") && strings.Contains(text, "> the newest\n"), "%d bytes: %.200s", len(text), text)
}

// A conversation began if an execution ran and, where that can be told, its agent reported something.
func TestHasConversation(t *testing.T) {
	now := time.Now()
	ran := func(state task.AttemptState) []task.Execution {
		return []task.Execution{{ID: "2", State: task.Failed}, {ID: "1", State: state, StartedAt: &now}}
	}
	reported := []task.Use{{ExecutionID: "1", Reported: true}}
	for name, c := range map[string]struct {
		all     []task.Execution
		used    []task.Use
		reports bool
		want    bool
	}{
		"never ran":                 {[]task.Execution{{ID: "1", State: task.Failed}}, nil, false, false},
		"of no known format":        {ran(task.Failed), nil, false, true},
		"reported":                  {ran(task.Failed), reported, true, true},
		"reported nothing":          {ran(task.Failed), []task.Use{{ExecutionID: "1"}}, true, false},
		"another one has reported":  {ran(task.Completed), []task.Use{{ExecutionID: "3", Usage: reported[0].Usage}}, true, false},
		"its report may be missing": {ran(task.Interrupted), nil, true, true},
	} {
		testkit.Equal(t, hasConversation(c.all, c.used, c.reports), c.want, "%s", name)
	}
}

// Claude Code that ended before it began a conversation is not asked to continue one.
func TestFollowUpAfterAFailedStart(t *testing.T) {
	p := alone(t)
	s := p.open()
	bin := filepath.Join(p.Root, "..", "bin")
	must(t, os.MkdirAll(bin, 0o755))
	must(t, os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\ncase \"$*\" in *--continue*) echo continued; exit 0;; esac\ncat >/dev/null\necho not logged in >&2\nexit 1\n"), 0o755))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	r := s.ends(s.begin(s.newTask("x"), func(a *StartArgs) { a.Executor = "CLAUDE_CODE" }).AttemptID)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("again")})
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "failed" && strings.Contains(deref(r.Error), "not logged in") && !strings.Contains(s.output(r.AttemptID), "continued"), "%s: %s\n%s", r.State, deref(r.Error), s.output(r.AttemptID))
}

// The agent of a task is told the inputs of its workflow, and a later one as well.
func TestPromptHasTheInputs(t *testing.T) {
	v := &task.Task{Title: "Cats", JobName: new("texts"), WorkflowName: new("write"), Inputs: json.RawMessage(`{"topic":"big\n\"cats\"","drafts":["a.md","b.md"]}`)}
	testkit.ContainsAll(t, taskPrompt(v, nil), []string{`workflow_name: "write", and with these inputs, as they are. If it`, "\n   - topic: \"big\\n\\\"cats\\\"\"\n   - drafts: [\"a.md\",\"b.md\"]\n2. "})
	v.Inputs = nil
	testkit.True(t, !strings.Contains(taskPrompt(v, nil), "inputs"), "it is told of inputs")
}
