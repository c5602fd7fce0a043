package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"deepwork/actor/presence"
	"deepwork/session/store"
)

// sweep removes the lock files and unfinished writes of dead servers.
func (s *Store) sweep(ctx context.Context) {
	s.member.Sweep()
	left, err := s.unfinished(ctx)
	if err != nil {
		s.log.Warn("cannot look for what dead servers left", "error", err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("cannot remove what a dead server left", "path", path, "error", err)
		}
	}
}

// unfinished lists the files that dead servers were writing.
func (s *Store) unfinished(ctx context.Context) ([]string, error) {
	alive := store.Census(s.member)
	return s.paths(ctx, func(name string) bool {
		server, ok := writtenBy(name)
		return ok && !alive(server)
	})
}

// writtenBy returns the server that a temporary file belongs to.
func writtenBy(name string) (server string, ok bool) {
	rest, is := strings.CutPrefix(name, "write_")
	rest, ends := strings.CutSuffix(rest, ".tmp")
	server, number, _ := strings.Cut(rest, "_")
	_, err := strconv.ParseUint(number, 10, 64)
	return server, is && ends && err == nil && presence.IsID(server)
}

// Leftovers lists, by absolute path and sorted, what dead servers left and the next writer removes:
// lock files and unfinished writes. It changes nothing.
func (s *Store) Leftovers(ctx context.Context) (left []string, err error) {
	_, dead := s.member.Others()
	left, err = s.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	left = append(left, dead...)
	slices.Sort(left)
	return left, nil
}

// Strangers lists, by absolute path and sorted, files named like records or definitions that cannot
// be any, so that no server ever reads them.
func (s *Store) Strangers(ctx context.Context) ([]string, error) {
	return s.paths(ctx, func(name string) bool {
		_, record := recordID(name)
		_, definition := definitionHash(name)
		return !record && !definition && (strings.HasPrefix(name, "session_") || strings.HasPrefix(name, "definition_"))
	})
}
