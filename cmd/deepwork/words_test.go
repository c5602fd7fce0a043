package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/catalog/trust"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/run"
	"deepwork/session/show"
)

// The commands that an attempt offers are those that go on with it as it is.
func TestWhatIsNext(t *testing.T) {
	const send, diff, commit, merge, done, start = "board send 01234567", "board diff 01234567",
		"board merge --commit 01234567", "board merge 01234567", "board done 89abcdef",
		"board start 89abcdef --executor CODER"
	conversation := new("c")
	for _, c := range []struct {
		r    attempt.AttemptReply
		run  *board.RunReply
		want []string
	}{
		{attempt.AttemptReply{Open: true, State: board.Running}, nil, nil},
		{attempt.AttemptReply{State: board.Merged}, nil, nil},
		{attempt.AttemptReply{Open: true, State: board.Interrupted}, nil, []string{start}},
		{attempt.AttemptReply{State: board.Failed}, nil, []string{start}},
		{attempt.AttemptReply{State: board.Failed, Variant: new("fast")}, nil, []string{start + ":fast"}},
		{attempt.AttemptReply{State: board.Failed, LatestSessionID: conversation}, nil, []string{send, start}},
		{attempt.AttemptReply{State: board.Failed, LatestSessionID: conversation, Lead: task.ServerLeads}, nil,
			[]string{start}},
		{attempt.AttemptReply{State: board.Failed}, &board.RunReply{}, []string{start}},
		{attempt.AttemptReply{State: board.Failed}, &board.RunReply{Began: true},
			[]string{"run resume 01234567 (to continue it)"}},
		{attempt.AttemptReply{State: board.Completed}, nil, []string{done}},
		{attempt.AttemptReply{State: board.Completed, LatestSessionID: conversation}, nil, []string{done, send}},
		{attempt.AttemptReply{State: board.Completed, Repos: []attempt.AttemptRepo{{Ahead: 1, ChangedCount: 2}}}, nil,
			[]string{diff, merge}},
		{attempt.AttemptReply{State: board.Completed, Repos: []attempt.AttemptRepo{{}, {Ahead: 1, Loose: 1}}}, nil,
			[]string{commit}},
		{attempt.AttemptReply{State: board.Conflicted, Repos: []attempt.AttemptRepo{{Ahead: 1}}}, nil, []string{merge}},
		{attempt.AttemptReply{
			State:           board.Completed,
			LatestSessionID: conversation,
			Repos:           []attempt.AttemptRepo{{Gone: true}},
		}, nil, []string{merge, start}},
		{attempt.AttemptReply{State: board.Conflicted, Repos: []attempt.AttemptRepo{{Ahead: 1, Merging: true}}}, nil,
			[]string{"board merge --abort 01234567 (to undo the merge)"}},
		{attempt.AttemptReply{
			State:           board.Completed,
			LatestSessionID: conversation,
			Repos:           []attempt.AttemptRepo{{Merging: true}},
		}, nil, []string{send + ` "Resolve the conflicts`, "board merge --abort 01234567"}},
	} {
		c.r.AttemptID = "01234567-89ab-cdef-0123-456789abcdef"
		c.r.TaskID = "89abcdef-89ab-cdef-0123-456789abcdef"
		c.r.Executor = "CODER"
		if c.r.Lead == "" {
			c.r.Lead = task.AgentLeads
		}
		lines := strings.FieldsFunc((&app{}).next(&c.r, c.run), func(r rune) bool { return r == '\n' })
		testkit.Equal(t, len(lines), len(c.want), "%+v: %q", c.r, lines)
		for i, line := range lines[:min(len(lines), len(c.want))] {
			testkit.True(t, strings.HasPrefix(line, "deepwork "+c.want[i]), "%q, want %q", line, c.want[i])
		}
	}
}

// The changes of an attempt on another machine are counted, too.
func TestDiffStatWithoutTheWorktree(t *testing.T) {
	const text = "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
	testkit.Contains(t, testkit.Get(diffStat(t.Context(), filepath.Join(t.TempDir(), "gone"), text)).Must(t),
		"1 file changed")
}

// Commands that a command with --path prints are about the same project.
func TestCommandsKeepThePath(t *testing.T) {
	a := &app{path: "my shop"}
	const text = "run 'deepwork board done 3f2a'%[1]s or `deepwork sessions import --all`%[1]s; see 'deepwork run " +
		"--help', 'deepwork help config'. Waits: deepwork sessions review 1a2b3c4d 'x[1]'%[1]s"
	with := strings.NewReplacer("a'%[1]s", "a --path 'my shop''", "l`%[1]s", "l --path 'my shop'`", "%[1]s",
		" --path 'my shop'").Replace(text)
	testkit.Equal(t, a.here(strings.ReplaceAll(text, "%[1]s", "")), with)
	testkit.Equal(t, a.here(with), with, "again")

	r := attempt.AttemptReply{AttemptID: "01234567", TaskID: "89abcdef", State: board.Completed}
	testkit.Equal(t, a.next(&r, nil), "deepwork board done 89abcdef --path 'my shop' (to set its task done)")
	testkit.Equal(t, (&app{path: "..", found: true, store: "postgres://me@db/shop"}).next(&r, nil),
		"deepwork board done 89abcdef --store postgres://me@db/shop (to set its task done)")
}

