package workflow

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/workflow/machine"
)

// records stores sessions and definitions. Create and Save are durable when they return. Errors
// that callers can act on are *session.Error. Each call waits for the disk for at most
// storeTimeout.
type records interface {
	Server() string
	Alive(server string) bool
	Describe(server string) string
	Create(s *machine.State) error // store.ErrExists if the id is taken
	Save(s *machine.State) error
	// Release is Save for a record that this server releases with it: nothing is written
	// afterwards, since another server may own it.
	Release(s *machine.State) error
	Forget(id string)                       // it is loaded before it is saved again
	Load(id string) (*machine.State, error) // for its next owner
	Peek(id string) (*machine.State, error) // for other readers
	// Update replaces a session's record while no other server can; a nil state from change writes
	// nothing. It returns the resulting record.
	Update(id string, change func(*machine.State) (*machine.State, error)) (*machine.State, error)
	// Active yields the sessions of an identity that may be active, the one that moved last first.
	Active(ctx context.Context, identity string) iter.Seq2[string, error]
	NoteActive(s *machine.State)                       // or that it has ended
	FindRequest(k store.Key) (ids []string, err error) // sessions in which a call may have been made
	PutDefinition(hash string, data []byte) error
	Definition(hash string) ([]byte, error)
	Sealer() durable.Sealer
	Close(ctx context.Context) error
}

// storeTimeout is how long a call waits for the store; with the claim lock, which another server
// may hold, twice as long.
const storeTimeout = 10 * time.Second

// storedRecords are the records of a project's stores.
type storedRecords struct {
	store.Records
	store.Members
	files   *local.Store // the records, if they are files; else nil
	others  func(context.Context) (bool, error)
	sealer  durable.Sealer
	state   *state.Folder
	log     *slog.Logger
	timeout time.Duration
}

// RecordOptions returns what stores need to know about the records of sessions.
func RecordOptions(readOnly bool, logger *slog.Logger) store.RecordOptions {
	return store.RecordOptions{
		Logger: logger, ReadOnly: readOnly,
		Head: func(body []byte) store.Head {
			h := machine.Head(body)
			return store.Head{Owner: h.Owner, Active: h.Status == machine.Active, Caller: activeKey(h.Identity), Number: h.Seq + 1, Definition: h.Definition.Hash}
		},
		Keys: func(id string, body []byte) []store.Key {
			s, err := machine.Decode(id, body)
			if err != nil {
				return nil
			}
			return keysOf(s)
		},
	}
}

// openRecords opens the records of a project's stores.
func openRecords(f *state.Folder, stores *store.Stores, readOnly bool, logger *slog.Logger) (*storedRecords, error) {
	kept, err := stores.Records(RecordOptions(readOnly, logger))
	if err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	r := &storedRecords{Records: kept, Members: stores.Members, others: stores.Others, sealer: local.Sealer(f), state: f, log: cmp.Or(logger, slog.New(slog.DiscardHandler)), timeout: storeTimeout}
	r.files, _ = kept.(*local.Store)
	return r, nil
}

func (r *storedRecords) Server() string { return r.ID() }

// Sealer returns what signs the files of the project.
func (r *storedRecords) Sealer() durable.Sealer { return r.sealer }

// path returns where a session's record is, for messages.
func (r *storedRecords) path(id string) string {
	if r.files != nil {
		return r.files.RecordPath(id)
	}
	return "session " + id
}

// timed returns the context of a call to the stores.
func (r *storedRecords) timed() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), r.timeout)
}

// activeKey returns the key of an identity's active sessions.
func activeKey(identity string) store.Key { return requestKey{identity: identity}.digest() }
