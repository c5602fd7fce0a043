package merge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
)

// An attempt is merged, pushed, and merged again after more work; conflicts lie in its worktree.
func TestFromBranchToMerged(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.Git(p.Root, "config", "user.name", "Una User")
	p.Git(p.Root, "config", "user.email", "una@example.com")
	remote := filepath.Join(p.Root, "..", "remote.git")
	p.Git(p.Root, "clone", "-q", "--bare", p.Root, remote)
	p.Git(p.Root, "remote", "add", "origin", remote)
	s := p.open()
	id := s.ends(s.begin(s.newTask("! write a.txt hello")).AttemptID).AttemptID
	path := s.get(id).Repos[0].WorktreePath
	merge := func(way string) (*Reply, error) {
		return Merge(ctx, s.Engine, me, MergeArgs{Target: the(id), Way: &way})
	}
	commit := func(dir, name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		p.Git(dir, "add", "-A")
		p.Git(dir, "commit", "-q", "-m", name)
	}
	status := func(r *Reply, err error, want string) Repo {
		t.Helper()
		must(t, err)
		testkit.Need(t, len(r.Repos) == 1 && r.Repos[0].Status == want, "%+v, want %s", r, want)
		return r.Repos[0]
	}

	r, err := merge("merge")
	m := status(r, err, Unchanged)
	testkit.True(t, slices.Equal(m.Untracked, []string{"a.txt"}) && m.Notice != nil, "%+v", m)
	commit(path, "b.txt", "b\n")
	must(t, os.WriteFile(filepath.Join(p.Root, "README"), []byte("mine\n"), 0o644))
	refused(t, testkit.Get(merge("squash")).Err(), session.StateError, "target_checked_out", "README", p.Root, "merge --squash")
	p.Git(p.Root, "checkout", "-q", "README")
	r, err = merge("squash")
	testkit.Equal(t, *status(r, err, Merged).Commit, p.Git(p.Root, "rev-parse", "main"))
	if at := s.get(id).Repos[0]; at.Ahead != 0 || at.Behind != 0 || !slices.Equal(at.ChangedFiles, []string{"a.txt", "b.txt"}) {
		t.Errorf("%d ahead, %d behind, changed: %q", at.Ahead, at.Behind, at.ChangedFiles)
	}
	testkit.Contains(t, testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(id), Paths: []string{"b.txt"}})).Must(t).Diffs[0].Diff, "+b\n", "the diff after the merge")
	r2, err := Push(ctx, s.Engine, me, PushArgs{Target: the(id)})
	testkit.Equal(t, *status(r2, err, Pushed).Commit, p.Git(remote, "rev-parse", s.get(id).WorkspaceBranch))

	commit(path, "b.txt", "of the attempt\n")
	commit(p.Root, "b.txt", "of a person\n")
	r, err = merge("merge")
	m = status(r, err, Conflicts)
	testkit.True(t, slices.Equal(m.Conflicts, []string{"b.txt"}) && m.Notice != nil, "%+v", m)
	refused(t, testkit.Get(merge("merge")).Err(), session.StateError, "merge_unfinished", "abort_merge")
	r, err = Abort(ctx, s.Engine, me, BranchArgs{Target: the(id)})
	m = status(r, err, Aborted)
	testkit.True(t, m.Rescue != nil && p.Git(path, "status", "--porcelain") == "", "%+v", m)
	r, err = Rebase(ctx, s.Engine, me, BranchArgs{Target: the(id)})
	status(r, err, Conflicts)
	commit(path, "b.txt", "of both\n")
	r, err = merge("squash")
	status(r, err, Merged)
	if data, _ := os.ReadFile(filepath.Join(p.Root, "b.txt")); string(data) != "of both\n" {
		t.Errorf("main has %q", data)
	}
	commit(p.Root, "c.txt", "c\n")
	commit(path, "d.txt", "d\n")
	r, err = Rebase(ctx, s.Engine, me, BranchArgs{Target: the(id)})
	status(r, err, Rebased)
	must(t, os.WriteFile(filepath.Join(path, "d.txt"), []byte("more\n"), 0o644))
	refused(t, testkit.Get(merge("rebase")).Err(), session.StateError, "not_committed", "d.txt", "commit: true")

	refused(t, testkit.Get(merge("fast")).Err(), session.ToolError, "unknown_way", "squash")
	refused(t, testkit.Get(Push(ctx, s.Engine, me, PushArgs{Target: the(id), Remote: new("nowhere")})).Err(), session.StateError, "git_failed", "nowhere")
	refused(t, testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id), RepoID: new(nobody)})).Err(), session.ToolError, "unknown_repo", nobody)
	weak := me
	weak.Rights = session.RightAgents
	refused(t, testkit.Get(Merge(ctx, s.Engine, weak, MergeArgs{Target: the(id)})).Err(), session.StateError, "right_needed", "merge")
}

