// Package local keeps session records as files of the project's folder
// .deepwork/tmp, shared by several server processes: each record replaced
// atomically and synced, sealed with the key of the installation, owned by one server at
// a time.
//
// It knows records as bytes. What they mean is package workflow's.
//
// The files in the folder, and those of definitions in state.Folder.Definitions:
//
//	session_<id>.json               a record, sealed
//	definition_<hash>.json          a job's definition, sealed
//	write_<server>_<n>.tmp          a write in progress, or a spare file
//	damaged_…json, replaced_…json   what was set aside
//
// And in state.Folder.Servers:
//
//	server_<id>.lock                locked for as long as that server lives
//	claim.lock                      locked for moments, by who claims something
//	requests.lock                   locked for moments, by who makes requests.idx again
//	requests.idx                    which session a request_id was used in
//	active.lock, active.idx         the same for the active sessions of each caller
//	newest/<id>                     the sequence number of a session's newest record
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
	"deepwork/session/state"
	"deepwork/session/store"
)

var (
	errReadOnly = errors.New("the store was opened read-only")
	errClosed   = errors.New("the store is closed")
)

// maxRecord bounds a file that is read, so that a huge file causes an error instead of a crash;
// writes have the same limit.
const maxRecord = 64 << 20

// Options configure a Store. Zero fields have their default value.
type Options struct {
	Logger *slog.Logger
	// ReadOnly stores do not join the servers and change nothing on disk: damaged records are
	// reported and not moved. (Alive briefly tries a shared lock on the other server's file; there
	// is no other way to know.)
	ReadOnly bool
	// Member is this process among the servers of the project. If nil, one is created, and leaves
	// when the store is closed.
	Member *presence.Member
	// NoSync omits every fsync, for benchmarks of everything but the disk.
	NoSync bool
	// Keys returns the calls with a request_id whose replies a record has.
	Keys func(id string, body []byte) []store.Key
	// Head returns what the index of active sessions has of a record; nil means that it has none.
	Head func(body []byte) store.Head
	// Changed is called after a record was written or removed; nil means nobody follows.
	Changed func(id string)
}

// A Store is one server's access to the folders. Its methods may be called concurrently; writes of
// one record must not overlap (its session's actor ensures that).
type Store struct {
	dir    string // of the records, absolute
	state  *state.Folder
	server string // presence.ID
	o      Options
	disk   durable.Disk
	sealer durable.Sealer
	log    *slog.Logger

	member *presence.Member
	leave  bool // at Close

	temps atomic.Uint64 // numbers the temporary files
	swept sync.Once

	folder     atomic.Pointer[durable.Dir] // of the records; nil means not open
	noExchange atomic.Bool                 // the file system cannot exchange names

	// Set by tests.
	claimWait  time.Duration
	rest       time.Duration // spareRest
	makeFolder func() error  // of the lock files

	requests index
	active   index

	mu      sync.Mutex // guards the following fields
	known   map[uint32]stamp
	spares  []spare                  // the one that has rested longest is the first
	running map[string]chan struct{} // calls about one record, by its id; closed when the call has returned
	calls   sync.WaitGroup           // calls that change the folder
	closed  bool
}

// Open opens the folders of a project. Nothing is created before the first write, so a
// project that is read-only, or has no .deepwork yet, can be opened and read.
// It does not block.
func Open(f *state.Folder, o Options) (*Store, error) {
	dir := f.Tmp()
	if fi, err := os.Stat(dir); err == nil && !fi.IsDir() {
		return nil, fmt.Errorf("opening the session folder: %s is not a folder; move it out of the way", dir)
	}
	s := &Store{
		dir:       dir,
		state:     f,
		o:         o,
		log:       o.Logger,
		disk:      durable.Disk{NoSync: o.NoSync},
		sealer:    sealer{f},
		claimWait: 10 * time.Second,
		rest:      spareRest,
		known:     make(map[uint32]stamp),
		running:   make(map[string]chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.member = o.Member; s.member == nil {
		s.member, s.leave = session.NewMember(f, s.log), true
	}
	if s.o.Keys == nil {
		s.o.Keys = func(string, []byte) []store.Key { return nil }
	}
	s.server = s.member.ID()
	if s.o.Head == nil {
		s.o.Head = func([]byte) store.Head { return store.Head{} }
	}
	s.indexes(f.Servers())
	s.makeFolder = func() error {
		if err := session.MakeState(f); err != nil {
			return err
		}
		return session.MakeFolder(f.Servers())
	}
	return s, nil
}

// Close waits for the calls in progress until ctx ends; later calls that would change the folder
// fail. It leaves Options.Member; once that has left, any server may own its records. Close may be
// called twice.
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
	s.dropSpares()
	if f := s.folder.Swap(nil); f != nil {
		f.Close()
	}
	s.requests.log.close("")
	s.active.log.close("")
	if s.leave {
		if err := s.member.Leave(); err != nil {
			return fmt.Errorf("closing the session folder: %w", err)
		}
	}
	return nil
}

// Server returns this server's id, 16 hexadecimal characters, unique over time.
func (s *Store) Server() string { return s.server }

// A call is an operation on the disk.
type call struct {
	id    string // of the record, whose calls do not overlap; "" means none
	reads bool   // it makes no changes
	undo  func() // called if it succeeded after its caller left; may be nil
}

// do runs fn and returns its error. If ctx ends first it returns store.ErrPending, and fn
// continues, since a system call cannot be cancelled: later calls about the same record wait for
// it.
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
	answer, gone := make(chan error), make(chan struct{}) // unbuffered, so that exactly one of the two happens
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

// Forget drops the cached state of a record that will be read before it is written again: a store
// that runs for months sees many. It does not block.
func (s *Store) Forget(id string) {
	s.mu.Lock()
	delete(s.known, idKey(id))
	s.mu.Unlock()
}

// RecordPath returns the path of a session's record, which may not exist.
func (s *Store) RecordPath(id string) string {
	return filepath.Join(s.dir, "session_"+id+".json")
}

// idKey returns the id as a number: the map of 100,000 stamps stays small.
func idKey(id string) uint32 {
	n, _ := strconv.ParseUint(id, 16, 32)
	return uint32(n)
}

// isHex reports whether text is n lower-case hexadecimal characters; only such text becomes part of
// a path.
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
	_ store.Members     = (*presence.Member)(nil)
)
