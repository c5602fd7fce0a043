package execution

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
)

// enter sees to it that this server is known to live before it owns a run: its
// lock file and its journal stand, also where somebody removed them, or the whole
// folder. held tells that the caller has the claim lock.
func (s *store) enter(ctx context.Context, held bool) error {
	s.mu.Lock()
	closed, stands := s.closed, s.stands()
	s.mu.Unlock()
	switch {
	case closed:
		return errStoreClosed
	case stands:
		return nil
	case held:
		return s.claimPlace(ctx)
	}
	return s.claim.Do(ctx, func() error { return s.claimPlace(ctx) })
}

// stands tells whether this server's files are there. The lock is held.
func (s *store) stands() bool {
	return s.file != nil && s.member.Stands() && durable.Stands(s.file, s.file.Name())
}

// claimPlace makes and locks this server's file, and opens its journal. The caller
// holds the claim lock. Who writes meanwhile waits, and writes to that journal.
func (s *store) claimPlace(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStoreClosed
	}
	if s.stands() {
		return nil // another call was faster
	}
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
	if err := s.member.Enter(ctx); err != nil {
		return err
	}
	if err := s.openJournal(); err != nil {
		return fmt.Errorf("opening the journal of runs: %w", err)
	}
	s.limit = journalLimit
	return s.disk.SyncFolder(s.dir)
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

// sweep removes what servers that are gone have left, their journals aside,
// which are not removed before their runs are somebody's. The caller holds the
// claim lock.
func (s *store) sweep(names []string, alive func(server string) bool) {
	for _, name := range names {
		if server, ok := leftBy(name); ok && !alive(server) {
			s.remove(name)
		}
	}
}

// leftBy tells which server a temporary file belongs to.
func leftBy(name string) (server string, ok bool) {
	return serverOf(name, "write_", ".tmp")
}

// serverOf returns the id of the server whose file has this name.
func serverOf(name, prefix, suffix string) (string, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	rest, end := strings.CutSuffix(rest, suffix)
	server, _, _ := strings.Cut(rest, "_")
	return server, ok && end && presence.IsID(server)
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
	file := s.file
	s.file, s.closed = nil, true
	s.mu.Unlock()
	var err error
	if file != nil {
		err = file.Close()
	}
	if s.leave {
		err = errors.Join(err, s.member.Leave())
	}
	if err != nil {
		return fmt.Errorf("closing the folder of runs: %w", err)
	}
	return nil
}

func (s *store) journalPath(server string) string {
	return filepath.Join(s.dir, "runs_"+server+".jsonl")
}
