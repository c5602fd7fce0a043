package store

import (
	"context"
	"iter"
	"time"
)

// Sessions stores the records of sessions. It knows them as bytes: JSON objects,
// indented by two spaces, that end in "\n}". What Create, Write and Update have
// returned from is durable, whole. A call whose context ends first returns ErrPending.
// Writes of one record must not overlap (its session's actor sees to that).
type Sessions interface {
	// Create stores a record that must not exist yet (ErrExists). What is stored after
	// ctx has ended is removed again.
	Create(ctx context.Context, id string, body []byte) error
	Write(ctx context.Context, id string, body []byte) error
	// Read returns a record to its owner: ErrNotFound, or *DamagedError for one that was
	// set aside.
	Read(ctx context.Context, id string) ([]byte, error)
	// Peek is Read for any other caller, and sets nothing aside.
	Peek(ctx context.Context, id string) ([]byte, error)
	// Update replaces a record by what change makes of it, while no other process can do
	// the same. An error of change is returned, and then, or if change returns a nil
	// body, nothing is written.
	Update(ctx context.Context, id string, change func(body []byte) ([]byte, error)) error
	Remove(ctx context.Context, id string) error
	// List yields the records, in no order, without reading them. An error ends it.
	List(ctx context.Context) iter.Seq2[Info, error]
	// Settle returns when the records that can be read now are durable.
	Settle(ctx context.Context) error
	// Forget drops what is remembered of a record that is not written again before it is
	// read again.
	Forget(id string)
}

// Definitions stores the definitions of jobs that sessions were begun with, each under
// its hash, the SHA-256 of its content.
type Definitions interface {
	PutDefinition(ctx context.Context, hash string, data []byte) error
	// Definition returns ErrNotFound, or *DamagedError for one that was set aside.
	Definition(ctx context.Context, hash string) ([]byte, error)
	// PruneDefinitions deletes those that were last put before the cutoff, and some time
	// ago, and are not needed. It returns how many.
	PruneDefinitions(ctx context.Context, cutoff time.Time, needed func(hash string) bool) (int, error)
}

// Members returns which processes share the stores. presence.Member is one.
type Members interface {
	ID() string                      // of this process
	Enter(ctx context.Context) error // before this process takes anything in its name
	Alive(id string) bool            // also if that cannot be found out
	Describe(id string) string       // for people; "" if nothing is known
}

// A Key stands for a call with a request_id: it is a digest of what the id is scoped to.
type Key [16]byte

// RequestIDs finds the session in which a call with a request_id was done.
type RequestIDs interface {
	// NoteRequest records that a call is about to be done in a session. It comes before
	// the write of the session's record.
	NoteRequest(ctx context.Context, key Key, session string) error
	// FindRequest returns the sessions that were noted, the last one first. The callers
	// look in their records whether the call was done.
	FindRequest(ctx context.Context, key Key) (sessions []string, err error)
}
