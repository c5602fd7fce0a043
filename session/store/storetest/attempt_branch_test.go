package storetest_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"

	"github.com/google/uuid"
)

// An execution that ended while no server was there says when, and never before
// it was made or after now.
func TestEndedBefore(t *testing.T) {
	for name, c := range map[string]struct{ ended, want time.Duration }{
		"between": {30 * time.Minute, 30 * time.Minute}, "before it was made": {-time.Hour, 0}, "in the future": {2 * time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b, clock, p := newBoard(t)
			try(t, b, addTask(t, b, p, "one"))
			x, _ := run(t, b)
			clock.forward(time.Hour)
			at := x.CreatedAt.Add(c.ended)
			end(t, b, x, task.Ending{State: task.Completed, EndedAt: &at})
			got, err := b.Execution(t.Context(), x.ID)
			if err != nil || got.EndedAt == nil || got.EndedAt.Sub(x.CreatedAt) != c.want {
				t.Errorf("it ended at %v, %v", got.EndedAt, err)
			}
		})
	}
}

// A branch can be drawn again until there are worktrees on it.
func TestSetBranch(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	testkit.Must(t, b.SetBranch(t.Context(), a.ID, "deepwork/other-1111"))
	attempt := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, attempt.Branch, "deepwork/other-1111")
	fails(t, b.SetBranch(t.Context(), "nobody", "x"), task.ErrNotFound)
	testkit.Must(t, b.SetWorkspace(t.Context(), a.ID, map[string]string{a.Repos[0].RepoID: "abc"}))
	fails(t, b.SetBranch(t.Context(), a.ID, "deepwork/third-1111"), task.ErrInvalid)
}

func TestWorktreeFolders(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	want := []string{filepath.FromSlash("/a b/trees"), filepath.FromSlash("/c")}
	for _, folder := range append(want, want[0]) {
		id := uuid.NewString()
		repo := task.AttemptRepo{RepoID: "r", RepoName: "r", RepoPath: "/r", TargetBranch: "main", Worktree: filepath.Join(folder, id, "r")}
		testkit.Must(t, second(b.CreateAttempt(t.Context(), task.Attempt{ID: id, TaskID: s.ID, Branch: "b", Workspace: repo.Worktree, Repos: []task.AttemptRepo{repo}}, task.Execution{}, task.Request{})))
	}
	got, err := b.WorktreeFolders(t.Context(), task.Place{})
	slices.Sort(got)
	testkit.Must(t, err)
	equal(t, got, want)
}
