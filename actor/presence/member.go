// Package presence reports which of the processes that share a folder are running. Each has one Member and
// one lock file, server_<id>.lock, which the system unlocks when the process ends. A process whose lock file
// was removed looks dead. So before it owns anything it calls Enter, which costs one stat if the file exists,
// and creates it otherwise.
package presence

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/durable"
)

// ErrLeft is returned by Enter after Leave.
var ErrLeft = errors.New("this server has left the folder")

// enterWait limits Enter: a process that sweeps, or checks whether this one runs, briefly holds the lock.
const enterWait = 10 * time.Second

// Options configures a Member.
type Options struct {
	Dir    string // folder of the lock files, absolute
	Logger *slog.Logger
	// Prepare creates the folder, and anything else that is needed with it. By default it creates only the
	// folder, with mode 0700. Enter calls it before it creates the lock file.
	Prepare func() error
	// Check may refuse to let this process enter, at a time when others can already see it. nil allows it.
	Check func() error
}

// A Member is one process among those that share a folder. Its methods may be
// called concurrently.
type Member struct {
	o  Options
	id string

	entering sync.Mutex // held while the lock file is created or given up
	lock     atomic.Pointer[durable.FileLock]
	left     atomic.Bool
}

// New returns a member with a new, unique id. It changes nothing in the folder, which need not
// exist: a member that never enters can still check others.
func New(o Options) *Member {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Prepare == nil {
		o.Prepare = func() error { return durable.Disk{}.MakeFolder(o.Dir, 0o700) }
	}
	var id [8]byte
	rand.Read(id[:]) // never fails
	return &Member{o: o, id: hex.EncodeToString(id[:])}
}

// ID returns the member's id, 16 lower-case hexadecimal characters.
func (m *Member) ID() string { return m.id }

// IsID reports whether text has the form of an id; nothing else ever becomes part of a path.
func IsID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == 8 && strings.ToLower(text) == text
}

// Path returns the path of a member's lock file, whether or not it exists.
func (m *Member) Path(id string) string { return filepath.Join(m.o.Dir, "server_"+id+".lock") }

// LockOf returns the id of the member whose lock file has this name.
func LockOf(name string) (id string, ok bool) {
	rest, isServer := strings.CutPrefix(name, "server_")
	id, ends := strings.CutSuffix(rest, ".lock")
	return id, isServer && ends && IsID(id)
}

// Enter makes this process look alive: it creates and locks the lock file, also if the file or the whole
// folder was removed or replaced since. It blocks for at most 10 s while another process holds the lock.
// Errors: ErrLeft, or the system's with the remedy.
func (m *Member) Enter(ctx context.Context) error {
	if m.Entered() {
		return nil
	}

	ctx, cancel := context.WithTimeoutCause(ctx, enterWait,
		errors.New("another process holds a lock on it; end that, and call again"))
	defer cancel()
	m.entering.Lock()
	defer m.entering.Unlock()
	switch {
	case m.left.Load():
		return ErrLeft
	case m.Entered():
		return nil // another call was faster
	}

	path := m.Path(m.id)
	if old := m.lock.Swap(nil); old != nil {
		m.o.Logger.Warn("this server's lock file was removed by somebody; making it again", "path", path,
			"server", m.id)
		old.Unlock()
	}

	for {
		if err := m.o.Prepare(); err != nil {
			return err
		}

		writeDescription(path)
		lock, err := durable.Lock(ctx, path)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // the folder was removed again
		}
		if err != nil {
			os.Remove(path) // the error of the lock says more
			if ctx.Err() != nil {
				err = fmt.Errorf("locking %s: %w", path, err)
			}
			return err
		}

		if m.o.Check != nil {
			if err := m.o.Check(); err != nil {
				return errors.Join(err, lock.Remove())
			}
		}
		m.lock.Store(lock)
		return nil
	}
}

// Entered reports whether this process has entered and still looks alive. It costs
// one stat.
func (m *Member) Entered() bool {
	lock := m.lock.Load()
	return lock != nil && lock.InPlace()
}

// Leave makes this process look dead for good; others may then take what it owned. It waits for an Enter in
// progress. Leaving twice, or without having entered, is not an error.
func (m *Member) Leave() error {
	lock := m.giveUp()
	if lock == nil {
		return nil
	}
	if err := lock.Remove(); err != nil {
		return fmt.Errorf("removing this server's lock file: %w", err)
	}
	return nil
}

// Fall ends the membership like a killed process: the lock file stays. It is for tests.
func (m *Member) Fall() {
	if lock := m.giveUp(); lock != nil {
		lock.Unlock()
	}
}

func (m *Member) giveUp() *durable.FileLock {
	m.left.Store(true)
	m.entering.Lock()
	defer m.entering.Unlock()
	return m.lock.Swap(nil)
}

// description is the content of a lock file, for people.
type description struct {
	PID       int    `json:"pid"`
	Host      string `json:"host"`
	StartedAt string `json:"started_at"` // RFC 3339, UTC
}

// writeDescription creates a lock file with this process's description. A failure is ignored: the
// lock creates the file if it is missing.
func writeDescription(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	defer f.Close()

	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	f.WriteString(" ") // the byte that Windows locks
	json.NewEncoder(f).Encode(description{os.Getpid(), host, time.Now().UTC().Format(time.RFC3339)})
}

// Alive reports whether the member with this id runs, in this or another process. If that cannot be
// determined, for example because another user owns the lock file, it reports true, since nothing may be
// taken from a running process. It does not block.
func (m *Member) Alive(id string) bool {
	switch {
	case id == m.id:
		return !m.left.Load()
	case !IsID(id):
		return false
	}
	path := m.Path(id)
	locked, err := durable.Locked(path)
	if err != nil {
		m.o.Logger.Warn("cannot tell whether a server lives; taking it for alive", "server", id, "path", path,
			"error", err)
	}

	return locked || err != nil
}

// Others returns the paths of the lock files in the folder except this member's, grouped into those
// of running and of dead members.
func (m *Member) Others() (alive, dead []string) {
	entries, _ := os.ReadDir(m.o.Dir) // an unreadable folder counts as empty
	for _, e := range entries {
		id, ok := LockOf(e.Name())
		if !ok || !e.Type().IsRegular() || id == m.id {
			continue
		}
		path := filepath.Join(m.o.Dir, e.Name())
		if m.Alive(id) {
			alive = append(alive, path)
		} else {
			dead = append(dead, path)
		}
	}
	return alive, dead
}

// Sweep removes the lock files of dead members. It holds the lock of each while removing it, so that no
// process loses a lock file that it is just creating. Files that cannot be removed are left to the next
// process that sweeps.
func (m *Member) Sweep() {
	_, dead := m.Others()
	for _, path := range dead {
		lock, err := durable.TryLock(path)
		if lock != nil {
			err = lock.Remove()
		}
		if err != nil {
			m.o.Logger.Debug("cannot remove the lock file of a dead server", "path", path, "error", err)
		}
	}
}

// Describe describes a member's process for people, such as "pid 123 on host since 2026-01-31T12:00:00Z". It
// returns "" if the lock file is missing or unreadable.
func (m *Member) Describe(id string) string {
	if !IsID(id) {
		return ""
	}

	path := m.Path(id)
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		return "" // opening a named pipe would block
	}
	f, _, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 1, 4096))

	var p description
	err = errors.Join(err, f.Close(), json.Unmarshal(text, &p))
	if err != nil || p.PID == 0 {
		return ""
	}
	return fmt.Sprintf("pid %d on %s since %s", p.PID, p.Host, p.StartedAt)
}
