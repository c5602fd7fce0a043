package attempt

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// A roster tells which servers of a board live: each has one lock file in the
// roster's folder and keeps it locked for as long as it runs (DESIGN "Several
// servers, one project"). Nobody but its owner replaces a lock file.
type roster struct {
	dir string
	own string // this server's id, 16 hex characters
	log *slog.Logger

	mu     sync.Mutex
	lock   *flock.Flock // nil: not entered, or left
	closed bool
}

func newRoster(dir string, log *slog.Logger) *roster {
	var id [8]byte
	rand.Read(id[:])
	return &roster{dir: dir, own: hex.EncodeToString(id[:]), log: log}
}

func (r *roster) path(server string) string { return filepath.Join(r.dir, "server_"+server+".lock") }

// enter makes this server look alive, and sees to it that it still does: whoever
// removed its lock file must not make others take its executions.
func (r *roster) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.New("this server is closed")
	}
	if r.lock != nil && r.stands(r.lock) {
		return nil
	}
	if r.lock != nil {
		r.log.Warn("this server's lock file was removed by somebody; making it again", "path", r.path(r.own))
		r.lock.Close()
		r.lock = nil
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of the servers' lock files: %w", err)
	}
	r.sweep()
	// Another server that asks whether this one lives, or sweeps, may have the
	// lock for an instant, or have removed the file before it was locked.
	for pause, end := time.Millisecond, time.Now().Add(5*time.Second); ; pause = min(2*pause, 20*time.Millisecond) {
		lock, err := r.write()
		if err != nil {
			return fmt.Errorf("locking %s: %w", r.path(r.own), err)
		}
		if lock != nil {
			r.lock = lock
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("locking %s: another process holds it; end it, or remove the file, and call again", r.path(r.own))
		}
		time.Sleep(pause)
	}
}

// write makes the lock file and locks it; nil: somebody was in between.
func (r *roster) write() (*flock.Flock, error) {
	path := r.path(r.own)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // for people only
	}
	text, err := json.Marshal(map[string]any{"pid": os.Getpid(), "host": host, "started_at": time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return nil, err
	}
	lock := flock.New(path, flock.SetFlag(os.O_RDWR))
	ok, err := lock.TryLock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !ok {
		return nil, err
	}
	if !r.stands(lock) {
		lock.Close()
		return nil, nil
	}
	return lock, nil
}

// stands tells whether the locked file is the one that others see at its path.
func (r *roster) stands(lock *flock.Flock) bool {
	held, err := lock.Stat()
	if err != nil {
		return false
	}
	fi, err := os.Lstat(r.path(r.own))
	return err == nil && os.SameFile(held, fi)
}

// alive tells whether a server runs, here or in another process. What cannot be
// told counts as alive: an execution must never be taken from a server that
// lives. It asks the system at each call.
func (r *roster) alive(server string) bool {
	if server == r.own {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.closed
	}
	if !isServerID(server) {
		return false
	}
	path := r.path(server)
	if fi, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return false
	}
	probe := flock.New(path, flock.SetFlag(os.O_RDONLY))
	free, err := probe.TryRLock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		r.log.Warn("cannot tell whether a server lives; taking it for alive", "path", path, "error", err)
		return true
	case free:
		probe.Close()
	}
	return !free
}

// sweep removes the lock files of dead servers, each while it is locked, so that
// none is taken from a server that is just making it.
func (r *roster) sweep() {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		id, is := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".lock"), "server_")
		if !is || id == r.own || !isServerID(id) || !e.Type().IsRegular() {
			continue
		}
		lock := flock.New(r.path(id), flock.SetFlag(os.O_RDWR))
		if ok, err := lock.TryLock(); err != nil || !ok {
			continue
		}
		if err := os.Remove(r.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Debug("cannot remove the lock file of a dead server", "path", r.path(id), "error", err)
		}
		lock.Close()
	}
}

// leave makes this server look dead, for good.
func (r *roster) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.lock == nil {
		return
	}
	// Removed while it is locked: nobody else can have this name.
	os.Remove(r.path(r.own))
	r.lock.Close()
	r.lock = nil
	os.Remove(r.path(r.own)) // where a file that is open cannot be removed
}

// isServerID keeps what stands in the board's owner column from being a path.
func isServerID(s string) bool {
	id, err := hex.DecodeString(s)
	return err == nil && len(id) == 8
}
