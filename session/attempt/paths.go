package attempt

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
)

// Where the board keeps its things, below the project root:
//
//	board.db of the state folder                      the board
//	.deepwork/worktrees/<attempt>/<repo>              the worktrees, as configured
//	.deepwork/logs/attempts/<attempt>/log             what the attempt's agents wrote
//	.deepwork/logs/attempts/<attempt>/runs/<execution>

func (e *Engine) boardPath() string { return e.o.State.Database() }

// journalOf is where the journals of the worktrees below a folder are: outside of it, if
// others may write there too.
func (e *Engine) journalOf(dir string) string {
	if own := filepath.Join(e.home, "worktrees"); dir != own {
		sum := sha256.Sum256([]byte(dir))
		return filepath.Join(own, ".journal", "of-"+hex.EncodeToString(sum[:6]))
	}
	return ""
}

// worktreesDir is where new attempts have their worktrees.
func (e *Engine) worktreesDir(cfg *config.Config) string {
	dir := filepath.FromSlash(cfg.Attempts.Worktrees)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.o.Root, dir)
	}
	return filepath.Clean(dir)
}

// worktreesOf is where an attempt has its worktrees: the config may have said
// another folder when it was made.
func worktreesOf(a *task.Attempt) string {
	return filepath.Dir(filepath.Dir(a.Repos[0].Worktree))
}

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
