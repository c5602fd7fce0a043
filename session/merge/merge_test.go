package merge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/why"
)

// An attempt is merged, pushed, and merged again after more work; conflicts lie in its worktree.
func TestFromBranchToMerged(t *testing.T) {
	p := newProject(t)
	remote := filepath.Join(p.Root, "..", "remote.git")
	p.Git(p.Root, "clone", "-q", "--bare", p.Root, remote)
	p.Git(p.Root, "remote", "add", "origin", remote)
	s := p.open()
	r := s.done("! write a.txt hello")
	id, path := r.AttemptID, r.Repos[0].WorktreePath
	way := func(way string) MergeArgs { return MergeArgs{Target: the(id), Way: &way} }

	// is checks what a call says of the repository.
	is := func(want string) func(*Reply, error) Repo {
		return func(r *Reply, err error) Repo {
			t.Helper()
			must(t, err)
			testkit.Need(t, len(r.Repos) == 1 && r.Repos[0].Status == want, "%+v, want %s", r, want)
			return r.Repos[0]
		}
	}
	merge := func(how string) (*Reply, error) { return Merge(ctx, s.Engine, me, way(how)) }

	m := is(Unchanged)(merge("merge"))
	testkit.True(t, slices.Equal(m.Untracked, []string{"a.txt"}) && m.Notice != nil, "%+v", m)
	p.commit(path, "b.txt", "b\n")
	testkit.Write(t, filepath.Join(p.Root, "b.txt"), "mine\n")
	s.notMerged(way("squash"), session.StateError, "target_checked_out", "b.txt", p.Root, " --squash")
	must(t, os.Remove(filepath.Join(p.Root, "b.txt")))
	testkit.Equal(t, *is(Merged)(merge("squash")).Commit, p.Git(p.Root, "rev-parse", "main"))

	at := s.get(id).Repos[0]
	testkit.Same(t, []any{at.Ahead, at.Behind, at.ChangedFiles}, []any{0, 0, []string{"a.txt", "b.txt"}})
	testkit.Contains(t, testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(id), Paths: []string{"b.txt"}})).
		Must(t).Diffs[0].Diff, "+b\n", "the diff after the merge")
	testkit.Equal(t, *is(Pushed)(Push(ctx, s.Engine, me, PushArgs{Target: the(id)})).Commit,
		p.Git(remote, "rev-parse", r.WorkspaceBranch))

	p.commit(path, "b.txt", "of the attempt\n")
	p.commit(p.Root, "b.txt", "of a person\n")
	m = is(Conflicts)(merge("merge"))
	testkit.True(t, slices.Equal(m.Conflicts, []string{"b.txt"}) && m.Notice != nil, "%+v", m)

	s.notMerged(way("merge"), session.StateError, "merge_unfinished", "abort_merge")
	m = is(Aborted)(Abort(ctx, s.Engine, me, BranchArgs{Target: the(id)}))
	testkit.True(t, m.Rescue != nil && p.Git(path, "status", "--porcelain") == "", "%+v", m)
	is(Conflicts)(Rebase(ctx, s.Engine, me, BranchArgs{Target: the(id)}))
	p.commit(path, "b.txt", "of both\n")
	is(Merged)(merge("squash"))
	testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(p.Root, "b.txt"))).Must(t)), "of both\n", "main has")
	p.commit(p.Root, "c.txt", "c\n")
	p.commit(path, "d.txt", "d\n")
	is(Rebased)(Rebase(ctx, s.Engine, me, BranchArgs{Target: the(id)}))
	testkit.Write(t, filepath.Join(path, "d.txt"), "more\n")
	s.notMerged(way("rebase"), session.StateError, "not_committed", "d.txt", "commit: true")

	s.notMerged(way("fast"), session.ToolError, "unknown_way", "squash")
	s.notMerged(MergeArgs{Target: the(id), RepoID: new(nobody)}, session.ToolError, "unknown_repo", nobody)
	refused(t, testkit.Get(Push(ctx, s.Engine, me, PushArgs{Target: the(id), Remote: new("nowhere")})).Err(),
		session.StateError, "git_failed", "nowhere")
	weak := me
	weak.Rights = session.RightAgents
	refused(t, testkit.Get(Merge(ctx, s.Engine, weak, MergeArgs{Target: the(id)})).Err(), session.StateError,
		"right_needed", "merge")
}

// A conflict is resolved by one side's file, which can be undone, and the merge is committed.
func TestTakeASide(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.done("! write a.txt hello", "! commit a")
	path := r.Repos[0].WorktreePath
	p.commit(p.Root, "a.txt", "of a person\n")
	args := TakeArgs{Target: the(r.AttemptID), RepoID: r.Repos[0].RepoID, File: "a.txt", Side: worktree.Theirs}
	refused(t, testkit.Get(Take(ctx, s.Engine, me, args)).Err(), session.StateError, "not_merged",
		"no merge is in progress")
	testkit.Equal(t, s.merge(MergeArgs{Target: the(r.AttemptID)}).Repos[0].Status, Conflicts)

	d := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(r.AttemptID)})).Must(t).Diffs[0].Diff
	testkit.True(t, strings.Contains(d, "+hello") && !strings.Contains(d, "person"), "the diff has the merge: %s", d)
	stat := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(r.AttemptID), Stat: true})).Must(t).Diffs[0].Diff
	testkit.Equal(t, stat, "1\t0\ta.txt\x00")

	weak := me
	weak.Rights = session.RightAgents
	refused(t, testkit.Get(Take(ctx, s.Engine, weak, args)).Err(), session.StateError, "right_needed", "merge")
	refused(t, testkit.Get(Conclude(ctx, s.Engine, me, args)).Err(), session.StateError, "merge_unfinished")
	testkit.Equal(t, testkit.Get(Take(ctx, s.Engine, me, args)).Must(t).Repos[0].Status, Taken)
	testkit.Same(t, s.get(r.AttemptID).Repos[0].Resolved, []string{"a.txt"})
	testkit.Write(t, filepath.Join(path, "a.txt"), "better\n")
	m := testkit.Get(Untake(ctx, s.Engine, me, args)).Must(t).Repos[0]
	testkit.Equal(t, p.Git(p.Root, "show", "--first-parent", m.Rescue.Ref), "better")
	testkit.Same(t, s.get(r.AttemptID).Repos[0].Conflicts, []string{"a.txt"})
	testkit.Get(Take(ctx, s.Engine, me, args)).Must(t)
	testkit.Equal(t, testkit.Get(Conclude(ctx, s.Engine, me, args)).Must(t).Repos[0].Status, Concluded)
	testkit.Equal(t, p.Git(path, "status", "--porcelain"), "")
	testkit.Equal(t, s.merge(MergeArgs{Target: the(r.AttemptID)}).Repos[0].Status, Merged)
}

