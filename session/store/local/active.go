package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// The index of active sessions, active.idx, has a line for each write of an active session's record,
// in this order, with the key of its caller, except if the process's line before is the same. When a
// session has ended, a line with another bit in the key says so. A large file is replaced by one with
// the active sessions alone.

const (
	activeName   = "active.idx"
	activeGrowth = 10_000 // lines, after which it is compacted
	endedBit     = 1      // of a key's last byte
)

// moved reads a line of active.idx: the id as a number, or its complement for a session that has
// ended.
func (x *index) moved(key store.Key, number uint32) {
	n := int64(number)
	if key[15]&endedBit != 0 {
		n = ^n
	}
	key = activeKey(key, false)
	x.active[key] = append(x.active[key], n)
}

// newest returns the active sessions of a caller's lines, the one written last first.
func newest(lines []int64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		seen := map[uint32]bool{}
		for _, n := range slices.Backward(lines) {
			id := uint32(max(n, ^n))
			if !seen[id] && n >= 0 && !yield(id) {
				return
			}
			seen[id] = true
		}
	}
}

// indexes makes the indexes of the folder of the servers.
func (s *Store) indexes(dir string) {
	s.requests = index{log: sharedLog{path: filepath.Join(dir, indexName)}, what: "request ids", lock: "requests.lock",
		growth: indexGrowth, keys: s.o.Keys, known: map[store.Key][]uint32{}}
	s.active = index{log: sharedLog{path: filepath.Join(dir, activeName)}, what: "active sessions", lock: "active.lock",
		growth: activeGrowth, moves: true, keys: func(_ string, body []byte) []store.Key {
			if h := s.o.Head(body); h.Active {
				return []store.Key{activeKey(h.Caller, false)}
			}
			return nil
		}}
}

func activeKey(key store.Key, over bool) store.Key {
	if key[15] &^= endedBit; over {
		key[15] |= endedBit
	}
	return key
}

// NoteActive implements store.ActiveSessions.
func (s *Store) NoteActive(ctx context.Context, caller store.Key, id string, over bool) error {
	if err := checkID(id); err != nil {
		return err
	}
	err := s.do(ctx, call{}, func() error {
		x := &s.active
		x.mu.Lock()
		defer x.mu.Unlock()
		line := indexLine(activeKey(caller, over), idKey(id))
		if string(x.last) == string(line) {
			return nil
		}
		err := x.log.append(line)
		if errors.Is(err, fs.ErrNotExist) {
			// An empty file: its next reader makes it from the records and this line.
			if err = s.makeFolder(); err == nil {
				var f *os.File
				if f, err = os.OpenFile(x.log.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
					err = errors.Join(f.Close(), x.log.append(line))
				}
			}
		}
		if err != nil {
			return durable.Explain(err, x.log.path)
		}
		x.last = line
		if x.noted++; x.noted%activeGrowth == 0 {
			return s.refreshIndex(ctx, x) // nobody may read it
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("noting session %s: %w", id, err)
	}
	return nil
}

// Active implements store.ActiveSessions.
func (s *Store) Active(ctx context.Context, caller store.Key) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var list []int64
		err := s.do(ctx, call{}, func() error {
			x := &s.active
			x.mu.Lock()
			defer x.mu.Unlock()
			if !exists(s.dir) && !exists(x.log.path) {
				return nil // nothing was written yet
			}
			if err := s.refreshIndex(ctx, x); err != nil {
				return durable.Explain(err, x.log.path)
			}
			list = x.active[activeKey(caller, false)] // what it has does not change
			return nil
		})
		if err != nil {
			yield("", fmt.Errorf("looking for active sessions: %w", err))
			return
		}
		for n := range newest(list) {
			if !yield(fmt.Sprintf("%08x", n), nil) {
				return
			}
		}
	}
}

// compacted returns lines for the active sessions.
func (x *index) compacted() (lines []byte) {
	for key, list := range x.active {
		for _, n := range slices.Backward(slices.Collect(newest(list))) {
			lines = append(lines, indexLine(key, n)...)
		}
	}
	return lines
}
