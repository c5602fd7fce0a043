package attempt

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/catalog/task"
)

// Whatever a repository is called, its worktree has its own folder in the attempt's.
func TestFoldersOfWorktrees(t *testing.T) {
	var repos []task.AttemptRepo
	for _, name := range []string{"web", "WEB", "web-2", "", ".", "..", "../x", "a/b", ".git", "a\nb", "the api", strings.Repeat("x", 201)} {
		repos = append(repos, task.AttemptRepo{RepoName: name})
	}
	setWorktrees("/dir", repos)
	fit, seen := regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,70}$`), make(map[string]bool)
	for _, r := range repos {
		dir, name := filepath.Split(r.Worktree)
		if low := strings.ToLower(name); dir != filepath.FromSlash("/dir/") || !fit.MatchString(name) || seen[low] {
			t.Errorf("%q is in %q", r.RepoName, r.Worktree)
		} else {
			seen[low] = true
		}
	}
}
