package presence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
)

// Alive reports whether the member with this id runs, in this or another process.
// If that cannot be found out (a lock file of another user, say) it counts as alive,
// since nothing may be taken from a process that runs. It does not block.
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
		m.o.Logger.Warn("cannot tell whether a server lives; taking it for alive", "server", id, "path", path, "error", err)
	}
	return locked || err != nil
}

// Census returns Alive with a memory, for one look through many records: it finds
// out once about each member. It is for one goroutine.
func (m *Member) Census() func(id string) bool {
	known := make(map[string]bool)
	return func(id string) bool {
		lives, asked := known[id]
		if !asked {
			lives = m.Alive(id)
			known[id] = lives
		}
		return lives
	}
}

// Others returns the paths of the lock files in the folder, except this member's:
// those of members that run, and those of dead ones.
func (m *Member) Others() (alive, dead []string) {
	entries, _ := os.ReadDir(m.o.Dir) // what cannot be read has none
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

// Sweep removes the lock files of dead members, each while it is locked, so that
// none is taken from a process that is just making it. A file that cannot be removed
// is left to the next process that sweeps.
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

// Describe tells people which process a member is, as "pid 123 on host since
// 2026-01-31T12:00:00Z", or "" if its lock file is missing or cannot be read.
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
	if err = errors.Join(err, f.Close(), json.Unmarshal(text, &p)); err != nil || p.PID == 0 {
		return ""
	}
	return fmt.Sprintf("pid %d on %s since %s", p.PID, p.Host, p.StartedAt)
}
