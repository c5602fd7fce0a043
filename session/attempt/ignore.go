package attempt

import (
	"path/filepath"

	"deepwork/session"
)

// ignore ensures that git does not take the board's files and the worktrees
// for the project's own: missing lines are added to .deepwork/.gitignore, all
// others left alone. A worktrees folder elsewhere in the project gets a
// .gitignore of its own.
func ignore(root, worktrees string) error {
	home := filepath.Join(root, ".deepwork")
	lines := session.Ignored()
	if rel, inside := below(home, worktrees); inside {
		if rel != "worktrees" {
			lines = append(lines, "/"+rel+"/")
		}
	} else if _, inside := below(root, worktrees); inside {
		if _, err := session.Ignore(filepath.Join(worktrees, ".gitignore"), []string{"*"}); err != nil {
			return err
		}
	}
	_, err := session.Ignore(filepath.Join(home, ".gitignore"), lines)
	return err
}

// below returns the path of what is inside a folder, with slashes.
func below(folder, path string) (rel string, inside bool) {
	rel, err := filepath.Rel(folder, path)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}