// What is printed of tasks, attempts, runs and what was approved is in a golden file.
func TestWhatIsPrinted(t *testing.T) {
	var out strings.Builder
	plain := show.NewScreen(&out, func(string) string { return "" })
	a := &app{out: plain, err: plain, rawOut: &out}
	const id, other = "01234567-89ab-cdef-0123-456789abcdef", "89abcdef-89ab-cdef-0123-456789abcdef"
	say := func(what string, f func()) {
		fmt.Fprintf(&out, "## %s\n", what)
		f()
	}
	for _, task := range []board.Task{
		{TaskID: id, Title: "Fix it", Status: "todo", Priority: "normal", ProjectID: other},
		{
			TaskID:       id,
			Title:        "Fix it",
			Status:       "todo",
			Priority:     "high",
			Labels:       []string{"a", "b"},
			Description:  new("One\nTwo"),
			JobName:      new("j"),
			WorkflowName: new("w"),
			DependsOn:    []string{id, other},
			BlockedBy:    []string{other},
			ProjectID:    other,
		},
		{TaskID: id, Title: "Fix it", JobName: new("j")},
	} {
		say("a task", func() { a.printTask(&task) })
	}

	repos := []attempt.AttemptRepo{{
		RepoName:     "shop",
		Exists:       true,
		WorktreePath: "/w/shop",
		Ahead:        1,
		Behind:       2,
		TargetBranch: "main",
		ChangedCount: 1,
		Conflicts:    []string{"a", "b"},
	}, {RepoName: "gone", Gone: true}}
	for _, r := range []attempt.AttemptReply{
		{
			AttemptID:       id,
			State:           board.Failed,
			ExitCode:        new(1),
			Executor:        "CODER",
			Variant:         new("fast"),
			WorkspaceBranch: "b",
		},
		{
			AttemptID: id,
			State:     board.Failed,
			ExitCode:  new(-1),
			Executor:  "CODER",
			Error:     new("It broke."),
			Why:       "It broke.",
		},
		{
			AttemptID:       id,
			State:           board.Completed,
			ExitCode:        new(0),
			WorkflowStatus:  new("active"),
			WorkflowStep:    new("s"),
			WorkflowSession: new("0a1b2c3d"),
			QueuedFollowUp:  &attempt.QueuedFollowUp{Prompt: "Go on"},
			FinalMessage:    new("Done"),
			PushError:       new("No remote"),
			Notice:          new("Look at it."),
			Repos:           repos,
			Cost: &board.Cost{
				USD:        new(1.5),
				Executions: 3,
				Unknown:    2,
				Input:      new(int64(1)),
				Cached:     new(int64(2)),
				Output:     new(int64(3)),
				Turns:      new(int64(1)),
			},
		},
		{AttemptID: id, State: board.Completed, Cost: &board.Cost{Executions: 1, Unknown: 1}},
		{AttemptID: id, State: board.Completed, Cost: &board.Cost{Executions: 1}},
	} {
		say("an attempt", func() { a.printAttempt(&r) })
	}
	say("no rescued work", func() { a.printRescued(nil) })
	say("rescued work", func() { a.printRescued([]attempt.Rescue{{Ref: "refs/x", RepoPath: "/r", Worktree: "/w"}}) })

	until := time.Date(2026, 1, 2, 3, 4, 0, 0, time.Local)
	agent := board.RunStep{Executor: "CODER"}
	say("steps of a run", func() {
		a.printSteps(&run.View{Tree: run.Tree{Entries: [][]*run.Step{
			{{
				ID:     "one",
				State:  board.Completed,
				Agents: []board.RunStep{agent},
				Took:   90*time.Second + 400*time.Millisecond,
				USD:    new(0.126),
				Last:   "First\nLast ",
			},
				{
					ID:     "two",
					State:  board.Running,
					Agents: []board.RunStep{agent, agent},
					Nested: []run.Tree{{Entries: [][]*run.Step{{{ID: "inner", State: board.Queued}}}}},
				}},
			{{ID: "three", State: board.WaitingForYou, SessionID: "0a1b2c3d", Last: "Look"},
				{ID: "four", State: board.WaitingForLimit, Until: &until, Last: "Look"}},
		}}}, "")
	})
	say("a run without steps", func() { a.printSteps(&run.View{}, "") })
	for _, e := range []runEvent{
		{Event: "step_started", StepID: new("one"), Executor: "CODER"},
		{
			Event:    "step_ended",
			StepID:   new("one"),
			Executor: "CODER",
			State:    board.Completed,
			Seconds:  new(61.27),
			CostUSD:  new(0.5),
		},
		{Event: "step_ended", StepID: new("one"), Executor: "CODER", State: board.Completed, unfinished: true},
		{
			Event:    "step_ended",
			StepID:   new("one"),
			Executor: "CODER",
			State:    board.Failed,
			Reason:   new("It broke\nbadly"),
		},
		{Event: "run_waiting", Reason: new("It waits.")},
		{Event: "run_waiting"},
	} {
		say("an event", func() { newRunLines(a).event(e) })
	}

	at := time.Date(2026, 1, 2, 3, 4, 0, 0, time.Local)
	entry := func(key, value string, files map[string]string) trust.Entry {
		return trust.Entry{Key: key, Value: json.RawMessage(value), Files: files}
	}
	was := trust.Set{entry("executors.GONE", `{"command":["x"]}`, nil),
		entry("executors.KEPT", `{"command":["k"]}`, nil), entry("executors.EDITED", `{"command":["a"]}`, nil),
		entry("executors.FILE", `{"command":["./f.sh"]}`, map[string]string{"f.sh": "1"})}
	is := trust.Set{entry("executors.KEPT", `{"command":["k"]}`, nil),
		entry("executors.EDITED", `{"command":["b"]}`, nil),
		entry("executors.FILE", `{"command":["./f.sh"]}`, map[string]string{"f.sh": "2"}),
		entry("executors.NEW", `{"command":["n"]}`, nil)}
	record := &trust.Record{
		Grants: []trust.Grant{{At: at, Set: trust.Set{}}, {At: at, Set: was}},
		Checks: trust.Set{entry("checks.j.s.c", `["make"]`, nil)},
	}
	say("a set", func() { a.showSet("/p", "/p/config.yml", is, map[string]int{"executors.KEPT": 7}) })
	say("its summary", func() {
		fmt.Fprintln(&out, summaryOf(is, nil))
		fmt.Fprintln(&out, summaryOf(is, record.Grants))
	})
	say("its changes", func() { a.showChanges(record, is, trust.Set{entry("checks.j.s.d", `["lint"]`, nil)}) })
	for _, r := range []*trust.Record{record, {Denied: true}, {}} {
		say("what was approved", func() { a.listGrants("/p", r) })
	}
	testkit.Golden(t, "testdata/words.txt", out.String(), *update)
}