// An attempt is compared with the target that it was given last, and merged into it.
func TestChangeTarget(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.done("! write a.txt hello\n! commit a")
	p.Git(p.Root, "branch", "release")
	target := func(branch string) (*Reply, error) {
		return ChangeTarget(ctx, s.Engine, me, TargetArgs{Target: the(r.AttemptID), TargetBranch: branch})
	}
	refused(t, testkit.Get(target("nowhere")).Err(), session.ToolError, "unknown_branch", "nowhere", "release")
	refused(t, testkit.Get(target(r.WorkspaceBranch)).Err(), session.ToolError, "unknown_branch", "own branch")
	for _, want := range []string{Retargeted, Unchanged} {
		now := testkit.Get(target("release")).Must(t).Repos[0]
		testkit.Equal(t, now.Status+" "+now.TargetBranch, want+" release")
	}
	at := s.get(r.AttemptID).Repos[0]
	testkit.True(t, at.TargetBranch == "release" && at.Ahead == 1, "%+v", at)

	main := p.Git(p.Root, "rev-parse", "main")
	testkit.Equal(t, *s.merge(MergeArgs{Target: the(r.AttemptID)}).Repos[0].Commit,
		p.Git(p.Root, "rev-parse", "release"))
	testkit.Equal(t, p.Git(p.Root, "rev-parse", "main"), main)
}

