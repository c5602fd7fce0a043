package local

import (
	"context"
	"fmt"

	"deepwork/actor/durable"
)

// enter returns the folder, held open, after it made sure that this server looks
// alive: a server that believes it owns records must not look dead.
func (s *Store) enter(ctx context.Context) (*durable.Folder, error) {
	if err := s.member.Enter(ctx); err != nil {
		return nil, fmt.Errorf("claiming a place in the session folder: %w", err)
	}
	if f := s.folder.Load(); f != nil && f.Stands() {
		return f, nil
	}
	s.sweep(ctx)
	f, err := s.disk.OpenFolder(s.dir)
	if err != nil {
		return nil, durable.Explain(err, s.dir)
	}
	s.folder.Store(f)
	return f, nil
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
