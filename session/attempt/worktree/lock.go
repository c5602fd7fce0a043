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

// Locks order what the calls of one process and of several do: an attempt's is
// held for a whole Create or Remove, a repository's for the git commands that
// write what all its worktrees share. A call takes its attempt's lock first, and
// one repository's at a time, so that none waits for itself.

// errBusy is the error of a lock that is not waited for.
var errBusy = errors.New("another one holds the lock")

func (k *Keeper) locks() string { return filepath.Join(k.journals(), "locks") }

func (k *Keeper) attemptLock(attempt string) string {
	return filepath.Join(k.locks(), "attempt-"+attempt+".lock")
}

// lockRepo waits until no other call of this program writes to a repository, and
// removes what killed servers have left there in the way of all.
func (k *Keeper) lockRepo(ctx context.Context, r *repo) (unlock func(), err error) {
	sum := sha256.Sum256([]byte(r.common))
	lock, err := k.lock(ctx, filepath.Join(k.locks(), "repo-"+hex.EncodeToString(sum[:8])+".lock"))
	if err != nil {
		return nil, err
	}
	if err := k.clearObstacles(ctx, r.common); err != nil {
		lock.Unlock()
		return nil, err
	}
	return func() { lock.Unlock() }, nil
}

// lockAttempt waits until no other call works on an attempt.
func (k *Keeper) lockAttempt(ctx context.Context, attempt string) (unlock func(), err error) {
	lock, err := k.lock(ctx, k.attemptLock(attempt))
	if err != nil {
		return nil, err
	}
	return func() { k.unlockAttempt(attempt, lock) }, nil
}

// Await waits until no other call works on an attempt, in any process.
func (k *Keeper) Await(ctx context.Context, attempt string) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err == nil {
		unlock()
	}
	return err
}

// tryLockAttempt is lockAttempt that does not wait: it fails with errBusy.
func (k *Keeper) tryLockAttempt(attempt string) (unlock func(), err error) {
	if err := os.MkdirAll(k.locks(), 0o700); err != nil {
		return nil, err
	}
	lock, err := durable.TryLock(k.attemptLock(attempt))
	switch {
	case err != nil:
		return nil, err
	case lock == nil:
		return nil, errBusy
	}
	return func() { k.unlockAttempt(attempt, lock) }, nil
}

// unlockAttempt releases the lock of an attempt, and removes its file if the attempt
// has no journal any more.
func (k *Keeper) unlockAttempt(attempt string, lock *durable.FileLock) {
	if _, err := os.Lstat(k.journalPath(attempt)); errors.Is(err, fs.ErrNotExist) {
		lock.Remove() // fails where open files cannot be removed: then the file stays
	} else {
		lock.Unlock()
	}
}

// lock waits for a lock of all processes. Its folder is made if it is missing.
func (k *Keeper) lock(ctx context.Context, path string) (*durable.FileLock, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		lock, err := durable.Lock(ctx, path)
		switch {
		case err == nil:
			return lock, nil
		case !errors.Is(err, fs.ErrNotExist): // else the folder was removed just now
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
		}
	}
}

// busy reports whether a call works on an attempt just now. It makes no lock file.
func (k *Keeper) busy(attempt string) bool {
	locked, err := durable.Locked(k.attemptLock(attempt))
	return locked || err != nil
}