// If a repository of several refuses, the error says which were merged before, and the attempt has the state of those.
func TestMergeThatTheSecondRepoRefuses(t *testing.T) {
	p := newProject(t)
	for _, name := range []string{"web", "api"} {
		dir := filepath.Join(p.Root, "..", name)
		p.Repo(dir)
		p.asUna(dir)
	}

	p.Configure(func(c *config.Config) {
		c.Projects = []config.Project{{
			Name:  "front",
			Repos: []config.Repo{{Name: "web", Path: "../web"}, {Name: "api", Path: "../api"}},
		}}
	})
	s := p.open()
	projects := testkit.Get(s.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(t)
	front := projects.Projects[slices.IndexFunc(projects.Projects, func(v board.Project) bool {
		return v.Name == "front"
	})].ProjectID
	r := s.ends(s.begin(testkit.Get(s.CreateTask(ctx, me,
		board.CreateTaskArgs{ProjectID: front, Title: "Both", Description: new("! say hello")})).Must(t)).AttemptID)
	for _, at := range r.Repos {
		p.commit(at.WorktreePath, "README", "new\n")
	}
	first, second := r.Repos[0], r.Repos[1]
	dirty := filepath.Join(p.Root, "..", second.RepoName, "README")
	testkit.Write(t, dirty, "mine\n")
	p.commit(filepath.Join(p.Root, "..", first.RepoName), "README", "theirs\n")
	s.notMerged(MergeArgs{Target: the(r.AttemptID)}, session.StateError, "target_checked_out",
		first.RepoName+" is conflicts. In "+second.RepoName)
	testkit.Equal(t, s.get(r.AttemptID).State, board.Conflicted)
	p.commit(first.WorktreePath, "README", "both\n")
	s.notMerged(MergeArgs{Target: the(r.AttemptID)}, session.StateError, "target_checked_out",
		first.RepoName+" is merged. In "+second.RepoName+": Nothing was changed", "README")
	got := s.get(r.AttemptID)
	testkit.Equal(t, got.State, board.Completed)
	testkit.Equal(t, got.Repos[0].Ahead, 0)
	testkit.Equal(t, got.Repos[1].Ahead, 1)

	p.Git(filepath.Dir(dirty), "checkout", "-q", "README")
	done := s.merge(MergeArgs{Target: the(r.AttemptID)}).Repos
	testkit.Equal(t, done[0].Status+" "+done[1].Status, Unchanged+" "+Merged)
}

// The branch is pushed after each execution with commits, and get_attempt says why it was not.
func TestPushAfterEachExecution(t *testing.T) {
	p := newProject(t)
	remote := filepath.Join(p.Root, "..", "remote.git")
	p.Git(p.Root, "remote", "add", "backup", remote)
	p.Configure(func(c *config.Config) { c.Attempts.PushTo = "backup" })
	s := p.open()
	testkit.Equal(t, deref(s.done("! say x").PushError), "", "without commits")

	r := s.done("! write a.txt hello\n! commit a")
	testkit.ContainsAll(t, string(r.State)+deref(r.PushError), []string{"completed", "backup", "remote.git"},
		"without the remote")

	p.Git(p.Root, "init", "-q", "--bare", remote)
	testkit.Get(Push(ctx, s.Engine, me, PushArgs{Target: the(r.AttemptID), Remote: new("backup")})).Must(t)
	testkit.Equal(t, s.get(r.AttemptID).PushError, nil, "it was pushed, and get_attempt says that it was not")

	for _, prompt := range []string{"! exit 3", "! write a.txt more\n! amend b\n! exit 3"} {
		testkit.Get(s.FollowUp(ctx, me,
			attempt.FollowUpArgs{Target: the(r.AttemptID), Action: attempt.ActionSend, Prompt: &prompt})).Must(t)
		r = s.ends(r.AttemptID)
		testkit.True(t, r.State == "failed" && r.PushError == nil, "%s, %q", r.State, deref(r.PushError))
		testkit.Equal(t, p.Git(remote, "rev-parse", r.WorkspaceBranch),
			p.Git(r.Repos[0].WorktreePath, "rev-parse", "HEAD"))
	}
}

// A diff has files of which git knows nothing; it can be cut, and be of one file; one that is empty says why.
// The arguments are checked.
func TestDiff(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.done("! write basket.go package basket", "! commit Add the basket",
		"! write loose.txt loose and more than fits", "! write dir/b.txt hello")
	target := the(r.AttemptID)
	diff := func(id string, most *int, paths ...string) (*DiffReply, string) {
		t.Helper()
		r := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(id), Paths: paths, MaxBytes: most})).Must(t)
		if len(r.Diffs) == 0 {
			return r, ""
		}
		return r, r.Diffs[0].Diff
	}
	for paths, has := range map[string]string{
		"":                       "+package basket",
		"basket.go":              "+package basket",
		"dir":                    "+hello",
		"dir/":                   "+hello",
		"no-such-file loose.txt": "+loose",
	} {
		d, text := diff(r.AttemptID, nil, strings.Fields(paths)...)
		testkit.Need(t, len(d.Diffs) == 1, "%q: %+v", paths, d)
		testkit.True(t, !d.Truncated, "%q: %+v", paths, d)
		testkit.Need(t, d.Notice == nil, "%q: %+v", paths, d)
		testkit.True(t, (paths != "" || strings.Contains(text, "+loose")), "%q: %+v", paths, d)
		testkit.Contains(t, text, has)
	}
	part, text := diff(r.AttemptID, new(40), "loose.txt")
	testkit.True(t, part.Truncated, "a part of the diff: %+v", part)
	testkit.True(t, part.Diffs[0].Truncated, "a part of the diff: %+v", part)
	testkit.Need(t, len(text) <= 40, "a part of the diff: %+v", part)
	testkit.True(t, !strings.Contains(text, "basket"), "a part of the diff: %+v", part)
	none, text := diff(r.AttemptID, nil, "b.txt", "README")
	testkit.Equal(t, text, "", "of paths that are not changed")
	testkit.ContainsAll(t, deref(none.Notice),
		[]string{"None of these paths is changed", `"b.txt", "README"`, "without paths"})

	why := func(id string, says ...string) string {
		t.Helper()
		d, _ := diff(id, nil)
		testkit.ContainsAll(t, deref(d.Notice), says)
		return deref(d.Notice)
	}

	idle := s.done("! say x").AttemptID
	why(idle, "Nothing is changed")
	p.Git(p.Root, "branch", "-q", "-m", "main", "next")
	s.notMerged(MergeArgs{Target: target}, session.StateError, "not_merged", `no such branch: "main"`, "change_target")
	p.Git(p.Root, "branch", "-q", "-m", "next", "main")
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	why(r.AttemptID, r.WorkspaceBranch)
	s.notMerged(MergeArgs{Target: target}, session.StateError, "not_merged",
		fmt.Sprintf("git -C %s merge %s", p.Root, r.WorkspaceBranch))
	refused(t, testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(nobody)})).Err(), session.ToolError,
		"unknown_attempt", nobody)
	for _, a := range []DiffArgs{{Target: target, Paths: []string{"../x"}},
		{Target: target, Paths: make([]string, MaxPaths+1)}, {Target: target, MaxBytes: new(0)}} {
		testkit.True(t, session.CodeOf(testkit.Get(Diff(ctx, s.Engine, me, a)).Err()) != "", "%d paths, %v",
			len(a.Paths), a.MaxBytes)
	}

	p.Configure(func(c *config.Config) { c.Attempts.Setup = []string{"no-such-setup-program"} })
	says := why(s.done("! say x").AttemptID, "is failed", "no-such-setup-program", "Start a new attempt.")
	testkit.True(t, !strings.Contains(says, "not created yet"), "of an attempt without a workspace: %s", says)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	first := s.begin(s.newTask("! await " + filepath.Join(p.Root, "..", "hold")))
	s.reaches(first.AttemptID, task.Running)
	for name, err := range s.calls(first.AttemptID) { // nothing is merged from or under an agent that works
		testkit.Fails(t, err, "waiting or running", "%s", name)
	}
	testkit.Get(ChangeTarget(ctx, s.Engine, me, TargetArgs{Target: the(idle), TargetBranch: first.WorkspaceBranch})).
		Must(t)
	s.notMerged(MergeArgs{Target: the(idle)}, session.StateError, "attempt_running",
		first.WorkspaceBranch+" is that of another", first.AttemptID)
	waits := s.begin(s.newTask("! say x"))
	why(waits.AttemptID, "not created yet", "queued", "Try again")
	s.stopAttempt(waits.AttemptID)
	why(waits.AttemptID, "is stopped", "never ran")
	s.stopAttempt(first.AttemptID)
}

