package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"deepwork/actor/presence"
)

// sweep removes what dead servers left: their lock files and their unfinished writes.
func (s *Store) sweep(ctx context.Context) {
	s.member.Sweep()
	alive := s.member.Census()
	for name, err := range s.names(ctx) {
		if err != nil {
			s.log.Warn("cannot look for what dead servers left", "error", err)
			return
		}
		server, ok := writtenBy(name.Name())
		if !ok || alive(server) {
			continue
		}
		path := filepath.Join(s.dir, name.Name())
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("cannot remove what a dead server left", "path", path, "error", err)
		}
	}
}

// writtenBy returns the server that a temporary file belongs to.
func writtenBy(name string) (server string, ok bool) {
	rest, is := strings.CutPrefix(name, "write_")
	rest, ends := strings.CutSuffix(rest, ".tmp")
	server, number, _ := strings.Cut(rest, "_")
	_, err := strconv.ParseUint(number, 10, 64)
	return server, is && ends && err == nil && presence.IsID(server)
}
