package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/session"
)

// enter makes sure that this server looks alive, which an owner of records must. The first call also
// prepares the session folder.
func (s *Store) enter(ctx context.Context) error {
	if err := s.member.Enter(ctx); err != nil {
		return fmt.Errorf("claiming a place among the servers of the project: %w", err)
	}
	var err error
	s.swept.Do(func() {
		err = session.MakeSessions(s.state, s.log)
		s.sweep(ctx)
	})
	return err
}

// claimed runs fn under the claim lock, claim.lock, under which servers decide who owns a record.
// held means that the caller already holds it.
func (s *Store) claimed(ctx context.Context, held bool, fn func() error) error {
	if held {
		return fn()
	}
	return s.locked(ctx, "claim.lock", fn)
}

// locked runs fn under the lock on a file in the folder of the servers, which they never remove. It
// waits for the lock for at most claimWait.
func (s *Store) locked(ctx context.Context, name string, fn func() error) error {
	path := filepath.Join(s.state.Servers(), name)
	ctx, cancel := context.WithTimeoutCause(ctx, s.claimWait, fmt.Errorf(
		"another server has held the lock %s for %v; wait for it, or end a deepwork process that hangs, and call again", path, s.claimWait))
	defer cancel()
	for {
		if err := s.makeFolder(); err != nil {
			return err
		}
		lock, err := durable.Lock(ctx, path)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // the folder just vanished
		}
		if err != nil {
			return err
		}
		defer lock.Unlock()
		return fn()
	}
}
