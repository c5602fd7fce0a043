package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/session"
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

// codeUncertain is the code for a transition that may or may not have been made.
const codeUncertain = "session_uncertain"

// codeForeign is the code for a session whose file was not sealed here, or is an older version.
const codeForeign = "session_foreign"

// The codes for a session that another running server has, and for one that it took over from this
// server.
const (
	codeOwned = "session_owned"
	codeTaken = "owned_elsewhere"
)

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

// within calls f with a context that ends after a time.
func within[R any](d time.Duration, f func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}

// write writes a state by do, after indexing the request id of its call. It returns errors of do
// unchanged.
func (r *storedRecords) write(s *machine.State, do func(ctx context.Context, id string, body []byte) error) error {
	body, err := s.Encode()
	if err != nil {
		return err
	}
	_, err = within(r.timeout, func(ctx context.Context) (struct{}, error) {
		if err := r.note(ctx, s); err != nil {
			return struct{}{}, err
		}
		if err := do(ctx, s.SessionID, body); err != nil {
			return struct{}{}, err
		}
		r.newest(ctx, s)
		return struct{}{}, nil
	})
	return explain(s.SessionID, err)
}

// explain converts the errors of stores that are shared with other machines to ones that agents can
// act on; it returns any other error unchanged.
func explain(id string, err error) error {
	if o, ok := errors.AsType[*store.OwnedError](err); ok {
		return taken(id, o).Because(err)
	}
	return store.Refused(err)
}

// taken returns the error of a call in a session that another server has.
func taken(id string, o *store.OwnedError) *session.Error {
	if o.Owner == "" {
		return session.NotNow(codeTaken, "Another deepwork server has gone on with session '%s' meanwhile, and this call has changed nothing. Call get_step with its session_id to see where it is.", id).With("session_id", id).Wait(0)
	}
	return session.NotNow(codeTaken,
		"Session '%s' is in use by another deepwork server (%s), and this call has changed nothing. Go on there; or stop that server, and then call get_step here with the session_id.",
		id, o.Where).With("session_id", id).With("owner", o.Owner).Wait(10 * time.Second)
}

// activeKey returns the key of an identity's active sessions.
func activeKey(identity string) store.Key { return requestKey{identity: identity}.digest() }

func (r *storedRecords) NoteActive(s *machine.State) {
	_, err := within(r.timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.Records.NoteActive(ctx, activeKey(s.Identity), s.SessionID, s.Status != machine.Active)
	})
	if err != nil {
		r.log.Warn("the list of resumable sessions may be wrong", "session", s.SessionID, "error", err)
	}
}

func (r *storedRecords) Active(ctx context.Context, identity string) iter.Seq2[string, error] {
	return r.Records.Active(ctx, activeKey(identity))
}

// newest notes the number of a record that was written, plus one: 0 means that none is noted.
func (r *storedRecords) newest(ctx context.Context, s *machine.State) {
	if err := r.NoteNewest(ctx, s.SessionID, s.Seq+1); err != nil {
		r.log.Warn("an older version of a session's file would not be noticed", "session", s.SessionID, "error", err)
	}
}

// pruned is the id, of no session, under which the time of the last prune is noted as microseconds of
// the Unix epoch. Nothing else is kept of sessions that were pruned.
const pruned = "00000000"

// noted returns what current needs; it is read before the record.
func (r *storedRecords) noted(ctx context.Context, id string) (newest, cutoff int64) {
	if newest = r.Newest(ctx, id); newest == 0 {
		cutoff = r.Newest(ctx, pruned)
	}
	return newest, cutoff
}

// current returns a *store.ForeignError if the record is older than the newest one, or is of a session
// that was pruned.
func (r *storedRecords) current(s *machine.State, newest, cutoff int64) error {
	if s.UpdatedAt.UnixMicro() < cutoff {
		return &store.ForeignError{ID: s.SessionID, Path: r.path(s.SessionID), Older: true,
			Reason: "it is unknown here, and last moved before sessions were pruned: a version of a session that was pruned was put back"}
	}
	if s.Seq+1 >= newest {
		return nil
	}
	return &store.ForeignError{ID: s.SessionID, Path: r.path(s.SessionID), Older: true,
		Reason: fmt.Sprintf("an older version of it was put back, number %d, and the newest is number %d", s.Seq, newest-1)}
}