// What a person decides by shows what is merged, whatever the repository says.
func TestTheDiffHidesNothing(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.done("! write .gitattributes run.sh -diff", "! write run.sh touch PWNED", "! commit Add a script")
	diff := func(text bool) (*DiffReply, string) {
		t.Helper()
		d := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(r.AttemptID), Text: &text})).Must(t)
		return d, d.Diffs[0].Diff
	}
	d, text := diff(false)
	testkit.Contains(t, text, "Binary files /dev/null and b/run.sh differ")
	testkit.Equal(t, d.Diffs[0].Binary["run.sh"], int64(len("touch PWNED\n")))
	testkit.ContainsAll(t, deref(d.Notice), []string{`"run.sh" (12 bytes)`, "--text"})
	d, text = diff(true)
	testkit.Contains(t, text, "+touch PWNED")
	testkit.True(t, d.Notice == nil, "%v", d.Notice)

	at := r.Repos[0].WorktreePath
	harmless := p.Git(at, "commit-tree", "-p", "HEAD~1", "-m", "harmless", "HEAD~1^{tree}")
	p.Git(at, "replace", "HEAD", harmless)
	_, text = diff(true)
	testkit.Contains(t, text, "+touch PWNED")
}

func TestAMergeByHandSetsTheTaskDone(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.done("! write b.txt hello", "! commit Add a file")
	testkit.Equal(t, s.get(r.AttemptID).State, board.Completed)
	p.Git(p.Root, "merge", "-q", "--no-ff", r.WorkspaceBranch)
	testkit.Equal(t, s.get(r.AttemptID).State, board.Merged)
	of := testkit.Get(s.Board.GetTask(ctx, me, board.TaskArgs{TaskID: r.TaskID})).Must(t)
	testkit.Equal(t, of.Status, "done")

	r = s.done("! write c.txt hello", "! commit Add another")
	p.Git(p.Root, "merge", "-q", "--squash", r.WorkspaceBranch)
	p.Git(p.Root, "commit", "-q", "-m", "squash")
	testkit.Equal(t, s.get(r.AttemptID).State, board.Merged, "after a squash")
}

// Who lists tasks need not look at their attempts: those that were merged by hand are found by their branches.
func TestMergesByHandAreNoticedTogether(t *testing.T) {
	p := newProject(t)
	s := p.open()
	merged, other := s.done("! write b.txt b", "! commit b"), s.done("! write c.txt c", "! commit c")
	both := []string{other.AttemptID, merged.AttemptID}
	none := s.done("! say nothing to do")
	testkit.True(t, !testkit.Get(s.NoticeMerges(ctx, me, append(both, none.AttemptID))).Must(t), "before")
	p.Git(p.Root, "merge", "-q", "--no-ff", merged.WorkspaceBranch)
	testkit.True(t, testkit.Get(s.NoticeMerges(ctx, me, both)).Must(t), "it was not noticed")
	for id, status := range map[string]string{merged.TaskID: "done", other.TaskID: "inreview"} {
		testkit.Equal(t, testkit.Get(s.Board.GetTask(ctx, me, board.TaskArgs{TaskID: id})).Must(t).Status, status)
	}
	testkit.True(t, !testkit.Get(s.NoticeMerges(ctx, me, both)).Must(t), "again")
}

// leads has runs of workflows led by a function.
func leads(lead func(*attempt.Lead) board.RunEnd) func(*attempt.Options) {
	return func(o *attempt.Options) {
		o.Leader = func(_ context.Context, l *attempt.Lead) board.RunEnd { return lead(l) }
	}
}

// runs begins a run of a workflow.
func (s *server) runs(inPlace bool) *board.RunReply {
	s.t.Helper()
	return testkit.Get(s.RunWorkflow(ctx, me, attempt.RunWorkflowArgs{
		JobName:      "job",
		WorkflowName: "flow",
		Goal:         "do it",
		Executor:     new("TEST"),
		InPlace:      &inPlace,
	})).Must(s.t)
}

// A run in place has no repositories: what needs one is refused and says so.
func TestRunInPlaceHasNothingToMerge(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.PushTo = "origin" })
	s := p.open(leads(func(l *attempt.Lead) board.RunEnd {
		testkit.Write(t, filepath.Join(l.Attempt.Workspace, "new.txt"), "text")
		return board.RunEnd{State: board.Completed}
	}))
	if s.Shared != nil {
		t.Skip("a project that machines share has no runs in place")
	}
	made := s.runs(true)
	s.reaches(made.RunID, task.Completed)
	calls := s.calls(made.RunID)
	calls["comment"] = testkit.Get(CommentAttempt(ctx, s.Engine, me,
		CommentArgs{Target: the(made.RunID), Comments: []CommentArg{{File: "new.txt", Line: 1, Text: "no"}}})).Err()
	for name, err := range calls {
		testkit.Equal(t, session.CodeOf(err), "in_place", "%s", name)
	}
	diff := testkit.Get(Diff(ctx, s.Engine, me, DiffArgs{Target: the(made.RunID)})).Must(t)
	testkit.True(t, len(diff.Diffs) == 0 && strings.Contains(deref(diff.Notice), p.Root), "%+v", diff)

	now := s.get(made.RunID)
	testkit.True(t, len(now.Repos) == 0 && now.PushError == nil, "%+v", now)
	testkit.Get(s.DeleteTask(ctx, me, attempt.DeleteArgs{TaskID: made.TaskID})).Must(t)
	testkit.True(t, attempt.Exists(p.Root+"/new.txt"), "its work was removed with its task")
}