// Nothing is merged under an agent that works.
func TestMergeOfAnAttemptThatRuns(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	s := p.open()
	id := s.begin(s.newTask("! await " + filepath.Join(p.Root, "..", "hold"))).AttemptID
	s.reaches(id, task.Running)
	for name, call := range map[string]func() (*Reply, error){
		"merge":  func() (*Reply, error) { return Merge(ctx, s.Engine, me, MergeArgs{Target: the(id)}) },
		"rebase": func() (*Reply, error) { return Rebase(ctx, s.Engine, me, BranchArgs{Target: the(id)}) },
		"abort":  func() (*Reply, error) { return Abort(ctx, s.Engine, me, BranchArgs{Target: the(id)}) },
		"push":   func() (*Reply, error) { return Push(ctx, s.Engine, me, PushArgs{Target: the(id)}) },
		"target": func() (*Reply, error) {
			return ChangeTarget(ctx, s.Engine, me, TargetArgs{Target: the(id), TargetBranch: "main"})
		},
	} {
		testkit.Fails(t, testkit.Get(call()).Err(), "waiting or running", "%s", name)
	}
	s.stopAttempt(id)
}

// An attempt is compared with the target that it was given last, and merged into it.
func TestChangeTarget(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	s := p.open()
	id := s.ends(s.begin(s.newTask("! write a.txt hello\n! commit a")).AttemptID).AttemptID
	p.Git(p.Root, "branch", "release")
	p.Git(p.Root, "config", "user.name", "Una User")
	p.Git(p.Root, "config", "user.email", "una@example.com")
	target := func(branch string) (*Reply, error) {
		return ChangeTarget(ctx, s.Engine, me, TargetArgs{Target: the(id), TargetBranch: branch})
	}
	refused(t, testkit.Get(target("nowhere")).Err(), session.ToolError, "unknown_branch", "nowhere", "release")
	refused(t, testkit.Get(target(s.get(id).WorkspaceBranch)).Err(), session.ToolError, "unknown_branch", "own branch")
	for _, want := range []string{Retargeted, Unchanged} {
		if r, err := target("release"); err != nil || r.Repos[0].Status != want || r.Repos[0].TargetBranch != "release" {
			t.Fatalf("%+v %v, want %s", r, err, want)
		}
	}
	if at := s.get(id).Repos[0]; at.TargetBranch != "release" || at.Ahead != 1 {
		t.Errorf("%+v", at)
	}
	main := p.Git(p.Root, "rev-parse", "main")
	r := testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id)})).Must(t)
	testkit.Equal(t, *r.Repos[0].Commit, p.Git(p.Root, "rev-parse", "release"))
	testkit.Equal(t, p.Git(p.Root, "rev-parse", "main"), main)
}

