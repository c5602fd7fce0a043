// Package filestore keeps session records as files of one folder
// (.deepwork/tmp), shared by several server processes: each record replaced
// atomically and synced, sealed with a checksum, owned by one server at a time.
//
// It knows records as bytes. What they mean is package workflow's.
package filestore

import (
	"errors"
	"iter"
	"log/slog"
	"time"
)

// The reasons why a record cannot be had.
var (
	ErrNotFound = errors.New("no such record")
	ErrExists   = errors.New("the record exists")
)

// A DamagedError is a record that does not verify. It was set aside, in the
// same folder, under a name with its id in it; nothing of it was overwritten.
type DamagedError struct {
	ID     string
	Path   string // where it is now, absolute
	Reason string
}

func (e *DamagedError) Error() string { panic("not yet") }

// Options configure a Store. The zero value of a field is its default.
type Options struct {
	Logger *slog.Logger
	// ReadOnly stores claim no place among the servers and change nothing on
	// disk: damaged records are reported and stay where they are.
	ReadOnly bool
	// NoSync leaves out every fsync; for benchmarks of all that is not the disk.
	NoSync bool
}

// A Store is one server's hold on the folder. Its methods may be called
// concurrently; writes of one record must not overlap (its session's actor sees
// to that).
type Store struct{}

// Open opens the folder. Nothing is created before the first write, so a
// project that is read-only, or has no .deepwork yet, can be opened and read.
func Open(dir string, o Options) (*Store, error) { panic("not yet") }

// Close releases this server's place; its records are then anybody's.
func (s *Store) Close() error { panic("not yet") }

// Server returns this server's id, unique among all that ever ran here.
func (s *Store) Server() string { panic("not yet") }

// Alive tells whether the server with this id runs, here or in another process.
func (s *Store) Alive(server string) bool { panic("not yet") }

// Create writes a record that must not exist yet (ErrExists), durably.
// body is a JSON object, indented by two spaces, that ends in "\n}"; the store
// adds the checksum as its last key.
func (s *Store) Create(id string, body []byte) error { panic("not yet") }

// Write replaces a record, or makes it, durably: when it returns nil the new
// record is on disk, whole; when it returns an error, the old one is, or the
// new one, whole. What stands there and is not what this store wrote or read
// last is set aside first.
func (s *Store) Write(id string, body []byte) error { panic("not yet") }

// Read returns a record as it was given to Create or Write. Errors:
// ErrNotFound, *DamagedError, or what the system said.
func (s *Store) Read(id string) ([]byte, error) { panic("not yet") }

// Update reads a record and replaces it by what change makes of it, while no
// other server can do the same: the way to take a record over from a server
// that has died. An error of change is returned and nothing is written; a nil
// body from change writes nothing.
func (s *Store) Update(id string, change func(body []byte) ([]byte, error)) error {
	panic("not yet")
}

// Remove deletes a record; it is no error when it does not exist.
func (s *Store) Remove(id string) error { panic("not yet") }

// An Info is one record in the folder, not yet read.
type Info struct {
	ID      string
	ModTime time.Time
	Size    int64
}

// List yields the records there are, in no order, without reading them.
func (s *Store) List() iter.Seq2[Info, error] { panic("not yet") }

// Damaged lists the files that were set aside, by absolute path.
func (s *Store) Damaged() ([]string, error) { panic("not yet") }

// PutDefinition keeps a job's definition under its hash, durably; one that is
// there already is left as it is, unread.
func (s *Store) PutDefinition(hash string, data []byte) error { panic("not yet") }

// Definition returns what PutDefinition kept, verified; ErrNotFound otherwise.
func (s *Store) Definition(hash string) ([]byte, error) { panic("not yet") }