// A run that has stopped at a step can go on and needs a person, though what it has so far is merged.
func TestAStoppedRunIsNotDoneWhenMerged(t *testing.T) {
	p, s := newMerger(t, leads(func(*attempt.Lead) board.RunEnd {
		return board.RunEnd{State: board.Failed, Step: "b", Why: []why.Why{{Kind: why.Agent, Tries: 3}}}
	}))
	id := s.runs(false).RunID
	s.reaches(id, task.Failed)
	p.commit(s.get(id).Repos[0].WorktreePath, "a.txt", "hello\n")
	r := s.merge(MergeArgs{Target: the(id)})
	testkit.Same(t, []any{r.Repos[0].Status, r.TaskDone, s.get(id).State, needs(t, s)},
		[]any{Merged, false, board.Failed, "run_to_resume failed"})
}

// newMerger is a project whose tasks are done when they are merged, with a server.
func newMerger(t *testing.T, change ...func(*attempt.Options)) (*project, *server) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.DoneWhenMerged = true })
	return p, p.open(change...)
}

// needs are the kinds of what needs a person, with the states.
func needs(t *testing.T, s *server) string {
	t.Helper()
	var all []string
	for _, i := range testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items {
		all = append(all, i.Kind+" "+string(*i.State))
	}
	return strings.Join(all, ", ")
}

// Once an attempt is merged with nothing left, it says so, its task is done, and it needs nobody.
func TestField17_MergedMeansMerged(t *testing.T) {
	p, s := newMerger(t)
	v := s.newTask("! write a.txt hello\n! commit a\n! write b.txt hello")
	id := s.ends(s.begin(v).AttemptID).AttemptID
	merge := func(a MergeArgs, done bool, status string, state board.State, attention string) {
		t.Helper()
		a.Target, a.Way = the(id), new("squash")
		r, now := s.merge(a), testkit.Get(s.Board.GetTask(ctx, me, board.TaskArgs{TaskID: v.TaskID})).Must(t)
		testkit.Same(t, []any{r.TaskDone, now.Status, *now.LatestAttemptState, s.get(id).State, needs(t, s)},
			[]any{done, status, state, state, attention})
	}
	merge(MergeArgs{}, false, "inreview", board.Completed, "attempt_to_review completed") // b.txt is in no commit
	merge(MergeArgs{Commit: new(true), KeepOpen: new(true)}, false, "inreview", board.Merged, "")
	merge(MergeArgs{}, true, "done", board.Merged, "")
	merge(MergeArgs{}, false, "done", board.Merged, "")
	title, rest, _ := strings.Cut(p.Git(p.Root, "log", "-1", "--format=%B", "main"), "\n\n")
	testkit.Equal(t, title, v.Title, "the commit of the squash")
	testkit.ContainsAll(t, rest, []string{deref(v.Description), v.TaskID, id}, "the commit of the squash")

	testkit.Get(s.FollowUp(ctx, me,
		attempt.FollowUpArgs{Target: the(id), Action: attempt.ActionSend, Prompt: new("! exit 0")})).Must(t)
	s.reaches(id, task.Completed) // no longer merged: its agent has worked since
}

// An attempt whose merge has conflicts says so, with the files, until they are resolved or the merge is
// undone. Files with the markers of a conflict are not merged, unless that is asked for; lines below headings
// are none.
func TestField25_ConflictsOfAMerge(t *testing.T) {
	p, s := newMerger(t)
	r := s.done("! write a.txt hello\n! commit a")
	target, path := the(r.AttemptID), r.Repos[0].WorktreePath
	p.commit(p.Root, "a.txt", "of a person\n")
	s.merge(MergeArgs{Target: target})
	testkit.Same(t, []any{s.get(r.AttemptID).State, s.get(r.AttemptID).Repos[0].Conflicts, needs(t, s)},
		[]any{board.Conflicted, []string{"a.txt"}, "attempt_conflicts conflicts"})
	send := func(prompt string, state board.State) {
		testkit.Get(s.FollowUp(ctx, me,
			attempt.FollowUpArgs{Target: target, Action: attempt.ActionSend, Prompt: &prompt})).Must(t)
		s.reaches(r.AttemptID, task.AttemptState(state))
	}
	send("! say x", board.Conflicted)
	testkit.Get(Abort(ctx, s.Engine, me, BranchArgs{Target: target})).Must(t)
	testkit.Same(t, []any{s.get(r.AttemptID).State, needs(t, s)}, []any{board.Completed, "attempt_to_review completed"},
		"after it was undone")

	s.merge(MergeArgs{Target: target})
	send("! write a.txt of both\n! commit both", board.Completed)
	p.Git(path, "config", "color.ui", "always")
	const markers = "<<<<<<< HEAD\nmine\n=======\nyours\n>>>>>>> main\n"
	p.commit(path, "b.txt", markers)
	p.Git(path, "merge", "-q", "-s", "ours", "main")
	s.notMerged(MergeArgs{Target: target}, session.StateError, "not_merged", `["b.txt"]`, "force: true")
	p.commit(path, "b.txt", "Heading\n=======\ntext \n")
	testkit.Equal(t, s.merge(MergeArgs{Target: target}).Repos[0].Status, Merged)
	p.commit(path, "b.txt", markers)
	testkit.Equal(t, s.merge(MergeArgs{Target: target, Force: new(true)}).Repos[0].Status, Merged)
}

func TestMain(m *testing.M) {
	attempttest.Main(m, "TestFromBranchToMerged TestCommentsBecomeOneFollowUp")
}