// If a repository of several refuses, the error says which were merged before.
func TestMergeThatTheSecondRepoRefuses(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	for _, name := range []string{"web", "api"} {
		dir := filepath.Join(p.Root, "..", name)
		p.Repo(dir)
		p.Git(dir, "config", "user.name", "Una User")
		p.Git(dir, "config", "user.email", "una@example.com")
	}
	p.Configure(func(c *config.Config) {
		c.Projects = []config.Project{{Name: "front", Repos: []config.Repo{{Name: "web", Path: "../web"}, {Name: "api", Path: "../api"}}}}
	})
	s := p.open()
	projects := testkit.Get(s.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(t)
	front := projects.Projects[slices.IndexFunc(projects.Projects, func(v board.Project) bool { return v.Name == "front" })].ProjectID
	v := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: front, Title: "Both", Description: new("! say hello")})).Must(t)
	r := s.ends(s.begin(v).AttemptID)
	for _, at := range r.Repos {
		must(t, os.WriteFile(filepath.Join(at.WorktreePath, "README"), []byte("new\n"), 0o644))
		p.Git(at.WorktreePath, "commit", "-q", "-a", "-m", "new")
	}
	first, second := r.Repos[0], r.Repos[1]
	dirty := filepath.Join(p.Root, "..", second.RepoName, "README")
	must(t, os.WriteFile(dirty, []byte("mine\n"), 0o644))
	refused(t, testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(r.AttemptID)})).Err(), session.StateError, "target_checked_out", first.RepoName+" is merged. In "+second.RepoName+": Nothing was changed", "README")
	if got := s.get(r.AttemptID).Repos; got[0].Ahead != 0 || got[1].Ahead != 1 {
		t.Errorf("%+v", got)
	}
	p.Git(filepath.Dir(dirty), "checkout", "-q", "README")
	done := testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(r.AttemptID)})).Must(t)
	testkit.Equal(t, done.Repos[0].Status, Unchanged)
	testkit.Equal(t, done.Repos[1].Status, Merged)
}

// The branch is pushed after each execution with commits, and get_attempt says why it was not.
func TestPushAfterEachExecution(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	remote := filepath.Join(p.Root, "..", "remote.git")
	p.Git(p.Root, "remote", "add", "backup", remote)
	p.Configure(func(c *config.Config) { c.Attempts.PushTo = "backup" })
	s := p.open()
	r := s.ends(s.begin(s.newTask("! say x")).AttemptID)
	testkit.Equal(t, deref(r.PushError), "", "without commits")
	r = s.ends(s.begin(s.newTask("! write a.txt hello\n! commit a")).AttemptID)
	testkit.True(t, r.State == "completed" && containsAll(deref(r.PushError), "backup", "remote.git"), "without the remote: %s, %q", r.State, deref(r.PushError))
	p.Git(p.Root, "init", "-q", "--bare", remote)
	_, err := Push(ctx, s.Engine, me, PushArgs{Target: the(r.AttemptID), Remote: new("backup")})
	if must(t, err); s.get(r.AttemptID).PushError != nil {
		t.Error("it was pushed, and get_attempt says that it was not")
	}
	for _, prompt := range []string{"! exit 3", "! write a.txt more\n! amend b\n! exit 3"} {
		testkit.Get(s.FollowUp(ctx, me, attempt.FollowUpArgs{Target: the(r.AttemptID), Action: attempt.ActionSend, Prompt: &prompt})).Must(t)
		r = s.ends(r.AttemptID)
		head := p.Git(r.Repos[0].WorktreePath, "rev-parse", "HEAD")
		testkit.True(t, r.State == "failed" && r.PushError == nil && p.Git(remote, "rev-parse", r.WorkspaceBranch) == head, "%s, %q", r.State, deref(r.PushError))
	}
}

