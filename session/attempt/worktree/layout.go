package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"deepwork/actor/durable"
)

// Where a keeper has its things:
//
//	<dir>/<attempt>/<repo>          the worktrees
//	<dir>/<attempt>.removing        the same while it is removed
//	<journal>/<attempt>.json        what was made for an attempt
//	<journal>/locks                 locks
//
// The folder of worktrees may be in a project, where others write too: there nothing is
// used or removed but what a journal names, and no link is followed.

// privateFolder is the folder in Dir that does not belong to an attempt.
const privateFolder = ".journal"

// folder returns the attempt's folder, which contains its worktrees.
func (k *Keeper) folder(attempt string) string { return filepath.Join(k.dir, attempt) }

// gone returns the path to which the attempt's folder is renamed when its removal is decided.
func (k *Keeper) gone(attempt string) string { return k.folder(attempt) + ".removing" }

func (k *Keeper) locks() string { return filepath.Join(k.journal, "locks") }

// private reports whether nobody else writes to the folder of worktrees.
func (k *Keeper) private() bool { return k.journal == filepath.Join(k.dir, privateFolder) }

// Safe returns ErrNotOurs if one of the keeper's own folders, a worktree, or the folder that it
// is in is a link: its target is not ours.
func (k *Keeper) Safe(paths ...string) error {
	own := []string{filepath.Join(k.dir, privateFolder), k.journal, k.locks()}
	if rel, err := filepath.Rel(k.project, k.dir); k.project != "" && err == nil && filepath.IsLocal(rel) {
		for at := k.dir; at != k.project; at = filepath.Dir(at) {
			own = append(own, at)
		}
	}
	for _, path := range paths {
		if parent := filepath.Dir(path); parent != k.dir {
			own = append(own, parent)
		}
		own = append(own, path)
	}
	for _, path := range own {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
			return fmt.Errorf("%w: %s is %s; remove it, what it leads to is left alone", ErrNotOurs, path, durable.Kind(info.Mode()))
		} else if err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// empty deletes what was renamed to gone.
func (k *Keeper) empty(attempt string) error {
	root, err := os.OpenRoot(k.dir)
	if missing(err) {
		return nil
	} else if err != nil {
		return err
	}
	defer root.Close()
	return removeAll(root, filepath.Base(k.gone(attempt)))
}

// removeAll deletes a folder, even if folders in it are read-only, as in package caches.
func removeAll(root *os.Root, name string) error {
	if root.RemoveAll(name) == nil {
		return nil
	}
	fs.WalkDir(root.FS(), filepath.ToSlash(name), func(at string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			root.Chmod(filepath.FromSlash(at), 0o700) // before it is read
		}
		return nil
	})
	return root.RemoveAll(name)
}

// scratch creates a folder for temporary files; done removes it.
func scratch() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp("", "deepwork-git-*")
	return dir, func() { os.RemoveAll(dir) }, err
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// missing reports whether an error means that nothing exists at a path.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Locks order the calls of one or several processes: an attempt's is held for a whole Create or
// Remove, a repository's for the git commands that write data shared by all its worktrees. A call
// takes its attempt's lock first, then one repository's at a time, which prevents deadlocks.

func (k *Keeper) attemptLock(attempt string) string {
	return filepath.Join(k.locks(), "attempt-"+attempt+".lock")
}

// lock waits for a lock that all processes share.
func (k *Keeper) lock(ctx context.Context, path string) (*durable.FileLock, error) {
	if err := os.MkdirAll(k.locks(), 0o700); err != nil {
		return nil, err
	}
	lock, err := durable.Lock(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
	}
	return lock, nil
}

// lockRepo waits until no other call of this program writes to a repository.
func (k *Keeper) lockRepo(ctx context.Context, common string) (unlock func(), err error) {
	sum := sha256.Sum256([]byte(common))
	lock, err := k.lock(ctx, filepath.Join(k.locks(), "repo-"+hex.EncodeToString(sum[:8])+".lock"))
	if err != nil {
		return nil, err
	}
	return func() { lock.Unlock() }, nil
}

// lockAttempt waits until no other call works on an attempt. unlock removes the lock's file if the
// attempt no longer has a journal.
func (k *Keeper) lockAttempt(ctx context.Context, attempt string) (unlock func(), err error) {
	if err := k.Safe(k.folder(attempt)); err != nil {
		return nil, err
	}
	lock, err := k.lock(ctx, k.attemptLock(attempt))
	if err != nil {
		return nil, err
	}
	return func() {
		if _, err := os.Lstat(k.journalPath(attempt)); errors.Is(err, fs.ErrNotExist) {
			lock.Remove() // fails where open files cannot be removed: the file stays
		} else {
			lock.Unlock()
		}
	}, nil
}

// Await waits until no other call works on an attempt, in any process.
func (k *Keeper) Await(ctx context.Context, attempt string) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err == nil {
		unlock()
	}
	return err
}

// busy reports whether a call is working on an attempt. It creates no lock file.
func (k *Keeper) busy(attempt string) bool {
	locked, err := durable.Locked(k.attemptLock(attempt))
	return locked || err != nil
}
