package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// What is not as the board says is a finding with what to do.
func TestInspectComparesWorktreesWithTheBoard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(repo, path string, e *Expected) error
		want   string
	}{
		"nothing":        {func(string, string, *Expected) error { return nil }, ""},
		"no base":        {func(_, _ string, e *Expected) error { e.Repos[0].BaseCommit = new(strings.Repeat("f", 40)); return nil }, "is not in the repository"},
		"no worktree":    {func(_, path string, _ *Expected) error { return os.RemoveAll(path) }, "is gone; commits of it are on branch " + branchName},
		"no repository":  {func(repo, _ string, _ *Expected) error { return os.RemoveAll(repo) }, "cannot be used"},
		"unknown to git": {func(repo, _ string, _ *Expected) error { return os.RemoveAll(filepath.Join(repo, ".git", "worktrees")) }, "does not know this worktree"},
		"no branch": {func(repo, _ string, _ *Expected) error {
			_, err := tryGit(repo, "update-ref", "-d", "refs/heads/"+branchName)
			return err
		}, "is on a branch or a commit that is not in the repository"},
		"not on the board": {func(_, _ string, e *Expected) error { e.ID = "another"; e.Repos = nil; return nil }, "which is not on the board"},
		"being deleted":    {func(_, path string, e *Expected) error { e.Deleting = true; return os.RemoveAll(path) }, ""},
	} {
		repo := newRepo(t)
		k, _ := newKeeper(t)
		e := Expected{Attempt: task.Attempt{ID: attemptID, Branch: branchName, Situation: task.Situation{State: task.Running}}}
		base := gitIn(t, repo, "rev-parse", "HEAD")
		path := create(t, k, repo)
		e.Workspace = filepath.Dir(path)
		e.Repos = []task.AttemptRepo{{RepoPath: repo, Worktree: path, BaseCommit: &base}}
		testkit.Must(t, c.damage(repo, path, &e))
		r := testkit.Get(k.Inspect(t.Context(), []Expected{e})).Must(t)
		var all []string
		for _, f := range r.Findings {
			all = append(all, f.Where+": "+f.What+": "+f.Do)
		}
		found := strings.Join(all, "\n")
		testkit.True(t, (c.want != "" || found == "") && len(all) <= 1 && strings.Contains(found, c.want), "%s: %s\nwant %q", name, found, c.want)
	}
}
