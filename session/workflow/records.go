package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// storeTimeout is how long a call waits for the store: longer than a store itself does, whose store.ErrBusy
// after 10 seconds says more.
const storeTimeout = 12 * time.Second

// records are the sessions in the store, as states. Their errors are *session.Error, if callers can act on
// them.
type records struct {
	store.Sessions
	root string // of the engine, for messages
}

// A record is a session as it was read.
type record struct {
	state *machine.State
	row   store.Session
}

// timed bounds a call to the store. What was begun is finished, also if the caller has left.
func timed(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// read returns a session, or nil if it still has the revision of known, which may be nil.
func (r *records) read(ctx context.Context, id string, known *machine.State) (*record, error) {
	revision := int64(-1)
	if known != nil {
		revision = known.Revision
	}
	ctx, cancel := timed(ctx)
	defer cancel()
	stored, err := r.ReadSession(ctx, id, revision)
	if err != nil {
		return nil, r.unreadable(id, err)
	}
	if stored.Revision == revision {
		return nil, nil
	}
	parts := make([]machine.Part, len(stored.Parts))
	for i, p := range stored.Parts {
		parts[i] = machine.Part{Kind: machine.PartKind(p.Kind), Key: p.Key, Position: p.Position, Body: []byte(p.Body)}
	}
	s, err := machine.Assemble(id, []byte(stored.Frame), parts)
	if err == nil && s.Revision != stored.Revision {
		err = fmt.Errorf("its row has revision %d, and its state %d", stored.Revision, s.Revision)
	}
	if err != nil {
		return nil, session.NotNow("session_unreadable",
			"Session '%s' cannot be read: %v. It was left as it is; `deepwork check` says more. Start the workflow again.", id, err).
			With("session_id", id).Because(err)
	}
	return &record{s, stored.Session}, nil
}

// revision returns the revision that a session has, or -1 if it cannot be read.
func (r *records) revision(id string) int64 {
	all, err := r.list(context.Background(), store.SessionQuery{IDs: []string{id}})
	if err != nil || len(all) == 0 {
		return -1
	}
	return all[0].Revision
}

// list returns the sessions that match.
func (r *records) list(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all, err := r.ListSessions(ctx, q)
	return all, explain(err)
}

// ancestry returns a session and what it is nested in, the outermost first.
func (r *records) ancestry(ctx context.Context, id string) ([]store.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all, err := r.Ancestry(ctx, id)
	if err == nil && len(all) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, r.unreadable(id, err)
	}
	return all, nil
}

// write makes the transition from before, nil for a new session, to next. It reports false if another
// process was faster.
func (r *records) write(ctx context.Context, before *machine.State, row store.Session, next *machine.State, w *store.SessionWrite) (written bool, err error) {
	w.Before = -1
	if before == nil {
		before = &machine.State{}
	} else {
		w.Before = before.Revision
	}
	frame, put, gone, err := next.Changes(before)
	if err != nil {
		return false, err
	}
	w.Session, w.Frame = rowOf(row, next), string(frame)
	w.Put, w.Gone = partsOf(put), partsOf(gone)
	if n := len(next.Replies); n > 0 {
		if p := next.Replies[n-1]; p.RequestID != nil && (p.Revision > before.Revision || w.Before < 0) {
			w.Request = new(requestKey{next.Identity, p.Tool, *p.RequestID}.digest())
		}
	}
	ctx, cancel := timed(ctx)
	defer cancel()
	return r.WriteSession(ctx, w)
}

func partsOf(parts []machine.Part) []store.SessionPart {
	all := make([]store.SessionPart, len(parts))
	for i, p := range parts {
		all[i] = store.SessionPart{Kind: string(p.Kind), Key: p.Key, Position: p.Position, Body: string(p.Body)}
	}
	return all
}

// rowOf returns the row of a state. Root, MovedBy and what never changes are those of the row before.
func rowOf(row store.Session, s *machine.State) store.Session {
	row.ID, row.Revision, row.Job, row.Workflow, row.Step, row.Status = s.SessionID, s.Revision, s.JobName, s.WorkflowName, s.CurrentStepID, string(s.Status)
	row.Goal, row.Identity, row.AttemptID, row.StartedAt, row.UpdatedAt = s.Goal, s.Identity, s.AttemptID, s.StartedAt, s.UpdatedAt
	if s.ParentSessionID != nil {
		row.Parent = *s.ParentSessionID
	}
	if s.Place != nil {
		row.MachineID, row.Machine, row.Place = s.Place.MachineID, s.Place.MachineName, s.Place.Root
	}
	row.Definition, row.Waiting, row.Branch = s.Definition.Hash, waitingOf(s), s.Branch()
	if s.Pinned != nil {
		row.Pinned = s.Pinned.Definition.Hash
	}
	return row
}

// A requestKey is what a request_id is scoped to (DESIGN "Retries").
type requestKey struct{ identity, tool, id string }

// digest distinguishes keys: collisions do not occur by chance, and could only be forced within one
// identity, which is part of it.
func (k requestKey) digest() store.Key {
	text := make([]byte, 0, 128)
	for _, part := range []string{k.identity, k.tool, k.id} {
		text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return store.Key(sum[:16])
}

// find returns the session in which a call with a request_id was made, or "".
func (r *records) find(ctx context.Context, k requestKey) (string, error) {
	ctx, cancel := timed(ctx)
	defer cancel()
	id, err := r.FindRequest(ctx, k.digest())
	return id, explain(err)
}

// definition returns the bytes of a stored definition.
func (r *records) definition(hash string) ([]byte, error) {
	ctx, cancel := timed(context.Background())
	defer cancel()
	data, err := r.Definition(ctx, hash)
	return data, explain(err)
}

// codeUncertain is the code for a transition that may or may not have been made.
const codeUncertain = "session_uncertain"

// codeDamaged is the code of a call that needs a database that is damaged.
const codeDamaged = "store_damaged"

// explain converts the errors of a store on which agents can act.
func explain(err error) error {
	if errors.Is(err, task.ErrDamaged) && session.CodeOf(err) == "" {
		return session.NotNow(codeDamaged, "The database of this project is damaged, and this call has changed nothing: %v. Tell the user.", err).Because(err)
	}
	return store.Refused(err)
}

// unreadable converts a read error to one that agents can act on.
func (r *records) unreadable(id string, err error) error {
	err = explain(err)
	switch {
	case session.CodeOf(err) != "":
		return err
	case errors.Is(err, store.ErrNotFound):
		if _, gone := os.Stat(r.root); gone != nil {
			return projectGone(r.root, gone)
		}
		return r.missing(id).Because(err)
	}
	return session.NotNow("session_unreadable", "Session '%s' cannot be read: %v.", id, err).With("session_id", id).Because(err)
}

// unknown is the error for a session that does not exist, as far as the caller may know.
func (r *records) unknown(id string) *session.Error {
	return session.NotNow("unknown_session",
		"Session '%s' not found in this project. get_workflows lists the sessions that you can go on with, in resumable and stack; start_workflow begins a new one.", id).With("session_id", id)
}

func projectGone(root string, err error) error {
	return session.NotNow("project_gone", "The project folder %s cannot be reached: %v. Restore it and call again.", root, err).Because(err)
}

// notSaved returns the error of a transition that could not be made durable, and was not made.
func notSaved(id string, err error) error {
	if err := explain(err); session.CodeOf(err) != "" {
		return err
	}
	return session.NotNow("not_saved",
		"Session '%s' could not be saved, so nothing has moved: %v. Correct that and make the same call again.", id, err).With("session_id", id).Because(err)
}
