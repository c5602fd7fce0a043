package merge

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
)

// A diff that is empty says why.
func TestAnEmptyDiffSaysWhy(t *testing.T) {
	p := newProject(t)
	s := p.open()
	diff := func(id string, paths ...string) *DiffReply {
		t.Helper()
		r, err := Diff(ctx, s.Engine, me, DiffArgs{Target: the(id), Paths: paths})
		must(t, err)
		return r
	}
	changed := s.ends(s.begin(s.newTask("! write a.txt hello\n! write dir/b.txt hello")).AttemptID)
	for _, paths := range [][]string{nil, {"a.txt"}, {"dir"}, {"dir/"}, {"no-such-file", "a.txt"}} {
		if r := diff(changed.AttemptID, paths...); r.Notice != nil || r.Diffs[0].Diff == "" {
			t.Errorf("%q: %q, %s", paths, r.Diffs[0].Diff, deref(r.Notice))
		}
	}
	r := diff(changed.AttemptID, "b.txt", "README")
	if n := deref(r.Notice); r.Diffs[0].Diff != "" || !containsAll(n, "None of these paths is changed", `"b.txt", "README"`, "get_attempt") {
		t.Errorf("of paths that are not changed: %+v, %q", r, n)
	}
	if n := deref(diff(s.ends(s.begin(s.newTask("! say x")).AttemptID).AttemptID).Notice); !strings.Contains(n, "Nothing is changed") {
		t.Errorf("of an attempt that changed nothing: %q", n)
	}

	p.Configure(func(c *config.Config) { c.Attempts.Setup = []string{"no-such-setup-program"} })
	failed := s.ends(s.begin(s.newTask("! say x")).AttemptID)
	n := deref(diff(failed.AttemptID, "a.txt").Notice)
	if failed.State != "failed" || !containsAll(n, "is failed", "no-such-setup-program", "start_task_attempt") || strings.Contains(n, "not made yet") {
		t.Errorf("of an attempt without a workspace: %q", n)
	}

	hold := filepath.Join(p.Root, "..", "hold")
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	waits := s.begin(s.newTask("! say x"))
	if n := deref(diff(waits.AttemptID).Notice); !containsAll(n, "not created yet", "waiting", "get_attempt") {
		t.Errorf("of one that waits: %q", n)
	}
	s.stopAttempt(waits.AttemptID)
	if n := deref(diff(waits.AttemptID).Notice); !containsAll(n, "is stopped", "never ran") {
		t.Errorf("of one that was stopped before it ran: %q", n)
	}
	s.stopAttempt(first.AttemptID)
}

// A diff has files of which git knows nothing; it can be cut, and be of one file. The arguments are checked.
func TestDiff(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.ends(s.begin(s.newTask("! write basket.go package basket", "! commit Add the basket", "! write loose.txt loose and more than fits")).AttemptID)
	target := the(r.AttemptID)
	diff, err := Diff(ctx, s.Engine, me, DiffArgs{Target: target})
	must(t, err)
	if len(diff.Diffs) != 1 || diff.Truncated || !containsAll(diff.Diffs[0].Diff, "+package basket", "+loose") {
		t.Errorf("the diff: %+v", diff)
	}
	diff, err = Diff(ctx, s.Engine, me, DiffArgs{Target: target, Paths: []string{"loose.txt"}, MaxBytes: new(40)})
	must(t, err)
	if !diff.Truncated || !diff.Diffs[0].Truncated || len(diff.Diffs[0].Diff) > 40 || strings.Contains(diff.Diffs[0].Diff, "basket") {
		t.Errorf("a part of the diff: %+v", diff)
	}
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	if diff, err = Diff(ctx, s.Engine, me, DiffArgs{Target: target}); err != nil || !strings.Contains(deref(diff.Notice), r.WorkspaceBranch) {
		t.Errorf("without the worktree: %+v, %v", diff, err)
	}
	_, err = Diff(ctx, s.Engine, me, DiffArgs{Target: the(nobody)})
	refused(t, err, session.ToolError, "unknown_attempt", nobody)
	for _, a := range []DiffArgs{{Target: target, Paths: []string{"../x"}}, {Target: target, Paths: make([]string, MaxPaths+1)}, {Target: target, MaxBytes: new(0)}} {
		if _, err := Diff(ctx, s.Engine, me, a); session.CodeOf(err) == "" {
			t.Errorf("%d paths, %v: %v", len(a.Paths), a.MaxBytes, err)
		}
	}
}

// A run in place has no repositories: what needs one is refused and says so.
func TestRunInPlaceHasNothingToMerge(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.PushTo = "origin" })
	s := p.open(func(o *attempt.Options) {
		o.Leader = func(_ context.Context, l *attempt.Lead) board.RunEnd {
			must(t, os.WriteFile(filepath.Join(l.Attempt.Workspace, "new.txt"), []byte("text"), 0o600))
			return board.RunEnd{State: board.RunComplete}
		}
	})
	if s.Shared != nil {
		t.Skip("a project that machines share has no runs in place")
	}
	made, err := s.RunWorkflow(ctx, me, attempt.RunWorkflowArgs{JobName: "job", WorkflowName: "flow", Goal: "do it", Executor: new("TEST"), InPlace: new(true)})
	must(t, err)
	s.reaches(made.RunID, task.Completed)
	at := the(made.RunID)
	calls := map[string]func() error{
		"merge":  func() error { _, err := Merge(ctx, s.Engine, me, MergeArgs{Target: at}); return err },
		"rebase": func() error { _, err := Rebase(ctx, s.Engine, me, BranchArgs{Target: at}); return err },
		"abort":  func() error { _, err := Abort(ctx, s.Engine, me, BranchArgs{Target: at}); return err },
		"push":   func() error { _, err := Push(ctx, s.Engine, me, PushArgs{Target: at}); return err },
		"target": func() error {
			_, err := ChangeTarget(ctx, s.Engine, me, TargetArgs{Target: at, TargetBranch: "main"})
			return err
		},
		"comment": func() error {
			_, err := CommentAttempt(ctx, s.Engine, me, CommentArgs{Target: at, Comments: []CommentArg{{File: "new.txt", Line: 1, Text: "no"}}})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); session.CodeOf(err) != "in_place" {
			t.Errorf("%s: %v", name, err)
		}
	}
	diff, err := Diff(ctx, s.Engine, me, DiffArgs{Target: at})
	must(t, err)
	if len(diff.Diffs) > 0 || diff.Notice == nil || !strings.Contains(*diff.Notice, p.Root) {
		t.Errorf("the diff is %+v", diff)
	}
	if now := s.get(made.RunID); len(now.Repos) > 0 || now.PushError != nil {
		t.Errorf("%+v", now)
	}
	_, err = s.DeleteTask(ctx, me, attempt.DeleteArgs{TaskID: made.TaskID})
	must(t, err)
	if !exists(p.Root + "/new.txt") {
		t.Error("its work was removed with its task")
	}
}
