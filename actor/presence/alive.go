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

// Alive reports whether the member with this id runs, in this or another process. If that cannot be
// determined (a lock file of another user, say) the result is true, since nothing may be taken from
// a running process. It does not block.
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

// Sweep removes the lock files of dead members, each while holding its lock, so that no process
// loses one that it is just creating. A file that cannot be removed is left to the next process
// that sweeps.
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

// Describe describes a member's process for people, as "pid 123 on host since
// 2026-01-31T12:00:00Z". It returns "" if the lock file is missing or unreadable.
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
