package presence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"deepwork/actor/durable"
)

// A Claim is the lock under which the servers of a folder decide, one after the
// other, whose something is. Its file, claim.lock, is never removed by them.
type Claim struct {
	Path string        // of the lock file
	Wait time.Duration // how long Do waits; whoever holds it is to be through long before

	makeFolder func() error
	claiming   chan struct{} // capacity 1: full while a call here has, or waits for, the lock
}

// NewClaim returns the Claim of a folder, which waits for 10 s. makeFolder makes
// the folder where it is missing, and is called at each try.
func NewClaim(dir string, makeFolder func() error) *Claim {
	return &Claim{Path: filepath.Join(dir, "claim.lock"), Wait: 10 * time.Second, makeFolder: makeFolder, claiming: make(chan struct{}, 1)}
}

// Do runs fn while no other server, and no other call of this Claim, runs one,
// and returns its error. It blocks for fn, and before that for Wait at most, or
// until ctx ends. fn must not call Do.
func (c *Claim) Do(ctx context.Context, fn func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, fmt.Errorf(
		"another server has held the lock %s for %v; wait for it, or end a deepwork process that hangs, and call again", c.Path, c.Wait))
	defer cancel()
	select {
	case c.claiming <- struct{}{}:
		defer func() { <-c.claiming }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return fn()
}

func (c *Claim) lock(ctx context.Context) (*flock.Flock, error) {
	for pause := (backoff{}); ; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := c.makeFolder(); err != nil {
			return nil, err
		}
		if fi, err := os.Lstat(c.Path); err == nil && !fi.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is %s, not a file; move it out of the way and call again", c.Path, durable.Kind(fi.Mode()))
		}
		lock := flock.New(c.Path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
		ok, err := lock.TryLock()
		switch {
		case ok && durable.Stands(lock, c.Path):
			return lock, nil
		case ok:
			lock.Close() // somebody removed the file that was locked
		case err != nil && !errors.Is(err, fs.ErrNotExist): // else the folder vanished just now
			return nil, durable.Explain(fmt.Errorf("locking %s: %w", c.Path, err), c.Path)
		}
		if err := pause.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// A backoff spaces the tries of a lock that cannot be waited for with a limit. It
// begins at its zero value.
type backoff struct{ pause time.Duration }

// wait pauses, at most 25 ms and each time a little differently; the end of ctx is
// an error, its cause.
func (b *backoff) wait(ctx context.Context) error {
	b.pause = min(max(2*b.pause, 500*time.Microsecond), 15*time.Millisecond)
	select {
	case <-time.After(b.pause/2 + rand.N(b.pause)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