// Why a run waits is printed each time it begins to wait, and not each time it is looked at.
func TestRunWaitsTwiceForTheSame(t *testing.T) {
	for _, json := range []bool{true, false} {
		var out strings.Builder
		v := newRunLines(&app{json: json, path: "p", out: show.NewScreen(&out, func(string) string { return "" })})
		budget := &board.RunReply{RunID: "r", State: board.Queued, Reason: new("see 'deepwork board'")}
		working := &board.RunReply{RunID: "r", State: board.Running}
		resumed := &board.RunReply{
			RunID: "r",
			State: board.Queued,
			Waits: []board.RunWaits{{For: board.WaitsForPerson, Command: new("deepwork sessions review")}},
		}
		for _, r := range []*board.RunReply{resumed, working, budget, budget, working, budget, budget} {
			v.show(t.Context(), r)
		}
		testkit.Equal(t, strings.Count(out.String(), "see 'deepwork board --path p'")+strings.Count(out.String(),
			"person"), 2, "%s", &out)
	}
}

func TestSentences(t *testing.T) {
	for want, all := range map[string][]string{
		"":          nil,
		"a":         {"a"},
		"a or b":    {"a", "b"},
		"a, b or c": {"a", "b", "c"},
	} {
		testkit.Equal(t, choices(all), want)
	}

	w := &job.Workflow{Inputs: []job.Parameter{{Name: "a", Type: job.Text, Description: "A", Required: true}, {
		Name:        "b",
		Type:        job.Files,
		Description: "B",
		Required:    true,
	}, {Name: "c", Type: job.File, Description: "C"}, {Name: "d", Description: "D", Required: true, Default: new("x")},
		{Name: "e", Type: job.FilePath, Description: "E", Required: true}}}
	testkit.Equal(t, neededInputs(w, board.Inputs{"e": {}}), "--input a=TEXT (A) --input b=PATH... (B)")
	testkit.Equal(t, neededInputs(w, board.Inputs{"a": {}, "b": {}}), "--input e=PATH (E)")

	plain := errors.New("a plain error of get_step")
	testkit.Equal(t, forPeople(plain), plain)
	testkit.Equal(t, waitState(board.RunWaits{For: board.WaitsForPerson}), board.WaitingForYou)
	testkit.Equal(t, waitState(board.RunWaits{}), board.WaitingForLimit)
}