func (r *storedRecords) Create(s *machine.State) error {
	r.NoteActive(s)
	err := r.write(s, func(ctx context.Context, id string, body []byte) error {
		err := r.Records.Create(ctx, id, body)
		if errors.Is(err, store.ErrUnsynced) {
			err = errors.Join(err, r.Remove(ctx, id)) // it must not exist after the call was refused
		}
		return err
	})
	switch {
	case err == nil || errors.Is(err, store.ErrExists) || session.CodeOf(err) != "":
		return err
	case errors.Is(err, store.ErrPending):
		return session.NotNow(codeUncertain, "The session may have been started or not: %v. Make the same call again with the same request_id; without one, see first whether get_workflows lists the session in resumable.", err).Because(err)
	}
	return notSaved(s.SessionID, err)
}

func (r *storedRecords) Save(s *machine.State) error {
	if s.Status == machine.Active {
		r.NoteActive(s)
	}
	err := r.write(s, func(ctx context.Context, id string, body []byte) error {
		err := r.Write(ctx, id, body)
		if errors.Is(err, store.ErrUnsynced) {
			err = r.Write(ctx, id, body) // it is in place; repeat to make it durable
		}
		return err
	})
	if err == nil && s.Status != machine.Active {
		r.NoteActive(s)
	}
	text := "Session '%s' may have moved or not: %v. Call get_step to see where the session is."
	switch {
	case err == nil || session.CodeOf(err) != "": // expected
		return err
	case errors.Is(err, store.ErrUnsynced):
		text = "Session '%s' may have moved or not: its record was written, but the disk did not confirm it (%v). Correct that, then call get_step to see where the session is."
	case !errors.Is(err, store.ErrPending):
		return notSaved(s.SessionID, err)
	}
	return session.NotNow(codeUncertain, text, s.SessionID, err).With("session_id", s.SessionID).Because(err)
}

// Release treats a write that the disk did not confirm as made: after a crash this server is gone,
// and the record free in both versions.
func (r *storedRecords) Release(s *machine.State) error {
	err := r.write(s, r.Write)
	if errors.Is(err, store.ErrUnsynced) {
		return nil
	}
	return err
}

func (r *storedRecords) Peek(id string) (*machine.State, error) { return r.read(id, r.Records.Peek) }

// read reads a record by the store's Read or Peek.
func (r *storedRecords) read(id string, do func(context.Context, string) ([]byte, error)) (*machine.State, error) {
	var newest, cutoff int64
	body, err := within(r.timeout, func(ctx context.Context) ([]byte, error) {
		newest, cutoff = r.noted(ctx, id)
		return do(ctx, id)
	})
	if err != nil {
		return nil, r.unreadable(id, err)
	}
	s, err := r.decode(id, body)
	if err != nil {
		return nil, err
	}
	if err := r.current(s, newest, cutoff); err != nil {
		return nil, r.unreadable(id, err)
	}
	return s, nil
}

func (r *storedRecords) Load(id string) (*machine.State, error) {
	s, err := r.read(id, r.Read)
	// An active session is written again by the server that resumes it. An ended one is returned:
	// another server may have ended it just now.
	if err == nil && s.Status != machine.Active && s.Owner != r.Server() {
		return within(r.timeout, func(ctx context.Context) (*machine.State, error) {
			if err := r.Settle(ctx); err != nil {
				return nil, r.unreadable(id, err)
			}
			return s, nil
		})
	}
	return s, err
}

func (r *storedRecords) Update(id string, change func(*machine.State) (*machine.State, error)) (*machine.State, error) {
	return within(2*r.timeout, func(ctx context.Context) (*machine.State, error) {
		var now *machine.State
		newest, cutoff := r.noted(ctx, id)
		written := false
		err := r.Records.Update(ctx, id, func(body []byte) ([]byte, error) {
			s, err := r.decode(id, body)
			if err != nil {
				return nil, err
			}
			if err := r.current(s, newest, cutoff); err != nil {
				return nil, err
			}
			now = s
			next, err := change(s)
			if err != nil || next == nil {
				return nil, err
			}
			now, written = next, true
			return next.Encode()
		})
		if err != nil {
			return nil, r.unreadable(id, err)
		}
		if written {
			r.newest(ctx, now)
			r.NoteActive(now)
		}
		return now, nil
	})
}

