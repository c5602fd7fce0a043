package presence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

	"deepwork/actor/durable"
)

// ErrLeft is the error of Enter once the server has left.
var ErrLeft = errors.New("this server has left the folder")

// enterWait is how long Enter waits for its lock: who asks whether a server lives
// has it for an instant.
const enterWait = 10 * time.Second

// A Server is one server of a folder. Its methods may be called concurrently.
type Server struct {
	// Written, where it is set before the first Enter, is called when the lock file
	// is there and not yet locked, and may fail it. It is for tests of crashes.
	Written func() error

	dir string
	id  string
	log *slog.Logger

	entering chan struct{} // capacity 1: full while a call makes the lock file, or gives it up

	mu   sync.Mutex   // guards what follows
	lock *flock.Flock // nil: not entered, or left
	info fs.FileInfo  // of the locked file
	left bool
}

// New returns a server with an id that none has had before. It does nothing in
// the folder, which need not exist: one that never enters can ask for others.
func New(dir string, log *slog.Logger) *Server {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return &Server{dir: dir, id: hex.EncodeToString(id[:]), log: log, entering: make(chan struct{}, 1)}
}

// ID returns the server's id, 16 lower-case hexadecimal characters.
func (s *Server) ID() string { return s.id }

// IsID tells whether a text is a server's id as ID gives it; nothing else ever
// becomes part of a path.
func IsID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == 8 && strings.ToLower(text) == text
}

// Path is where a server's lock file is, whether or not there is one.
func (s *Server) Path(server string) string { return filepath.Join(s.dir, "server_"+server+".lock") }

// LockOf tells whose lock file has this name.
func LockOf(name string) (server string, ok bool) {
	rest, is := strings.CutPrefix(name, "server_")
	server, ends := strings.CutSuffix(rest, ".lock")
	return server, is && ends && IsID(server)
}

// Enter makes this server look alive: its lock file is made and locked, and made
// again where somebody has removed it, replaced it, or removed the whole folder,
// which the caller has made again. Where the servers of the folder have a Claim
// the caller holds it, so that nobody sees the file before it is locked. Enter
// blocks for 10 s at most, while somebody else has the lock. Errors: ErrLeft;
// fs.ErrNotExist where the folder is missing; what else the system says, with the
// remedy.
func (s *Server) Enter(ctx context.Context) error {
	if s.Stands() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, enterWait, errors.New("another process holds a lock on it; end that, and call again"))
	defer cancel()
	select {
	case s.entering <- struct{}{}:
		defer func() { <-s.entering }()
	case <-ctx.Done():
		return fmt.Errorf("locking %s: %w", s.Path(s.id), context.Cause(ctx))
	}
	if s.Stands() {
		return nil // another call was faster
	}
	s.mu.Lock()
	old, left := s.lock, s.left
	s.lock = nil
	s.mu.Unlock()
	if left {
		return ErrLeft
	}
	if old != nil {
		s.log.Warn("this server's lock file was removed by somebody; making it again", "path", s.Path(s.id), "server", s.id)
		old.Close()
	}
	lock, err := s.makeLock(ctx)
	if err != nil {
		return durable.Explain(err, s.Path(s.id))
	}
	info, err := lock.Stat()
	if err != nil {
		lock.Close()
		return fmt.Errorf("locking %s: %w", s.Path(s.id), err)
	}
	s.mu.Lock()
	s.lock, s.info = lock, info
	s.mu.Unlock()
	return nil
}

// Stands tells whether this server has entered and still looks alive: whether the
// file that it has locked is the one that others see. It costs one stat.
func (s *Server) Stands() bool {
	s.mu.Lock()
	entered, info := s.lock != nil, s.info
	s.mu.Unlock()
	if !entered {
		return false
	}
	fi, err := os.Lstat(s.Path(s.id))
	return err == nil && os.SameFile(fi, info)
}

// Leave makes this server look dead, for good; what it owned is then anybody's.
// It waits for an Enter under way. Leaving twice, or without having entered, is
// no error.
func (s *Server) Leave() error {
	if !s.unlock() {
		return nil
	}
	// Nobody else makes a file of this name, so nobody's place is at stake; that it
	// is unlocked first is for Windows.
	if err := os.Remove(s.Path(s.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing this server's lock file: %w", err)
	}
	return nil
}

// Fall leaves as a server does that is killed: its lock file stays. It is for
// tests of those who come after it.
func (s *Server) Fall() { s.unlock() }

// unlock ends this server's presence; false: there was none.
func (s *Server) unlock() bool {
	s.entering <- struct{}{}
	defer func() { <-s.entering }()
	s.mu.Lock()
	defer s.mu.Unlock()
	lock := s.lock
	s.lock, s.left = nil, true
	if lock != nil {
		lock.Close()
	}
	return lock != nil
}