// A diff that is empty says why.
func TestAnEmptyDiffSaysWhy(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	s := p.open()
	diff := func(id string, paths ...string) *DiffReply {
		t.Helper()
		r := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(id), Paths: paths})).Must(t)
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
	testkit.Contains(t, deref(diff(s.ends(s.begin(s.newTask("! say x")).AttemptID).AttemptID).Notice), "Nothing is changed", "of an attempt that changed nothing")

	p.Configure(func(c *config.Config) { c.Attempts.Setup = []string{"no-such-setup-program"} })
	failed := s.ends(s.begin(s.newTask("! say x")).AttemptID)
	n := deref(diff(failed.AttemptID, "a.txt").Notice)
	testkit.True(t, failed.State == "failed" && containsAll(n, "is failed", "no-such-setup-program", "start_task_attempt") && !strings.Contains(n, "not made yet"), "of an attempt without a workspace: %q", n)

	hold := filepath.Join(p.Root, "..", "hold")
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	waits := s.begin(s.newTask("! say x"))
	if n := deref(diff(waits.AttemptID).Notice); !containsAll(n, "not created yet", "queued", "get_attempt") {
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
	t.Parallel()
	p := newProject(t)
	s := p.open()
	r := s.ends(s.begin(s.newTask("! write basket.go package basket", "! commit Add the basket", "! write loose.txt loose and more than fits")).AttemptID)
	target := the(r.AttemptID)
	diff := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: target})).Must(t)
	testkit.True(t, len(diff.Diffs) == 1 && !diff.Truncated && containsAll(diff.Diffs[0].Diff, "+package basket", "+loose"), "the diff: %+v", diff)
	diff = testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: target, Paths: []string{"loose.txt"}, MaxBytes: new(40)})).Must(t)
	testkit.True(t, diff.Truncated && diff.Diffs[0].Truncated && len(diff.Diffs[0].Diff) <= 40 && !strings.Contains(diff.Diffs[0].Diff, "basket"), "a part of the diff: %+v", diff)
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	testkit.Contains(t, deref(testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: target})).Must(t).Notice), r.WorkspaceBranch, "without the worktree")
	refused(t, testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: target})).Err(), session.StateError, "not_merged", fmt.Sprintf("git -C %q merge %s", p.Root, r.WorkspaceBranch))
	refused(t, testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(nobody)})).Err(), session.ToolError, "unknown_attempt", nobody)
	for _, a := range []DiffArgs{{Target: target, Paths: []string{"../x"}}, {Target: target, Paths: make([]string, MaxPaths+1)}, {Target: target, MaxBytes: new(0)}} {
		if _, err := Diff(ctx, s.Engine, me, a); session.CodeOf(err) == "" {
			t.Errorf("%d paths, %v: %v", len(a.Paths), a.MaxBytes, err)
		}
	}
}

// A run in place has no repositories: what needs one is refused and says so.
func TestRunInPlaceHasNothingToMerge(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.PushTo = "origin" })
	s := p.open(func(o *attempt.Options) {
		o.Leader = func(_ context.Context, l *attempt.Lead) board.RunEnd {
			must(t, os.WriteFile(filepath.Join(l.Attempt.Workspace, "new.txt"), []byte("text"), 0o600))
			return board.RunEnd{State: board.Completed}
		}
	})
	if s.Shared != nil {
		t.Skip("a project that machines share has no runs in place")
	}
	made := testkit.Get(s.RunWorkflow(ctx, me, attempt.RunWorkflowArgs{JobName: "job", WorkflowName: "flow", Goal: "do it", Executor: new("TEST"), InPlace: new(true)})).Must(t)
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
		testkit.Equal(t, session.CodeOf(call()), "in_place", "%s", name)
	}
	diff := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: at})).Must(t)
	testkit.True(t, len(diff.Diffs) == 0 && diff.Notice != nil && strings.Contains(*diff.Notice, p.Root), "the diff is %+v", diff)
	now := s.get(made.RunID)
	testkit.True(t, len(now.Repos) == 0 && now.PushError == nil, "%+v", now)
	testkit.Get(s.DeleteTask(ctx, me, attempt.DeleteArgs{TaskID: made.TaskID})).Must(t)
	testkit.True(t, exists(p.Root+"/new.txt"), "its work was removed with its task")
}
