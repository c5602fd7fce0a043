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

	"deepwork/actor/durable"
)

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
	if err := k.unlinked(k.folder(attempt)); err != nil {
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
