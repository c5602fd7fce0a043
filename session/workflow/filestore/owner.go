package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"deepwork/actor/durable"
)

// A place is what this server needs to write: the folder kept open, at a time when
// the server was known to live.
type place struct {
	folder *durable.Folder
	refs   int // guarded by Store.mu; one is the store's own
}

// enter returns the place, claimed at the first call, and claimed again when
// somebody removed the lock file or the whole folder: a server that believes to
// own records must not look dead. leave ends its use.
func (s *Store) enter(held bool) (*place, error) {
	for range putTries {
		if p := s.current(); p != nil {
			if s.stands(p) {
				return p, nil
			}
			s.leave(p)
		}
		if err := s.claimed(held, s.claimPlace); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the session folder %s vanishes again and again; stop what removes it and call again", s.dir)
}

func (s *Store) current() *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place != nil {
		s.place.refs++
	}
	return s.place
}

// leave gives a use of the place back; the last one closes it.
func (s *Store) leave(p *place) {
	s.mu.Lock()
	p.refs--
	last := p.refs == 0
	s.mu.Unlock()
	if last {
		p.folder.Close()
	}
}

// stands tells whether this server looks alive, and the place is still what others
// see at its path.
func (s *Store) stands(p *place) bool { return s.presence.Stands() && p.folder.Stands() }

// claimPlace makes the place. The caller holds the claim lock.
func (s *Store) claimPlace() error {
	if p := s.current(); p != nil {
		defer s.leave(p)
		if s.stands(p) {
			return nil // another call of this store was faster
		}
	}
	s.dropPlace() // it counts again when all that follows has been done
	s.ignore()
	s.sweep()
	if err := s.presence.Enter(context.Background()); err != nil {
		return fmt.Errorf("claiming a place in the session folder: %w", err)
	}
	if err := s.entered(); err != nil {
		return err
	}
	dir, err := s.disk.OpenFolder(s.dir)
	if err != nil {
		return durable.Explain(err, s.dir)
	}
	s.mu.Lock()
	s.place = &place{folder: dir, refs: 1}
	s.mu.Unlock()
	return nil
}

// dropPlace ends the store's own use of the place, if it has one.
func (s *Store) dropPlace() {
	s.mu.Lock()
	p := s.place
	s.place = nil
	s.mu.Unlock()
	if p != nil {
		s.leave(p)
	}
}

// claimed runs fn under the claim lock; held tells that the caller has it.
func (s *Store) claimed(held bool, fn func() error) error {
	if held {
		return fn()
	}
	return s.claim.Do(context.Background(), fn)
}

// Alive tells whether the server with this id runs, here or in another process.
// What cannot be told (a lock file of another user, say) counts as alive, since
// a record must never be taken from a server that lives. It does not block, and
// remembers nothing: each call asks the system.
func (s *Store) Alive(server string) bool { return s.presence.Alive(server) }

// Describe tells people which process a server is, as "pid 123 on host since
// 2026-01-31T12:00:00Z", or "" where its lock file is gone or says nothing.
func (s *Store) Describe(server string) string { return s.presence.Describe(server) }
