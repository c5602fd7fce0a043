package merge

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
)

// newMerger is a project whose user may commit, with a server.
func newMerger(t *testing.T, change ...func(*attempt.Options)) (*project, *server) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.DoneWhenMerged = true })
	p.Git(p.Root, "config", "user.name", "Una User")
	p.Git(p.Root, "config", "user.email", "una@example.com")
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
	t.Parallel()
	p, s := newMerger(t)
	v := s.newTask("! write a.txt hello\n! commit a\n! write b.txt hello")
	id := s.ends(s.begin(v).AttemptID).AttemptID
	merge := func(a MergeArgs, done bool, status string, state board.State, attention string) {
		t.Helper()
		a.Target, a.Way = the(id), new("squash")
		r := testkit.Get(Merge(ctx, s.Engine, me, a)).Must(t)
		now := testkit.Get(s.GetTask(ctx, me, board.TaskArgs{TaskID: v.TaskID})).Must(t)
		testkit.Same(t, []any{r.TaskDone, now.Status, *now.LatestAttemptState, s.get(id).State, needs(t, s)}, []any{done, status, state, state, attention})
	}
	merge(MergeArgs{}, false, "inreview", board.Completed, "attempt_to_review completed") // b.txt is in no commit
	merge(MergeArgs{Commit: new(true), KeepOpen: new(true)}, false, "inreview", board.Merged, "")
	merge(MergeArgs{}, true, "done", board.Merged, "")
	merge(MergeArgs{}, false, "done", board.Merged, "")
	message := p.Git(p.Root, "log", "-1", "--format=%B", "main")
	if title, rest, _ := strings.Cut(message, "\n\n"); title != v.Title || !containsAll(rest, deref(v.Description), v.TaskID, id) {
		t.Errorf("the commit of the squash says %q", message)
	}
	testkit.Get(s.FollowUp(ctx, me, attempt.FollowUpArgs{Target: the(id), Action: attempt.ActionSend, Prompt: new("! exit 0")})).Must(t)
	s.reaches(id, task.Completed) // no longer merged: its agent has worked since
}

// A run that has stopped at a step can go on and needs a person, though what it has so far is merged.
func TestAStoppedRunIsNotDoneWhenMerged(t *testing.T) {
	p, s := newMerger(t, func(o *attempt.Options) {
		o.Leader = func(context.Context, *attempt.Lead) board.RunEnd {
			return board.RunEnd{State: board.Failed, Step: "b", Reason: "No agent finished it."}
		}
	})
	made := testkit.Get(s.RunWorkflow(ctx, me, attempt.RunWorkflowArgs{JobName: "job", WorkflowName: "flow", Goal: "do it", Executor: new("TEST")})).Must(t)
	s.reaches(made.RunID, task.Failed)
	path := s.get(made.RunID).Repos[0].WorktreePath
	testkit.Write(t, filepath.Join(path, "a.txt"), "hello\n")
	p.Git(path, "add", "-A")
	p.Git(path, "commit", "-q", "-m", "a")
	r := testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(made.RunID)})).Must(t)
	testkit.Same(t, []any{r.Repos[0].Status, r.TaskDone, s.get(made.RunID).State, needs(t, s)}, []any{Merged, false, board.Failed, "run_stopped failed"})
}

// An attempt whose merge has conflicts says so, with the files, until they are resolved or the merge is undone.
func TestField25_ConflictsOfAMerge(t *testing.T) {
	t.Parallel()
	p, s := newMerger(t)
	id := s.ends(s.begin(s.newTask("! write a.txt hello\n! commit a")).AttemptID).AttemptID
	testkit.Write(t, filepath.Join(p.Root, "a.txt"), "of a person\n")
	p.Git(p.Root, "add", "-A")
	p.Git(p.Root, "commit", "-q", "-m", "a")
	testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id)})).Must(t)
	now := s.get(id)
	testkit.Same(t, []any{now.State, now.Repos[0].Conflicts, needs(t, s)}, []any{board.Conflicted, []string{"a.txt"}, "attempt_conflicts conflicts"})
	testkit.Get(Abort(ctx, s.Engine, me, BranchArgs{Target: the(id)})).Must(t)
	testkit.Same(t, []any{s.get(id).State, needs(t, s)}, []any{board.Completed, "attempt_to_review completed"}, "after it was undone")
}

// Files with the markers of a conflict are not merged, unless that is asked for; lines below headings are none.
func TestConflictMarkers(t *testing.T) {
	t.Parallel()
	p, s := newMerger(t)
	id := s.ends(s.begin(s.newTask("! write a.txt hello\n! commit a")).AttemptID).AttemptID
	path := s.get(id).Repos[0].WorktreePath
	commit := func(text string) {
		must(t, os.WriteFile(filepath.Join(path, "a.txt"), []byte(text), 0o644))
		p.Git(path, "commit", "-q", "-a", "-m", "more")
	}
	commit("<<<<<<< HEAD\nmine\n=======\nyours\n>>>>>>> main\n")
	refused(t, testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id)})).Err(), session.StateError, "not_merged", "a.txt", "force: true")
	commit("Heading\n=======\ntext \n")
	testkit.Equal(t, testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id)})).Must(t).Repos[0].Status, Merged)
	commit("<<<<<<< HEAD\nmine\n=======\nyours\n>>>>>>> main\n")
	testkit.Equal(t, testkit.Get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id), Force: new(true)})).Must(t).Repos[0].Status, Merged)
}
