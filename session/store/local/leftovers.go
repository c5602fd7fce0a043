package local

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// Leftovers lists, by absolute path and sorted, what servers that are gone have
// left and the next one to write removes: their lock files, and the files that
// they were writing. live tells that other servers are
// there. It changes nothing.
func (s *Store) Leftovers(ctx context.Context) (left []string, live bool, err error) {
	others, left := s.member.Others()
	alive := s.member.Census()
	for entry, err := range s.names(ctx) {
		if err != nil {
			return nil, false, err
		}
		if server, ok := writtenBy(entry.Name()); ok && !alive(server) {
			left = append(left, filepath.Join(s.dir, entry.Name()))
		}
	}
	slices.Sort(left)
	return left, len(others) > 0, nil
}

// Strangers lists, by absolute path and sorted, what is named like a record or a
// definition and can be none, so that no server ever reads it.
func (s *Store) Strangers(ctx context.Context) ([]string, error) {
	var out []string
	for entry, err := range s.names(ctx) {
		if err != nil {
			return nil, err
		}
		name := entry.Name()
		digits := 8 // of a session's id
		rest, is := strings.CutPrefix(name, "session_")
		if !is {
			digits = 64 // of a hash
			rest, is = strings.CutPrefix(name, "definition_")
		}
		if id, ok := strings.CutSuffix(rest, ".json"); !is || ok && isHex(id, digits) {
			continue
		}
		out = append(out, filepath.Join(s.dir, name))
	}
	slices.Sort(out)
	return out, nil
}

// RecordPath is where the record of a session is, whether or not there is one.
func (s *Store) RecordPath(id string) string { return s.recordPath(id) }
