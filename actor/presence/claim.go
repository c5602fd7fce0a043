package presence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
)

// A Claim is the lock under which the servers of a folder decide, one after the
// other, which of them owns something. Its file, claim.lock, is never removed by them.
type Claim struct {
	Path string        // of the lock file
	Wait time.Duration // how long Do waits for the lock

	makeFolder func() error
}

// NewClaim returns the Claim of a folder, which waits for 10 s. makeFolder creates
// the folder if it is missing.
func NewClaim(dir string, makeFolder func() error) *Claim {
	return &Claim{Path: filepath.Join(dir, "claim.lock"), Wait: 10 * time.Second, makeFolder: makeFolder}
}

// Do runs fn while no other server, and no other call of this Claim, runs one, and
// returns its error. It blocks for fn, and before that for Wait at most, or until
// ctx ends. fn must not call Do.
func (c *Claim) Do(ctx context.Context, fn func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, fmt.Errorf(
		"another server has held the lock %s for %v; wait for it, or end a deepwork process that hangs, and call again", c.Path, c.Wait))
	defer cancel()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.makeFolder(); err != nil {
			return err
		}
		lock, err := durable.Lock(ctx, c.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the folder vanished just now
		}
		if err != nil {
			return err
		}
		defer lock.Unlock()
		return fn()
	}
}
