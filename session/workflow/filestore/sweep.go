package filestore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sweep removes what dead servers left: their lock files and their unfinished
// writes. The caller holds the claim lock, under which lock files are made.
func (s *Store) sweep() {
	alive := map[string]bool{s.server: true}
	for name, err := range s.names() {
		if err != nil {
			s.log.Warn("cannot look for what dead servers left", "error", err)
			return
		}
		server, ok := leftBy(name.Name())
		if !ok {
			continue
		}
		lives, asked := alive[server]
		if !asked {
			lives = s.Alive(server)
			alive[server] = lives
		}
		if lives {
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
	if rest, found := strings.CutPrefix(name, "server_"); found {
		server, ok = strings.CutSuffix(rest, ".lock")
		return server, ok && isHex(server, 16)
	}
	if rest, found := strings.CutPrefix(name, "write_"); found {
		if rest, ok = strings.CutSuffix(rest, ".tmp"); !ok {
			return "", false
		}
		server, number, _ := strings.Cut(rest, "_")
		_, err := strconv.ParseUint(number, 10, 64)
		return server, err == nil && isHex(server, 16)
	}
	return "", false
}

// ignored are the lines that keep the server's own files out of the project's
// repository (DESIGN "Sessions").
var ignored = []string{"tmp/", "worktrees/", "board.db*", "logs/"}

// ignore sees to the .gitignore above the folder: missing lines are added, all
// others left alone. A folder that hides itself from git, by a .gitignore of its
// own, needs none. That it cannot be written keeps no session from its work.
func (s *Store) ignore() {
	if text, err := os.ReadFile(filepath.Join(s.dir, ".gitignore")); err == nil && string(bytes.TrimSpace(text)) == "*" {
		return
	}
	path := filepath.Join(filepath.Dir(s.dir), ".gitignore")
	if err := addLines(path, ignored); err != nil {
		s.log.Warn("cannot see to the .gitignore of the session folder", "path", path, "error", err)
	}
}

func addLines(path string, lines []string) error {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return errors.New("it is " + kindOf(fi.Mode()) + ", not a file")
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	have := make(map[string]bool)
	for line := range bytes.Lines(text) {
		have[string(bytes.TrimSpace(line))] = true
	}
	var add []byte
	if len(text) > 0 && text[len(text)-1] != '\n' {
		add = append(add, '\n')
	}
	missing := false
	for _, line := range lines {
		if !have[line] {
			missing = true
			add = append(append(add, line...), '\n')
		}
	}
	if !missing {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(add)
	return errors.Join(err, f.Close())
}
