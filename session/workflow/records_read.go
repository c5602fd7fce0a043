package workflow

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

func (r *storedRecords) Peek(id string) (*machine.State, error) { return r.read(id, r.Records.Peek) }

func (r *storedRecords) Load(id string) (*machine.State, error) {
	s, err := r.read(id, r.Read)
	// An active session is written again by the server that resumes it. An ended one is returned:
	// another server may have ended it just now.
	if err == nil && s.Status != machine.Active && s.Owner != r.Server() {
		ctx, cancel := r.timed()
		defer cancel()
		if err := r.Settle(ctx); err != nil {
			return nil, r.unreadable(id, err)
		}
	}
	return s, err
}

// read reads a record by the store's Read or Peek.
func (r *storedRecords) read(id string, do func(context.Context, string) ([]byte, error)) (*machine.State, error) {
	ctx, cancel := r.timed()
	defer cancel()
	newest, cutoff := r.noted(ctx, id)
	body, err := do(ctx, id)
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

func (r *storedRecords) Update(id string, change func(*machine.State) (*machine.State, error)) (*machine.State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*r.timeout)
	defer cancel()
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

func (r *storedRecords) Active(ctx context.Context, identity string) iter.Seq2[string, error] {
	return r.Records.Active(ctx, activeKey(identity))
}

func (r *storedRecords) FindRequest(k store.Key) ([]string, error) {
	ctx, cancel := r.timed()
	defer cancel()
	return r.Records.FindRequest(ctx, k)
}

func (r *storedRecords) Definition(hash string) ([]byte, error) {
	ctx, cancel := r.timed()
	defer cancel()
	data, err := r.Records.Definition(ctx, hash)
	return data, store.Refused(err)
}
