package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"deepwork/actor/durable"
)

// claimWait is how long a call waits for the claim lock; whoever holds it does
// so for one look through the folder.
const claimWait = 10 * time.Second

// enter sees to it that this server is known to live before it owns a run: its
// lock file and its journal stand, also where somebody removed them, or the whole
// folder.
func (s *store) enter(ctx context.Context, held bool) error {
	s.mu.Lock()
	closed, stands := s.closed, s.stands()
	s.mu.Unlock()
	if closed {
		return errStoreClosed
	}
	if stands {
		return nil
	}
	if held {
		return s.claim()
	}
	return s.underClaim(ctx, s.claim)
}

// stands tells whether this server's files are there. The lock is held.
func (s *store) stands() bool {
	return s.lock != nil && durable.Stands(s.lock, s.lock.Path()) && durable.Stands(s.file, s.file.Name())
}

// claim makes and locks this server's file, and opens its journal. The caller holds the claim lock, so
// that nobody sees the file before it is locked.
func (s *store) claim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStoreClosed
	}
	if s.stands() {
		return nil // another call was faster
	}
	if s.lock != nil {
		s.lock.Close()
		s.file.Close()
		s.lock, s.file = nil, nil
	}
	lock := flock.New(s.lockPath(s.server), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = errors.New("another process holds a lock on it")
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w; the file system must support file locks", lock.Path(), err)
	}
	if err = s.openJournal(); err != nil {
		lock.Close()
		return fmt.Errorf("opening the journal of runs: %w", err)
	}
	s.lock, s.limit = lock, journalLimit
	return s.disk.SyncFolder(s.dir)
}

// underClaim runs fn while no other server, and no other call here, holds the
// claim lock. It makes the folder where it is missing, and blocks no longer than
// claimWait, or until ctx ends.
func (s *store) underClaim(ctx context.Context, fn func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, claimWait,
		fmt.Errorf("another deepwork server has held %s for %v; end the one that hangs", s.claimPath(), claimWait))
	defer cancel()
	select {
	case s.claiming <- struct{}{}:
		defer func() { <-s.claiming }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		if err := s.makeFolder(); err != nil {
			return err
		}
		lock := flock.New(s.claimPath(), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
		ok, err := lock.TryLockContext(ctx, 2*time.Millisecond)
		switch {
		case ok && durable.Stands(lock, lock.Path()):
			defer lock.Close()
			return fn()
		case ok:
			lock.Close() // somebody removed the file, or the folder
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("locking %s: %w", s.claimPath(), err)
		}
	}
}

// makeFolder makes the folder, for this user alone, and keeps git away from it.
func (s *store) makeFolder() error {
	if fi, err := os.Stat(s.dir); err == nil && fi.IsDir() {
		return nil
	}
	for _, dir := range []string{filepath.Dir(s.dir), s.dir} {
		if err := s.disk.MakeFolder(dir, 0o700); err != nil {
			return durable.Explain(fmt.Errorf("making the folder of runs: %w", err), dir)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, ".gitignore"), []byte("*\n"), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("making the folder of runs: %w", err)
	}
	return nil
}

// alive tells whether the server with this id runs. What cannot be told counts
// as alive: two owners of a run are worse than none. The caller holds the claim
// lock.
func (s *store) alive(server string) bool {
	path := s.lockPath(server)
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return false
	}
	probe := flock.New(path, flock.SetFlag(os.O_RDWR))
	free, err := probe.TryLock()
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		s.log.Warn("cannot tell whether a server lives; taking it for alive", "path", path, "error", err)
		return true
	}
	if free {
		probe.Close()
	}
	return !free
}

// sweep removes what servers that are gone have left, their journals aside,
// which are not removed before their runs are somebody's. The caller holds the
// claim lock.
func (s *store) sweep(names []string, alive func(server string) bool) {
	for _, name := range names {
		server, found := serverOf(name, "server_", ".lock")
		if !found {
			server, found = serverOf(name, "write_", ".tmp")
		}
		if found && !alive(server) {
			s.remove(name)
		}
	}
}

// serverOf returns the id of the server whose file has this name.
func serverOf(name, prefix, suffix string) (string, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	rest, end := strings.CutSuffix(rest, suffix)
	server, _, _ := strings.Cut(rest, "_")
	return server, ok && end && isHex(server)
}

// remove deletes a file of the folder that is of no use any more.
func (s *store) remove(name string) {
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot sweep the folder of runs", "file", name, "error", err)
	}
}

// close gives up this server's place: its runs are anybody's.
func (s *store) close() error {
	s.mu.Lock()
	lock, file := s.lock, s.file
	s.lock, s.file, s.closed = nil, nil, true
	s.mu.Unlock()
	if lock == nil {
		return nil
	}
	if err := errors.Join(file.Close(), lock.Close()); err != nil {
		return fmt.Errorf("closing the folder of runs: %w", err)
	}
	if err := os.Remove(lock.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("closing the folder of runs: %w", err)
	}
	return nil
}

func (s *store) lockPath(server string) string {
	return filepath.Join(s.dir, "server_"+server+".lock")
}

func (s *store) journalPath(server string) string {
	return filepath.Join(s.dir, "runs_"+server+".jsonl")
}

func (s *store) claimPath() string { return filepath.Join(s.dir, "claim.lock") }
