package workflow

import (
	"context"
	"errors"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// write writes a state by do, after indexing the request id of its call. It returns errors of do
// unchanged.
func (r *storedRecords) write(s *machine.State, do func(ctx context.Context, id string, body []byte) error) error {
	body, err := s.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := r.timed()
	defer cancel()
	if err = r.note(ctx, s); err == nil {
		err = do(ctx, s.SessionID, body)
	}
	if err == nil {
		r.newest(ctx, s)
	}
	return explain(s.SessionID, err)
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

func (r *storedRecords) NoteActive(s *machine.State) {
	ctx, cancel := r.timed()
	defer cancel()
	if err := r.Records.NoteActive(ctx, activeKey(s.Identity), s.SessionID, s.Status != machine.Active); err != nil {
		r.log.Warn("the list of resumable sessions may be wrong", "session", s.SessionID, "error", err)
	}
}

// newest notes the number of a record that was written, plus one: 0 means that none is noted.
func (r *storedRecords) newest(ctx context.Context, s *machine.State) {
	if err := r.NoteNewest(ctx, s.SessionID, s.Seq+1); err != nil {
		r.log.Warn("an older version of a session's file would not be noticed", "session", s.SessionID, "error", err)
	}
}

func (r *storedRecords) PutDefinition(hash string, data []byte) error {
	ctx, cancel := r.timed()
	defer cancel()
	return store.Refused(r.Records.PutDefinition(ctx, hash, data))
}