var (
	ctx           = context.Background()
	me            = session.LocalCaller(session.ChannelStdio)
	must, refused = testkit.Must, attempttest.Refused
	eventually    = testkit.Eventually
	deref, asJSON = board.OrEmpty, attempttest.JSON
)

const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"

func the(id string) board.Target { return board.Target{AttemptID: &id} }

type project struct{ *attempttest.Project }

// newProject is a project whose user may commit.
func newProject(t *testing.T) *project {
	t.Parallel()
	p := &project{attempttest.New(t)}
	p.asUna(p.Root)
	return p
}

func (p *project) asUna(dir string) {
	p.Git(dir, "config", "user.name", "Una User")
	p.Git(dir, "config", "user.email", "una@example.com")
}

// commit commits all of a checkout or worktree after a file was written.
func (p *project) commit(dir, name, text string) {
	p.T.Helper()
	testkit.Write(p.T, filepath.Join(dir, name), text)
	p.Git(dir, "add", "-A")
	p.Git(dir, "commit", "-q", "-m", name)
}

// A server is an engine as a server process has it.
type server struct {
	*attempt.Engine
	t    testing.TB
	stop func()
}

func (p *project) open(change ...func(*attempt.Options)) *server {
	p.T.Helper()
	o := attempt.Options{Poll: 20 * time.Millisecond, Grace: 300 * time.Millisecond,
		Options: board.Options{
			Root:   p.Root,
			Stores: p.Stores(),
			Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil },
		}}
	for _, f := range change {
		f(&o)
	}
	e := testkit.Get(attempt.Open(ctx, o)).Must(p.T)
	s := &server{Engine: e, t: p.T, stop: sync.OnceFunc(func() {
		testkit.Same(p.T, e.Close(ctx), nil, "did not end")
		if o.Stores != nil {
			must(p.T, o.Stores.Close(ctx))
		}
	})}
	p.T.Cleanup(s.stop)
	return s
}

// newTask makes a task of the root project whose description tells the agent what to do.
func (s *server) newTask(lines ...string) *board.Task {
	s.t.Helper()
	projects := testkit.Get(s.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(s.t)
	root := projects.Projects[slices.IndexFunc(projects.Projects, func(p board.Project) bool { return p.IsRoot })]
	return testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{
		ProjectID:   root.ProjectID,
		Title:       "Add a basket",
		Description: new(strings.Join(lines, "\n")),
	})).Must(s.t)
}

// begin starts an attempt of a task in all repositories of its project.
func (s *server) begin(t *board.Task) *attempt.AttemptReply {
	s.t.Helper()
	repos := testkit.Get(s.ListRepos(ctx, me, board.ListReposArgs{ProjectID: t.ProjectID})).Must(s.t)
	a := attempt.StartArgs{TaskID: t.TaskID, Executor: "TEST"}
	for _, repo := range repos.Repos {
		a.Repos = append(a.Repos, attempt.RepoArgs{RepoID: repo.RepoID, TargetBranch: "main"})
	}
	return testkit.Get(s.StartTaskAttempt(ctx, me, a)).Must(s.t)
}

// done is an attempt of a new task that has ended.
func (s *server) done(lines ...string) *attempt.FullAttemptReply {
	s.t.Helper()
	return s.ends(s.begin(s.newTask(lines...)).AttemptID)
}

// get returns an attempt as it is now.
func (s *server) get(id string) *attempt.FullAttemptReply {
	s.t.Helper()
	return testkit.Get(s.GetAttempt(ctx, me, attempt.AttemptArgs{Target: the(id)})).Must(s.t)
}

// merge merges an attempt in the usual way, which must succeed.
func (s *server) merge(a MergeArgs) *Reply {
	s.t.Helper()
	return testkit.Get(Merge(ctx, s.Engine, me, a)).Must(s.t)
}

// notMerged checks why an attempt is not merged.
func (s *server) notMerged(a MergeArgs, kind session.Kind, code string, mentions ...string) {
	s.t.Helper()
	refused(s.t, testkit.Get(Merge(ctx, s.Engine, me, a)).Err(), kind, code, mentions...)
}

// calls are all that change an attempt's branches.
func (s *server) calls(id string) map[string]error {
	get := func(_ any, err error) error { return err }
	return map[string]error{
		"merge":  get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id)})),
		"rebase": get(Rebase(ctx, s.Engine, me, BranchArgs{Target: the(id)})),
		"abort":  get(Abort(ctx, s.Engine, me, BranchArgs{Target: the(id)})),
		"push":   get(Push(ctx, s.Engine, me, PushArgs{Target: the(id)})),
		"target": get(ChangeTarget(ctx, s.Engine, me, TargetArgs{Target: the(id), TargetBranch: "main"})),
	}
}

// reaches waits until an attempt is in one of the states.
func (s *server) reaches(id string, states ...task.AttemptState) (r *attempt.FullAttemptReply) {
	s.t.Helper()
	eventually(s.t, func() string {
		if r = s.get(id); slices.Contains(states, task.AttemptState(r.State)) {
			return ""
		}
		return fmt.Sprintf("the attempt is %s (%s); expected %v", r.State, deref(r.Error), states)
	})
	return r
}

func (s *server) ends(id string) *attempt.FullAttemptReply {
	s.t.Helper()
	return s.reaches(id, task.Completed, task.Failed, task.Stopped, task.Interrupted)
}

func (s *server) stopAttempt(id string) {
	s.t.Helper()
	testkit.Get(s.StopAttempt(ctx, me, attempt.AttemptArgs{Target: the(id)})).Must(s.t)
}

func (s *server) comment(a CommentArgs) *CommentsReply {
	s.t.Helper()
	return testkit.Get(CommentAttempt(ctx, s.Engine, me, a)).Must(s.t)
}

