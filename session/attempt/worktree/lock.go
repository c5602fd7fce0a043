package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"deepwork/actor/wait"
)

// Locks order what the calls of one process and of several do: an attempt's is
// held for a whole Create or Remove, a repository's for the git commands that
// write what all its worktrees share. Who holds one takes an attempt's first, and
// one repository's at a time, so nobody waits for itself.

// turns lets the calls of one process go one after another, in order, before
// they compete with other processes for the file. Its zero value is ready.
type turns struct {
	mu  sync.Mutex
	all map[string]*place
}

// A place is one lock's. room holds one value while somebody has the turn.
type place struct {
	room  chan struct{}
	users int // who have it or wait for it
}

func (t *turns) take(ctx context.Context, path string) (release func(), err error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]*place{}
	}
	p := t.all[path]
	if p == nil {
		p = &place{room: make(chan struct{}, 1)}
		t.all[path] = p
	}
	p.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(t.all, path)
		}
	}
	select {
	case p.room <- struct{}{}:
		return func() { <-p.room; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// errBusy is from a lock that is not waited for.
var errBusy = errors.New("another one holds the lock")

func (k *Keeper) locks() string { return filepath.Join(k.journals(), "locks") }

func (k *Keeper) attemptLock(attempt string) string {
	return filepath.Join(k.locks(), "attempt-"+attempt+".lock")
}

// lockRepo waits until nobody else of ours writes to a repository, and clears away what
// killed servers have left there in the way of all.
func (k *Keeper) lockRepo(ctx context.Context, r *repo) (unlock func(), err error) {
	sum := sha256.Sum256([]byte(r.common))
	unlock, err = k.lock(ctx, filepath.Join(k.locks(), "repo-"+hex.EncodeToString(sum[:8])+".lock"))
	if err != nil {
		return nil, err
	}
	if err := k.healForAll(ctx, r.common); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lock waits for a lock of this process and of all.
func (k *Keeper) lock(ctx context.Context, path string) (unlock func(), err error) {
	release, err := k.waiting.take(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f, err := k.tryLock(path)
		if err == nil {
			return func() { f.Close(); release() }, nil
		}
		if errors.Is(err, errBusy) {
			err = wait.For(ctx, pause/2+rand.N(pause))
		}
		if err != nil {
			release()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
		}
	}
}

// tryLock takes a lock of all processes, or fails with errBusy. The folder and
// the file are made where they are missing.
func (k *Keeper) tryLock(path string) (*flock.Flock, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		f := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
		ok, err := f.TryLock()
		switch {
		case errors.Is(err, fs.ErrNotExist): // the folder vanished just now
		case err != nil:
			f.Close()
			return nil, err
		case !ok:
			f.Close()
			return nil, errBusy
		default:
			held, err := f.Stat()
			now, gone := os.Lstat(path)
			if err == nil && gone == nil && os.SameFile(held, now) {
				return f, nil
			}
			f.Close() // the file was removed before it was locked, and guards nothing
		}
	}
}

// lockAttempt waits until no other call works on an attempt. forget tells that
// the attempt is no more, so its lock file goes too.
func (k *Keeper) lockAttempt(ctx context.Context, attempt string) (unlock func(), err error) {
	path := k.attemptLock(attempt)
	release, err := k.lock(ctx, path)
	if err != nil {
		return nil, err
	}
	return func() { k.tidyLock(attempt); release() }, nil
}

// tidyLock removes the lock file of an attempt that has no journal. Its lock is
// held; who waits for it notices that the file is another.
func (k *Keeper) tidyLock(attempt string) {
	if _, err := os.Lstat(k.journalPath(attempt)); errors.Is(err, fs.ErrNotExist) {
		os.Remove(k.attemptLock(attempt)) // fails where open files cannot be removed: then it stays
	}
}
