// Package local keeps session records as files of one folder
// (.deepwork/tmp), shared by several server processes: each record replaced
// atomically and synced, sealed with a checksum, owned by one server at a time.
//
// It knows records as bytes. What they mean is package workflow's.
//
// What stands in the folder:
//
//	session_<id>.json               a record, sealed
//	definition_<hash>.json          a job's definition, sealed
//	server_<id>.lock                locked for as long as that server lives
//	claim.lock                      locked for moments, by who claims something
//	requests.lock                   locked for moments, by who makes requests.idx again
//	requests.idx                    which session a request_id was used in
//	changes                         what has changed, for those who follow it
//	write_<server>_<n>.tmp          a write in progress
//	damaged_…json, replaced_…json   what was set aside
//
// Lock files are never replaced, for a lock on a file that is replaced guards
// nothing; records are always replaced, and so never locked.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/store"
)

var (
	errReadOnly = errors.New("the store was opened read-only")
	errClosed   = errors.New("the store is closed")
)

// maxRecord bounds a file that is read, so that a file which somebody made huge
// costs an error and not the process; writes keep to it too.
const maxRecord = 64 << 20

// Options configure a Store. The zero value of a field is its default.
type Options struct {
	Logger *slog.Logger
	// ReadOnly stores claim no place among the servers and change nothing on
	// disk: damaged records are reported and stay where they are. (Alive tries,
	// for an instant, a shared lock on the other server's file; there is no
	// other way to know.)
	ReadOnly bool
	// Member is this process among the servers of the project. A nil one is made,
	// and leaves when the store is closed.
	Member *presence.Member
	// NoSync leaves out every fsync; for benchmarks of all that is not the disk.
	NoSync bool
	// Keys returns the calls with a request_id that a record has replies to.
	Keys func(id string, body []byte) []store.Key
}

// A Store is one server's hold on the folder. Its methods may be called
// concurrently; writes of one record must not overlap (its session's actor sees
// to that).
type Store struct {
	dir    string // absolute
	server string // presence.ID
	o      Options
	disk   durable.Disk
	log    *slog.Logger

	member *presence.Member
	leave  bool // at Close

	temps atomic.Uint64 // numbers the temporary files
	swept sync.Once

	// The seams of the tests.
	claimWait  time.Duration
	makeFolder func() error

	requests requestIndex
	changes  *Changes

	mu      sync.Mutex // guards what follows
	known   map[uint32]stamp
	running map[string]chan struct{} // calls about one record, by its id; closed when the call has returned
	calls   sync.WaitGroup           // of calls that change the folder
	closed  bool
}

// Open opens the folder. Nothing is created before the first write, so a
// project that is read-only, or has no .deepwork yet, can be opened and read.
// It does not block.
func Open(dir string, o Options) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the session folder %q: %w", dir, err)
	}
	if fi, err := os.Stat(abs); err == nil && !fi.IsDir() {
		return nil, fmt.Errorf("opening the session folder: %s is not a folder; move it out of the way", abs)
	}
	s := &Store{
		dir:       abs,
		o:         o,
		log:       o.Logger,
		disk:      durable.Disk{NoSync: o.NoSync},
		claimWait: 10 * time.Second,
		known:     make(map[uint32]stamp),
		running:   make(map[string]chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.member = o.Member; s.member == nil {
		s.member, s.leave = session.NewMember(abs, s.log), true
	}
	if s.o.Keys == nil {
		s.o.Keys = func(string, []byte) []store.Key { return nil }
	}
	s.server = s.member.ID()
	s.requests = newRequestIndex(abs)
	s.changes = OpenChanges(abs, s.member, s.log)
	s.makeFolder = func() error { return session.MakeFolder(abs) }
	return s, nil
}

// Close waits for the calls in progress until ctx ends; later calls that would
// change the folder fail. It leaves Options.Member, whose records are anybody's once
// that has left. Closing twice is no error.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	if wait.Group(ctx, &s.calls) != nil {
		return fmt.Errorf("closing the session folder: %w", store.ErrPending)
	}
	s.requests.log.close("")
	s.changes.Close()
	if s.leave {
		if err := s.member.Leave(); err != nil {
			return fmt.Errorf("closing the session folder: %w", err)
		}
	}
	return nil
}

// Server returns this server's id, 16 hexadecimal characters, unique among all
// that ever ran here.
func (s *Store) Server() string { return s.server }

// A call is one use of the disk.
type call struct {
	id    string // of the record; calls about one record do not overlap. "" is about none.
	reads bool   // it changes nothing
	undo  func() // what is done if it succeeded after its caller had gone; may be nil
}

// do runs fn and returns its error. If ctx ends first it returns store.ErrPending, and
// fn goes on alone, since a call of the system cannot be cancelled: later calls about
// the same record wait for it.
func (s *Store) do(ctx context.Context, c call, fn func() error) error {
	if s.o.ReadOnly && !c.reads {
		return errReadOnly
	}
	over := make(chan struct{})
	for begun := false; !begun; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.mu.Lock()
		if s.closed && !c.reads {
			s.mu.Unlock()
			return errClosed
		}
		earlier := s.running[c.id]
		if begun = earlier == nil; begun {
			if c.id != "" {
				s.running[c.id] = over
			}
			if !c.reads {
				s.calls.Add(1)
			}
		}
		s.mu.Unlock()
		if !begun {
			select {
			case <-earlier:
			case <-ctx.Done():
				return store.ErrPending
			}
		}
	}
	end := func() {
		s.mu.Lock()
		delete(s.running, c.id)
		s.mu.Unlock()
		close(over)
		if !c.reads {
			s.calls.Done()
		}
	}
	if ctx.Done() == nil {
		defer end()
		return fn()
	}
	answer, gone := make(chan error), make(chan struct{}) // without room, so that one of the two is certain
	go func() {
		defer end()
		err := fn()
		select {
		case answer <- err:
		case <-gone:
			if err == nil && c.undo != nil {
				c.undo()
			}
		}
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		close(gone)
		return store.ErrPending
	}
}

func (s *Store) remember(id string, st stamp) {
	s.mu.Lock()
	s.known[idKey(id)] = st
	s.mu.Unlock()
}

func (s *Store) recall(id string) (stamp, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.known[idKey(id)]
	return st, ok
}

// Forget drops what is remembered of a record that is not written again before
// it is read again: a store that runs for months has seen many. It does not block.
func (s *Store) Forget(id string) {
	s.mu.Lock()
	delete(s.known, idKey(id))
	s.mu.Unlock()
}

// RecordPath is where the record of a session is, whether or not there is one.
func (s *Store) RecordPath(id string) string {
	return filepath.Join(s.dir, "session_"+id+".json")
}

// idKey is the id as a number: the map of 100,000 stamps stays small.
func idKey(id string) uint32 {
	n, _ := strconv.ParseUint(id, 16, 32)
	return uint32(n)
}

// isHex reports whether text is n lower-case hexadecimal characters; nothing else
// ever becomes part of a path.
func isHex(text string, n int) bool {
	if len(text) != n {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func checkID(id string) error {
	if !isHex(id, 8) {
		return fmt.Errorf("%.40q is not a session id, which is 8 lower-case hexadecimal characters", id)
	}
	return nil
}

var (
	_ store.Sessions    = (*Store)(nil)
	_ store.Definitions = (*Store)(nil)
	_ store.RequestIDs  = (*Store)(nil)
	_ store.Changes     = (*Changes)(nil)
	_ store.Members     = (*presence.Member)(nil)
)