// noComment checks why comments are refused.
func (s *server) noComment(a CommentArgs, kind session.Kind, code string, mentions ...string) {
	s.t.Helper()
	refused(s.t, testkit.Get(CommentAttempt(ctx, s.Engine, me, a)).Err(), kind, code, mentions...)
}

// on is a comment on a line.
func on(file string, line int, text string) CommentArg {
	return CommentArg{File: file, Line: line, Text: text}
}

// Comments on lines of a diff are collected, survive a restart, can be removed, and become one
// follow-up that quotes their lines, once.
func TestCommentsBecomeOneFollowUp(t *testing.T) {
	p := newProject(t)
	testkit.Write(t, filepath.Join(p.Root, "long.txt"), strings.Repeat("same\n", 50))
	p.commit(p.Root, "gone.txt", "was here\n")
	s := p.open()
	r := s.done("! write dir/a.go package a", "! write long.txt changed", "! commit Add",
		"! write loose.txt \tone \x1b[31mtwo")
	testkit.Write(t, filepath.Join(r.Repos[0].WorktreePath, "long.txt"), strings.Repeat("same\n", 49)+"last\r\n")
	must(t, os.Remove(filepath.Join(r.Repos[0].WorktreePath, "gone.txt")))
	target := the(r.AttemptID)
	one := s.comment(CommentArgs{Target: target, Comments: []CommentArg{on("loose.txt", 1, "Why?\n")}})
	testkit.Equal(t, one.Count, 1)
	testkit.Need(t, one.Sent == nil, "%s", asJSON(one))
	testkit.Equal(t, one.Comments[0].Quote, "\tone [31mtwo")
	testkit.Equal(t, one.Comments[0].By, "local")

	s.stop()
	s = p.open()

	more := s.comment(CommentArgs{
		Target: target,
		Comments: []CommentArg{on("long.txt", 50, "Not the last."), on("dir/../dir/a.go", 1, "Name it b."),
			on("long.txt", 10, "Far from a change."),
			{File: "gone.txt", Line: 1, Side: new("old"), Text: "Keep it.", Repo: &r.Repos[0].RepoName},
			on("loose.txt", 1, "dropped")},
	})
	for _, c := range more.Comments {
		if c.Text == "dropped" {
			more = s.comment(CommentArgs{Target: target, Remove: []string{c.CommentID}})
		}
	}
	testkit.Equal(t, more.Count, 5)
	testkit.Same(t, s.comment(CommentArgs{Target: target}), more)
	sent := s.comment(CommentArgs{Target: target, Send: true})

	const want = `These are review comments on your changes. Address each of them, and commit. A quoted line is as ` +
		`it was when the comment was made.

## dir/a.go

Line 1:
> package a

Name it b.

## gone.txt

Line 1 of the version before your changes:
> was here

Keep it.

## long.txt

Line 10:
> same

Far from a change.

Line 50:
> last

Not the last.

## loose.txt

Line 1:
> ` + "\tone [31mtwo" + `

Why?
`
	testkit.Equal(t, deref(sent.Sent), "started", "sent %s, %d wait:\n%s", deref(sent.Sent), sent.Count,
		deref(sent.Prompt))
	testkit.Equal(t, deref(sent.Prompt), want, "sent %s, %d wait:\n%s", deref(sent.Sent), sent.Count,
		deref(sent.Prompt))
	testkit.Equal(t, sent.Count, 0, "sent %s, %d wait:\n%s", deref(sent.Sent), sent.Count, deref(sent.Prompt))

	r = s.ends(r.AttemptID)
	x := testkit.Get(testkit.Get(s.Store(ctx)).Must(t).LatestExecution(ctx, r.AttemptID)).Must(t)
	testkit.True(t, x.Prompt == want && x.FollowUp, "the agent got %q", x.Prompt)
	s.noComment(CommentArgs{Target: target, Send: true}, session.StateError, "no_comments", r.AttemptID)
	testkit.Equal(t, len(s.get(r.AttemptID).Executions), 2, "sent twice")
}

// While the agent runs, comments are queued; a call that is repeated adds and sends nothing again; and
// comments that cannot be sent are kept.
func TestCommentsOfARunningAgent(t *testing.T) {
	p := newProject(t)
	hold, s := filepath.Join(p.Root, "..", "hold"), p.open()
	r := s.begin(s.newTask("! write a.txt a", "! touch "+hold+".ready", "! await "+hold))
	testkit.Until(t, "ready", func() bool { return attempt.Exists(hold + ".ready") })

	target := the(r.AttemptID)
	s.reaches(r.AttemptID, task.Running)
	call := CommentArgs{
		Target:    target,
		Comments:  []CommentArg{on("a.txt", 1, "First.")},
		Send:      true,
		RequestID: new("x"),
	}
	first := s.comment(call)
	testkit.Equal(t, deref(first.Sent), "queued")
	testkit.Equal(t, first.Count, 1)
	testkit.True(t, first.Comments[0].Queued, "%s", asJSON(first))
	testkit.True(t, first.Notice != nil, "%s", asJSON(first))

	again := s.comment(call)
	testkit.Need(t, again.Sent == nil, "repeated: %s", asJSON(again))
	testkit.Equal(t, again.Count, 1, "repeated: %s", asJSON(again))
	testkit.Contains(t, deref(again.Notice), "before", "repeated: %s", asJSON(again))

	both := s.comment(CommentArgs{Target: target, Comments: []CommentArg{on("a.txt", 1, "Second.")}, Send: true})
	testkit.True(t, deref(both.Sent) == "queued" && both.Count == 2, "%s", asJSON(both))
	testkit.ContainsAll(t, asJSON(s.get(r.AttemptID).QueuedFollowUp), []string{"First.", "Second."})
	s.noComment(CommentArgs{Target: target, Remove: []string{both.Comments[0].CommentID}}, session.ToolError,
		"unknown_comment", both.Comments[0].CommentID)
	testkit.Get(s.FollowUp(ctx, me,
		attempt.FollowUpArgs{Target: target, Action: attempt.ActionQueue, Prompt: new("! say of a person")})).Must(t)
	kept := s.comment(CommentArgs{Target: target, Comments: []CommentArg{on("a.txt", 1, "Third.")}, Send: true})
	testkit.Need(t, kept.Sent == nil, "another one is queued: %s", asJSON(kept))
	testkit.Equal(t, kept.Count, 3, "another one is queued: %s", asJSON(kept))
	testkit.True(t, !kept.Comments[0].Queued, "another one is queued: %s", asJSON(kept))
	testkit.ContainsAll(t, deref(kept.Notice), []string{"kept", "queued"})

	s.noComment(CommentArgs{Target: target, Send: true}, session.StateError, "follow_up_queued", "cancel")
	must(t, os.WriteFile(hold, nil, 0o644))
	testkit.Until(t, "followed up", func() bool {
		now := s.get(r.AttemptID).Executions
		return len(now) > 1 && now[0].Prompt == "! say of a person"
	})

	s.ends(r.AttemptID)
	testkit.Equal(t, s.comment(CommentArgs{Target: target, Remove: []string{"all"}}).Count, 0)
}

