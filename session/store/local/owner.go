package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"deepwork/actor/durable"
)

// enter returns the folder, held open, after it made sure that this server looks
// alive: a server that believes it owns records must not look dead. held means that
// the caller has the claim lock.
func (s *Store) enter(ctx context.Context, held bool) (*durable.Folder, error) {
	for range putTries {
		if f := s.folder.Load(); s.stands(f) {
			return f, nil
		}
		if err := s.claimed(ctx, held, func() error { return s.claimPlace(ctx) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the session folder %s vanishes again and again; stop what removes it and call again", s.dir)
}

// stands reports whether this server looks alive and f is still what others see at
// the folder's path.
func (s *Store) stands(f *durable.Folder) bool {
	return f != nil && s.member.Stands() && f.Stands()
}

// claimPlace enters the folder. The caller holds the claim lock.
func (s *Store) claimPlace(ctx context.Context) error {
	if s.stands(s.folder.Load()) {
		return nil // another call of this store was faster
	}
	s.folder.Store(nil) // it counts again when all that follows has been done
	if err := s.member.Enter(ctx); err != nil {
		return fmt.Errorf("claiming a place in the session folder: %w", err)
	}
	s.sweep(ctx)
	if err := s.entered(); err != nil {
		return err
	}
	dir, err := s.disk.OpenFolder(s.dir)
	if err != nil {
		return durable.Explain(err, s.dir)
	}
	s.folder.Store(dir)
	return nil
}

// claimed runs fn under the claim lock; held tells that the caller has it.
func (s *Store) claimed(ctx context.Context, held bool, fn func() error) error {
	if held {
		return fn()
	}
	return s.claim.Do(ctx, fn)
}

// Alive is presence.Member.Alive.
func (s *Store) Alive(server string) bool { return s.member.Alive(server) }

// Describe is presence.Member.Describe.
func (s *Store) Describe(server string) string { return s.member.Describe(server) }
