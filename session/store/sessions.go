package store

import (
	"context"
	"iter"
	"time"
)

// Sessions stores the records of sessions as bytes: JSON objects, indented by two spaces, that end
// in "\n}". Create, Write and Update are durable and atomic when they return. A call whose context
// ends first returns ErrPending. Writes of one record must not overlap (its session's actor ensures
// that).
type Sessions interface {
	// Create stores a record that must not exist yet (ErrExists). One that is stored after ctx has
	// ended may be removed again.
	Create(ctx context.Context, id string, body []byte) error
	Write(ctx context.Context, id string, body []byte) error
	// Read returns a record to its owner: ErrNotFound, or *DamagedError for a record that was set
	// aside.
	Read(ctx context.Context, id string) ([]byte, error)
	// Peek is like Read for other callers, and sets nothing aside.
	Peek(ctx context.Context, id string) ([]byte, error)
	// Update replaces a record by the result of change, while no other process can do the same. If
	// change returns an error, which Update returns, or a nil body, nothing is written.
	Update(ctx context.Context, id string, change func(body []byte) ([]byte, error)) error
	Remove(ctx context.Context, id string) error
	// List yields the records, in no order, without reading them. An error ends it.
	List(ctx context.Context) iter.Seq2[Info, error]
	// Settle returns when the records that can be read now are durable.
	Settle(ctx context.Context) error
	// NoteNewest stores the sequence number of a record that was written, and Newest returns it, 0 if
	// it is unknown. A record with a smaller one is an older version that somebody put back. It is
	// not durable: after a crash an earlier number may be returned. Newest is to be called before the
	// record is read, which may be written meanwhile.
	NoteNewest(ctx context.Context, id string, number int64) error
	Newest(ctx context.Context, id string) int64
	// Forget drops the cached state of a record that will be read before it is written again.
	Forget(id string)
}

// Definitions stores the job definitions of sessions, each under its hash, the SHA-256 of its
// content.
type Definitions interface {
	PutDefinition(ctx context.Context, hash string, data []byte) error
	// Definition returns ErrNotFound, or *DamagedError for a definition that was set aside.
	Definition(ctx context.Context, hash string) ([]byte, error)
	// PruneDefinitions deletes unneeded definitions that were last put before the cutoff and some
	// time ago. It returns how many.
	PruneDefinitions(ctx context.Context, cutoff time.Time, needed func(hash string) bool) (int, error)
}

// Members returns the processes that share the stores. presence.Member is one.
type Members interface {
	ID() string                      // of this process
	Enter(ctx context.Context) error // before this process owns anything
	Alive(id string) bool            // also true if that cannot be determined
	Describe(id string) string       // for people; "" if unknown
}

// A Key identifies a call with a request_id: a digest of the id and its scope.
type Key [16]byte

// RequestIDs finds the session of a call with a request_id.
type RequestIDs interface {
	// NoteRequest records that a call is about to be made in a session, before the session's record
	// is written.
	NoteRequest(ctx context.Context, key Key, session string) error
	// FindRequest returns the noted sessions, latest first. Callers check in their records whether
	// the call was made.
	FindRequest(ctx context.Context, key Key) (sessions []string, err error)
}

// ActiveSessions finds the active sessions of a caller.
type ActiveSessions interface {
	// NoteActive records that the record of a caller's active session is about to be written, or,
	// with over, that the session has ended. It is not durable.
	NoteActive(ctx context.Context, caller Key, session string, over bool) error
	// Active yields the noted sessions, the one written last first; order is approximate if several
	// processes write. Callers check each in its record. An error ends it.
	Active(ctx context.Context, caller Key) iter.Seq2[string, error]
}
