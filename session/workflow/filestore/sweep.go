package filestore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"deepwork/actor/presence"
	"deepwork/session"
)

// sweep removes what dead servers left: their lock files and their unfinished
// writes. The caller holds the claim lock, under which lock files are made.
func (s *Store) sweep() {
	alive := s.presence.Census()
	for name, err := range s.names() {
		if err != nil {
			s.log.Warn("cannot look for what dead servers left", "error", err)
			return
		}
		server, ok := leftBy(name.Name())
		if !ok || alive(server) {
			continue
		}
		path := filepath.Join(s.dir, name.Name())
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("cannot remove what a dead server left", "path", path, "error", err)
		}
	}
}

// leftBy tells which server a lock file or a temporary file belongs to.
func leftBy(name string) (server string, ok bool) {
	if server, ok = presence.LockOf(name); ok {
		return server, true
	}
	rest, is := strings.CutPrefix(name, "write_")
	rest, ends := strings.CutSuffix(rest, ".tmp")
	server, number, _ := strings.Cut(rest, "_")
	_, err := strconv.ParseUint(number, 10, 64)
	return server, is && ends && err == nil && presence.IsID(server)
}

// ignore sees to the .gitignore above the folder: missing lines are added, all
// others left alone. A folder that hides itself from git, by a .gitignore of its
// own, needs none. That it cannot be written keeps no session from its work.
func (s *Store) ignore() {
	if text, err := os.ReadFile(filepath.Join(s.dir, ".gitignore")); err == nil && string(bytes.TrimSpace(text)) == "*" {
		return
	}
	path := filepath.Join(filepath.Dir(s.dir), ".gitignore")
	if _, err := session.Ignore(path, session.Ignored()); err != nil {
		s.log.Warn("cannot see to the .gitignore of the session folder", "path", path, "error", err)
	}
}