// note adds the call of a transition, which is in its last reply, to the index of request ids.
func (r *storedRecords) note(ctx context.Context, s *machine.State) error {
	if len(s.Replies) == 0 {
		return nil
	}
	p := s.Replies[len(s.Replies)-1]
	if p.RequestID == nil {
		return nil
	}
	if err := r.NoteRequest(ctx, requestKey{s.Identity, p.Tool, *p.RequestID}.digest(), s.SessionID); err != nil {
		return notSaved(s.SessionID, err)
	}
	return nil
}

func (r *storedRecords) FindRequest(k store.Key) ([]string, error) {
	return within(r.timeout, func(ctx context.Context) ([]string, error) { return r.Records.FindRequest(ctx, k) })
}

func (r *storedRecords) PutDefinition(hash string, data []byte) error {
	_, err := within(r.timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.Records.PutDefinition(ctx, hash, data)
	})
	return store.Refused(err)
}

func (r *storedRecords) Definition(hash string) ([]byte, error) {
	data, err := within(r.timeout, func(ctx context.Context) ([]byte, error) { return r.Records.Definition(ctx, hash) })
	return data, store.Refused(err)
}

// decode decodes a body with a valid checksum. If it is not a session, it is reported and left
// unchanged.
func (r *storedRecords) decode(id string, body []byte) (*machine.State, error) {
	s, err := machine.Decode(id, body)
	if err == nil {
		return s, nil
	}
	if _, ok := errors.AsType[*session.Error](err); ok {
		return nil, err
	}
	return nil, session.NotNow("session_unreadable",
		"Session '%s' cannot be read: %v. Its file was left untouched; `deepwork sessions list` says where. Start the workflow again.", id, err).
		With("session_id", id).Because(err)
}

// unreadable converts a read error to one that agents can act on.
func (r *storedRecords) unreadable(id string, err error) error {
	err = explain(id, err)
	if _, ok := errors.AsType[*session.Error](err); ok {
		return err
	}
	if errors.Is(err, store.ErrNotFound) {
		if _, gone := os.Stat(r.state.Root); gone != nil {
			return projectGone(r.state.Root, gone)
		}
		e := unknownSession(id).Because(err)
		if r.files == nil {
			return e
		}
		if aside, lerr := r.files.Damaged(context.Background()); lerr == nil {
			for _, path := range aside {
				if strings.Contains(filepath.Base(path), "damaged_session_"+id) {
					e.Message += fmt.Sprintf(" Its file was damaged, and set aside as %s.", path)
					e.With("path", path)
				}
			}
		}
		return e
	}
	if f, ok := errors.AsType[*store.ForeignError](err); ok {
		return session.NotNow(codeForeign,
			"The file of session '%s' %s. Nothing of it was used, and it was left untouched. If the user knows where it comes from, they can look at it and take it over with `deepwork sessions adopt %s` in a terminal; else start the workflow again.",
			id, f.Finding(), id).With("session_id", id).With("path", f.Path).Because(err)
	}
	if d, ok := errors.AsType[*store.DamagedError](err); ok {
		return session.NotNow("session_damaged",
			"The file of session '%s' is damaged (%s). It is at %s; nothing was overwritten. Restore it from a backup, or start the workflow again: the files it made are where they were.",
			id, d.Reason, d.Path).With("session_id", id).With("path", d.Path).Because(err)
	}
	return session.NotNow("session_unreadable",
		"The file of session '%s' cannot be read: %v.", id, err).With("session_id", id).Because(err)
}

func projectGone(root string, err error) error {
	return session.NotNow("project_gone", "The project folder %s cannot be reached: %v. Restore it and call again.", root, err).Because(err)
}

func unknownSession(id string) *session.Error {
	return session.NotNow("unknown_session",
		"Session '%s' not found in this project. get_workflows lists the sessions that you can go on with, in resumable and stack; start_workflow begins a new one.", id).With("session_id", id)
}

// notSaved returns the error of a transition that could not be made durable, and was not made.
func notSaved(id string, err error) error {
	if err := store.Refused(err); session.CodeOf(err) == session.CodeNoStateFolder || session.CodeOf(err) == store.CodeUnavailable {
		return err
	}
	return session.NotNow("not_saved",
		"Session '%s' could not be saved, so nothing has moved: %v. Correct that and make the same call again.", id, err).With("session_id", id).Because(err)
}
