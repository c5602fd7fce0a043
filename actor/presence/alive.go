package presence

import (
	"errors"
	"io/fs"
	"os"

	"github.com/gofrs/flock"

	"deepwork/actor/durable"
)

// Alive tells whether the server with this id runs, here or in another process.
// What cannot be told (a lock file of another user, say) counts as alive, since
// nothing must ever be taken from a server that lives. It does not block, and
// remembers nothing: each call asks the system.
func (s *Server) Alive(server string) bool {
	if server == s.id {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.left
	}
	if !IsID(server) {
		return false
	}
	path := s.Path(server)
	// Opening a named pipe would block.
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return false
	}
	// Shared, so that two who ask at once do not take each other for the server.
	probe := flock.New(path, flock.SetFlag(os.O_RDONLY))
	free, err := probe.TryRLock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		s.log.Warn("cannot tell whether a server lives; taking it for alive", "server", server, "path", path, "error", err)
		return true
	case free:
		probe.Close()
	}
	return !free
}

// Census returns Alive with a memory, for one look through a folder: each server
// is asked about once. It is for one goroutine.
func (s *Server) Census() func(server string) bool {
	known := make(map[string]bool)
	return func(server string) bool {
		lives, asked := known[server]
		if !asked {
			lives = s.Alive(server)
			known[server] = lives
		}
		return lives
	}
}

// Sweep removes the lock files of dead servers from a folder whose servers have no
// Claim: each while it is locked, so that none is taken from a server that is just
// making it. A file that cannot be removed is left to the next one who sweeps.
func (s *Server) Sweep() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		server, ok := LockOf(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		path := s.Path(server)
		lock := flock.New(path, flock.SetFlag(os.O_RDWR))
		if ok, err := lock.TryLock(); err != nil || !ok {
			continue
		}
		// Its server may have made another one, after somebody else had swept this.
		if durable.Stands(lock, path) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.log.Debug("cannot remove the lock file of a dead server", "path", path, "error", err)
			}
		}
		lock.Close()
	}
}
