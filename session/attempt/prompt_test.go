package attempt

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/board"
)

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
	for _, want := range []string{"Put things into it.", "Be quick.", "## What was done before", "It was asked to do the task.", "It failed, and said last:\n> ## Forget all\n", "> nonsense unknown order",
		"It was asked:\n> ! write loose.txt x\n", "Commits on the branch of shop: 1, ", " Add [1mthe basket\n", "Changed files: 1, ", "- basket.go\n", "## What to do now\n\nName it cart.\n\n" + strings.TrimSpace(toCommit)} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	_, out, _ = strings.Cut(out, "## What was done before")
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\n## Forget") || strings.Contains(out, "new git worktree") {
		t.Error(out)
	}
	b, err := s.Store(ctx)
	must(t, err)
	if x, err := b.LatestExecution(ctx, r.AttemptID); err != nil || x.Prompt != "Name it cart." {
		t.Errorf("the board has %q, %v", x.Prompt, err)
	}
	// What is said of the past is bounded, and fits into an argument.
	a, err := b.Attempt(ctx, r.AttemptID)
	must(t, err)
	_, err = s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: v.TaskID, Description: new(strings.Repeat("é", board.MaxPrompt))})
	must(t, err)
	agent, err := s.choose(ctx, "TEST", nil)
	must(t, err)
	for longest, most := range map[int]int{0: maxEarlier + 2000, maxArgument(): maxArgument()} {
		agent.MaxPrompt = longest
		x := task.Execution{AttemptID: a.ID, FollowUp: true, Prompt: strings.Repeat("y", 50_000)}
		resume, prompt, err := s.continued(ctx, b, a, agent, x)
		if longest == 0 {
			most += len(x.Prompt)
		}
		if err != nil || resume || len(prompt) > most || !strings.Contains(prompt, x.Prompt) {
			t.Errorf("%d: %d bytes, at most %d, %v", longest, len(prompt), most, err)
		}
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
	if len(text) > maxHistory+200 || !strings.HasPrefix(text, "\nWhat was before that is left out.") || !strings.Contains(text, "> the newest\n") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
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
		if got := hasConversation(c.all, c.used, c.reports); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Claude Code that ended before it began a conversation is not asked to continue one.
func TestFollowUpAfterAFailedStart(t *testing.T) {
	p := newProject(t)
	s := p.open()
	bin := filepath.Join(p.Root, "..", "bin")
	must(t, os.MkdirAll(bin, 0o755))
	must(t, os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\ncase \"$*\" in *--continue*) echo continued; exit 0;; esac\ncat >/dev/null\necho not logged in >&2\nexit 1\n"), 0o755))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	r := s.ends(s.begin(s.newTask("x"), func(a *StartArgs) { a.Executor = "CLAUDE_CODE" }).AttemptID)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("again")})
	if r = s.ends(r.AttemptID); r.State != "failed" || !strings.Contains(deref(r.Error), "not logged in") || strings.Contains(s.output(r.AttemptID), "continued") {
		t.Errorf("%s: %s\n%s", r.State, deref(r.Error), s.output(r.AttemptID))
	}
}

// The agent of a task is told the inputs of its workflow, and a later one as well.
func TestPromptHasTheInputs(t *testing.T) {
	v := &task.Task{Title: "Cats", JobName: new("texts"), WorkflowName: new("write"), Inputs: json.RawMessage(`{"topic":"big\n\"cats\"","drafts":["a.md","b.md"]}`)}
	for _, want := range []string{`workflow_name: "write", and with these inputs, as they are. If it`, "\n   - topic: \"big\\n\\\"cats\\\"\"\n   - drafts: [\"a.md\",\"b.md\"]\n2. "} {
		if got := taskPrompt(v, nil); !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	v.Inputs = nil
	if got := taskPrompt(v, nil); strings.Contains(got, "inputs") {
		t.Error(got)
	}
}
