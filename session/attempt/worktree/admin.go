package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// git keeps of each worktree an administrative folder below the repository's
// worktrees/: its HEAD, its index, and in the file gitdir where the worktree is
// (gitrepository-layout(5)).

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

// adminOf is the administrative folder of the worktree at a path, which may be
// missing; "" where the repository knows no such worktree.
func adminOf(common, path string) string {
	want := canonical(path)
	for _, admin := range admins(common) {
		data, err := os.ReadFile(filepath.Join(admin, "gitdir"))
		if err != nil {
			continue
		}
		at := filepath.FromSlash(strings.TrimRight(string(data), "\r\n"))
		if !filepath.IsAbs(at) {
			at = filepath.Join(admin, at)
		}
		if canonical(filepath.Dir(at)) == want {
			return admin
		}
	}
	return ""
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

// initializing is what git writes into a lock of its own while worktree add runs.
const initializing = "initializing"

// lockedBy tells whether a worktree is locked (git worktree lock), and why.
func lockedBy(admin string) (reason string, locked bool) {
	if admin == "" {
		return "", false
	}
	data, err := os.ReadFile(filepath.Join(admin, "locked"))
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(data)), true
}

// dropAdmin makes the repository forget a worktree whose folder is gone. The
// repository is locked.
func (k *Keeper) dropAdmin(ctx context.Context, r *repo, path string) error {
	admin := adminOf(r.common, path)
	if admin == "" {
		return nil
	}
	// Twice, for the lock of a worktree add that was killed.
	_, err := k.git(ctx, r.call("worktree", "remove", "--force", "--force", path))
	if err == nil || adminOf(r.common, path) == "" {
		return nil
	}
	if exitCode(err) < 0 {
		return fmt.Errorf("removing the worktree %s: %w", path, err)
	}
	// What a killed git left half-made, git neither reads nor removes, and then
	// refuses to list the other worktrees. It is ours: it names our folder.
	if broken := removeNamed(admin); broken != nil {
		return fmt.Errorf("removing the worktree %s: %w", path, errors.Join(err, broken))
	}
	return nil
}

// removeNamed deletes an administrative folder, and last the file that tells
// whose it is.
func removeNamed(admin string) error {
	list, err := os.ReadDir(admin)
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.Name() == "gitdir" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(admin, f.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(admin)
}

// A git that is killed with this process leaves the lock files of what it was
// doing. The following remove those that can only be ours.

// clearNameless removes what a killed worktree add left before it had told the
// worktree's place, or a killed worktree remove after it had deleted that: an
// administrative folder of no worktree at all.
func (k *Keeper) clearNameless(ctx context.Context, common string, since time.Time) error {
	for _, admin := range admins(common) {
		place, err := os.ReadFile(filepath.Join(admin, "gitdir"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(place) > 0 {
			continue
		}
		witness := filepath.Join(admin, "locked")
		if reason, locked := lockedBy(admin); !locked {
			witness = admin
		} else if reason != initializing && reason != "" {
			continue
		}
		if err := k.clearStale(ctx, witness, since, func() error { return os.RemoveAll(admin) }); err != nil {
			return err
		}
	}
	return nil
}

// clearRefLocks removes locks of a ref that is ours alone, and that of the packed
// refs, which deleting a ref takes for a moment, if it is as old as our step.
func (k *Keeper) clearRefLocks(ctx context.Context, common string, since time.Time, refs ...string) error {
	for _, ref := range refs {
		lock := filepath.Join(common, filepath.FromSlash(ref)+".lock")
		if err := os.Remove(lock); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the lock of a git that was killed: %w", err)
		}
	}
	packed := filepath.Join(common, "packed-refs.lock")
	return k.clearStale(ctx, packed, since, func() error { return os.Remove(packed) })
}

// staleAfter is how long a lock that may be somebody else's must lie unchanged.
const staleAfter = 10 * time.Second

// clearStale removes a lock that was made at or after a time and that stays as it
// is for a while: nobody is at work behind it.
func (k *Keeper) clearStale(ctx context.Context, lock string, since time.Time, remove func() error) error {
	before, err := os.Lstat(lock)
	if err != nil || before.ModTime().Before(since.Add(-time.Second)) {
		return nil
	}
	for end := time.Now().Add(k.stale); time.Now().Before(end); {
		if err := sleep(ctx, k.stale/20); err != nil {
			return err
		}
		now, err := os.Lstat(lock)
		if err != nil || !os.SameFile(before, now) || now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) {
			return nil
		}
	}
	if err := remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the lock of a git that was killed: %w", err)
	}
	return nil
}