// A comment that is not about a line of the diff is refused with what is wrong, and so are too many and too long ones.
func TestCommentsThatAreRefused(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.done("! write dir/a.txt a", "! write image x")
	testkit.Write(t, filepath.Join(r.Repos[0].WorktreePath, "image"), "\x00\x01\n")
	target := the(r.AttemptID)
	refuse := func(c CommentArg, code string, mentions ...string) {
		t.Helper()
		s.noComment(CommentArgs{Target: target, Comments: []CommentArg{on("dir/a.txt", 1, "fine"), c}},
			session.ToolError, code, append(mentions, "comments[1]")...)
	}
	refuse(on("dir/a.txt", 3, "x"), "not_in_diff", "line 3", "last line is 1")
	refuse(on("dir/a.txt", 0, "x"), "not_in_diff", "line 0")
	refuse(CommentArg{File: "dir/a.txt", Line: 1, Side: new("old"), Text: "x"}, "not_in_diff", "old")
	refuse(CommentArg{File: "dir/a.txt", Line: 1, Side: new("left"), Text: "x"}, "unknown_side", "left")
	refuse(CommentArg{File: "dir/a.txt", Line: 1, Repo: new("other"), Text: "x"}, "unknown_repo", "other", "shop")
	for file, code := range map[string]string{
		"dir":         "not_in_diff",
		"README":      "not_in_diff",
		"no-such":     "not_in_diff",
		"image":       "not_in_diff",
		"../home":     "bad_path",
		"/etc/passwd": "bad_path",
	} {
		refuse(on(file, 1, "x"), code, `"`+file+`"`) // README is unchanged
	}
	refuse(on("dir/a.txt", 1, " \n"), "missing_comment")
	refuse(on("dir/a.txt", 1, "a\x00b"), "not_text")
	refuse(on("dir/a.txt", 1, strings.Repeat("é", task.MaxComment+1)), "too_long", fmt.Sprint(task.MaxComment+1))
	many := slices.Repeat([]CommentArg{on("dir/a.txt", 1, "x")}, task.MaxComments+1)
	s.noComment(CommentArgs{Target: target, Comments: many}, session.ToolError, "too_many_comments", "101")
	long := slices.Repeat([]CommentArg{on("dir/a.txt", 1, strings.Repeat("x", task.MaxComment))},
		board.MaxPrompt/task.MaxComment)
	s.noComment(CommentArgs{Target: target, Comments: long}, session.ToolError, "too_long", "all comments")
	testkit.Equal(t, s.comment(CommentArgs{Target: target, Comments: many[1:]}).Count, task.MaxComments, "comments")
	s.noComment(CommentArgs{Target: target, Comments: many[:1]}, session.ToolError, "too_many_comments", "101")
	refused(t, testkit.Get(CommentAttempt(ctx, s.Engine, session.Caller{Identity: "local"},
		CommentArgs{Target: target, Send: true})).Err(), session.StateError, "right_needed")

	// Its workspace is gone, so nothing can be sent.
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	s.noComment(CommentArgs{Target: target, Send: true}, session.StateError, "workspace_gone")
	s.noComment(CommentArgs{Target: target, Remove: []string{"all"}, Comments: many[:1]}, session.StateError,
		"workspace_gone")
	testkit.Equal(t, s.comment(CommentArgs{Target: target}).Count, task.MaxComments, "a refused call left comments")
}

// The lines of a diff are found by their file and side, whatever they and the names look like.
func TestLinesOfADiff(t *testing.T) {
	t.Parallel()
	testkit.Same(t, diffLines("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n same\n\\ No "+
		"newline\ndiff --git a/z b/z\n--- /dev/null\n+++ \"b/\\303\\251 \\\"\"\t\n@@ -0,0 +1 @@\n+z\n", `é "`, "new"),
		map[int]string{1: "z"})

	for side, want := range map[string]map[int]string{
		"new": {1: "++ b/y", 2: "same"},
		"old": {1: "-- a/y", 2: "same"},
	} {
		testkit.Same(t, diffLines("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n same\n",
			"x", side), want, "%s", side)
	}
}
