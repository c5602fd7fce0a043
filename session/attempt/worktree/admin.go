package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session/git"
)

// maxGitFile is the maximum size in bytes of one of git's files that hold a path.
const maxGitFile = 1 << 20

// git has an administrative folder for each worktree below the repository's worktrees/: its HEAD,
// its index, and in the file gitdir the worktree's path (gitrepository-layout(5)).

// admins lists the administrative folders of a repository's worktrees.
func admins(common string) []string {
	parent := filepath.Join(common, "worktrees")
	list, _ := os.ReadDir(parent) // git removes the folder with the last worktree
	var out []string
	for _, f := range list {
		if f.IsDir() {
			out = append(out, filepath.Join(parent, f.Name()))
		}
	}
	return out
}

// adminOf returns the administrative folder of the worktree at a path, which may be missing, or ""
// if the repository has no such worktree.
func adminOf(common, path string) string {
	want := canonical(path)
	for _, admin := range admins(common) {
		if pathOf(admin) == want {
			return admin
		}
	}
	return ""
}

// admin is adminOf for a worktree in the journal. It returns ErrNotOurs if git would take the
// folder for one of another repository.
func (e *record) admin() (string, error) {
	admin := adminOf(e.Common, e.Path)
	if admin == "" {
		return "", nil
	}
	common, err := commonDir(admin)
	if errors.Is(err, os.ErrNotExist) || err == nil && common != canonical(e.Common) {
		err = fmt.Errorf("%w: %s must name the repository %s but names another; correct it", ErrNotOurs, filepath.Join(admin, "commondir"), e.Common)
	}
	return admin, err
}

// pathOf returns the path of an administrative folder's worktree, without symlinks, or "" if it is
// unknown.
func pathOf(admin string) string {
	data, _, err := durable.Read(filepath.Join(admin, "gitdir"), maxGitFile)
	if err != nil || len(data) == 0 {
		return ""
	}
	at := filepath.FromSlash(strings.TrimRight(string(data), "\r\n"))
	if !filepath.IsAbs(at) {
		at = filepath.Join(admin, at) // worktree.useRelativePaths
	}
	return canonical(filepath.Dir(at))
}

// canonical resolves the symlinks of a path, as far as it exists.
func canonical(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(canonical(parent), filepath.Base(path))
}

// initializing is the content of git's own lock while worktree add runs.
const initializing = "initializing"

// lockedBy reports whether a worktree is locked (git worktree lock), and why.
func lockedBy(admin string) (reason string, locked bool) {
	data, _, err := durable.Read(filepath.Join(admin, "locked"), maxGitFile)
	return strings.TrimSpace(string(data)), err == nil && admin != ""
}

// dropAdmin removes the repository's entry of a worktree whose folder is gone. The repository must
// be locked.
func dropAdmin(ctx context.Context, common, path string) error {
	admin := adminOf(common, path)
	if admin == "" {
		return nil
	}
	// Twice, for the lock of a worktree add that was killed.
	_, err := git.Output(ctx, inRepo(common, "worktree", "remove", "--force", "--force", pathOf(admin)))
	if err != nil && adminOf(common, path) != "" {
		return fmt.Errorf("removing the worktree %s: %w", path, err)
	}
	return nil
}
