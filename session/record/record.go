// Package record reads and writes the sessions of a project, which are rows of its store, as states of the
// machine. It does not check who may do so.
//
// To change it, know these: Store, Record, Request, Waiting.
package record

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/why"
)

// storeTimeout is how long a call waits for the store. It is longer than the store's own timeout, since
// store.ErrBusy, after 10 seconds, says more.
const storeTimeout = 12 * time.Second

// A Store gives access to the sessions in a project's store. Its errors are *session.Error if callers can act
// on them. Its methods block for the store, and may be called from any goroutine.
type Store struct {
	store.Sessions
	root string // of the process, for messages

	// Wrote is called after each write of a transition, even a failed one, with the time that the store took.
	// It must not block. nil means no observer.
	Wrote func(took time.Duration)

	mu      sync.Mutex // guards figures
	figures Figures
}

// Figures count what this process has written.
type Figures struct {
	Started, Completed, Aborted int // sessions
	Steps                       int // finished steps
	Tries                       int // verdicts of reviews, and failed checks
	Asked                       int // questions to a person, each of which is a wait
}

// Figures returns the current figures.
func (r *Store) Figures() Figures {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.figures
}

// Add adds what another store has counted.
func (f *Figures) Add(other Figures) {
	f.Started += other.Started
	f.Completed += other.Completed
	f.Aborted += other.Aborted
	f.Steps += other.Steps
	f.Tries += other.Tries
	f.Asked += other.Asked
}

// Count counts the transition from before, nil for a new session, to next. Write does so for its own; its
// caller does for those that it makes together with it.
func (r *Store) Count(before, next *machine.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.figures
	if before == nil {
		before = &machine.State{}
		f.Started++
	}
	switch ended := before.Status != next.Status; {
	case ended && next.Status == machine.Completed:
		f.Completed++
	case ended && next.Status == machine.Aborted:
		f.Aborted++
	}

	for i, p := range next.StepProgress {
		if i < len(before.StepProgress) && before.StepProgress[i].Value == p.Value {
			continue
		}
		was := cmp.Or(before.Progress(p.Key), &machine.StepProgress{})
		if p.Value.Done() && !was.Done() {
			f.Steps++
		}
		if u, before := p.Value.AsksPerson(), was.AsksPerson(); u != nil && (before == nil || before.ID != u.ID) {
			f.Asked++
		}
		f.Tries += max(0, p.Value.QualityTries-was.QualityTries) + max(0, p.Value.FailedChecks-was.FailedChecks)
	}
}

// Of returns the sessions of a store; root is where this process works.
func Of(s store.Sessions, root string) *Store { return &Store{Sessions: storing(s), root: root} }

// storing lets a program built for the simulation put faults between a process and its store.
var storing = func(s store.Sessions) store.Sessions { return s }

// A Record is a session as read from the store.
type Record struct {
	State *machine.State
	Row   store.Session
}

// Timed limits a call to the store. The call is completed even if its caller has left.
func Timed(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// Read returns a session, or nil if it still has the revision of known. known may be nil.
func (r *Store) Read(ctx context.Context, id string, known *machine.State) (*Record, error) {
	revision := int64(-1)
	if known != nil {
		revision = known.Revision
	}

	ctx, cancel := Timed(ctx)
	defer cancel()
	stored, err := r.ReadSession(ctx, id, revision)
	if err != nil {
		return nil, r.Unreadable(id, err)
	}
	if stored.Revision == revision {
		return nil, nil
	}

	parts := xslices.Map(stored.Parts, func(p store.SessionPart) machine.Part {
		return machine.Part{Kind: machine.PartKind(p.Kind), Key: p.Key, Position: p.Position, Body: []byte(p.Body)}
	})
	s, err := machine.Assemble(id, []byte(stored.Frame), parts)
	if err == nil && s.Revision != stored.Revision {
		err = fmt.Errorf("its row has revision %d, and its state %d", stored.Revision, s.Revision)
	}
	if err != nil {
		return nil, session.NotNow(codes.SessionUnreadable,
			"Session '%s' cannot be read: %v. It was left as it is; `deepwork check` says more. Start the workflow "+
				"again.", id, err).
			With("session_id", id).Because(err)
	}
	return &Record{s, stored.Session}, nil
}

// Revision returns a session's current revision, or -1 if it cannot be read.
func (r *Store) Revision(id string) int64 {
	all, err := r.List(context.Background(), store.SessionQuery{IDs: []string{id}})
	if err != nil || len(all) == 0 {
		return -1
	}
	return all[0].Revision
}

// List returns the sessions that match.
func (r *Store) List(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all, err := r.ListSessions(ctx, q)
	return all, Explain(err)
}

// Ancestry returns a session and those around it, the outermost first.
func (r *Store) Ancestry(ctx context.Context, id string) ([]store.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all, err := r.Sessions.Ancestry(ctx, id)
	if err == nil && len(all) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, r.Unreadable(id, err)
	}
	return all, nil
}

// Write makes the transition from before, nil for a new session, to next. It reports false if another
// process was faster.
func (r *Store) Write(
	ctx context.Context, before *machine.State, row store.Session, next *machine.State, w *store.SessionWrite,
) (written bool, err error) {
	if err := Fill(w, before, row, next); err != nil {
		return false, err
	}

	ctx, cancel := Timed(ctx)
	defer cancel()
	began := time.Now()

	if written, err = r.WriteSession(ctx, w); written {
		r.Count(before, next)
	}
	if r.Wrote != nil {
		r.Wrote(time.Since(began))
	}
	return written, err
}

// Fill sets w to the transition from before, nil for a new session, to next. It ends the work of judging what nobody
// judges any more.
func Fill(w *store.SessionWrite, before *machine.State, row store.Session, next *machine.State) error {
	w.Before = -1
	if before == nil {
		before = &machine.State{}
	} else {
		w.Before = before.Revision
	}
	frame, put, gone, err := next.Changes(before)
	if err != nil {
		return err
	}
	w.Session, w.Frame = RowOf(row, next), string(frame)
	w.Put, w.Gone = append(w.Put, partsOf(put)...), append(w.Gone, partsOf(gone)...) // besides what is not of the state

	if w.EndWork == nil { // a verdict ends its work itself
		for _, p := range before.StepProgress {
			if before.Judged(p.Key) != nil && next.Judged(p.Key) == nil {
				w.EndWork = append(w.EndWork, store.Judging(next.SessionID, p.Key))
			}
		}
	}
	if n := len(next.Replies); n > 0 {
		if p := next.Replies[n-1]; p.RequestID != nil && (p.Revision > before.Revision || w.Before < 0) {
			w.Request = new(Request{next.Identity, p.Tool, *p.RequestID}.Key())
		}
	}

	return nil
}

func partsOf(parts []machine.Part) []store.SessionPart {
	return xslices.Map(parts, func(p machine.Part) store.SessionPart {
		return store.SessionPart{Kind: string(p.Kind), Key: p.Key, Position: p.Position, Body: string(p.Body)}
	})
}

// Defining returns the part with a definition that a transition must store.
func Defining(def *machine.Definition) *store.SessionWrite {
	w := &store.SessionWrite{}
	if def.Data != nil {
		w.Define = &store.Definition{Hash: def.Ref.Hash, Data: def.Data}
	}
	return w
}

// RowOf returns the row of a state. It takes Root, MovedBy and what never changes from the earlier row.
func RowOf(row store.Session, s *machine.State) store.Session {
	row.ID = s.SessionID
	row.Revision = s.Revision
	row.Job = s.JobName
	row.Workflow = s.WorkflowName
	row.Step = s.CurrentStepID
	row.Status = string(s.Status)
	row.Goal = s.Goal
	row.Identity = s.Identity
	row.AttemptID = s.AttemptID
	row.StartedAt = s.StartedAt
	row.UpdatedAt = s.UpdatedAt
	if s.ParentSessionID != nil {
		row.Parent = *s.ParentSessionID
	}
	if s.Place != nil {
		row.MachineID = s.Place.MachineID
		row.Machine = s.Place.MachineName
		row.Place = s.Place.Root
	}
	row.Definition = s.Definition.Hash
	row.Waiting = waitingOf(s)
	row.Branch = s.Branch()
	row.FailedTries = s.FailedTries()
	if s.Pinned != nil {
		row.Pinned = s.Pinned.Definition.Hash
	}
	return row
}

// A Request is a call with a request_id, with the scope of that id (DESIGN "Retries").
type Request struct{ Identity, Tool, ID string }

// Key distinguishes requests. Collisions do not occur by chance; somebody could force one only within one
// identity, since that is part of the key.
func (k Request) Key() store.Key {
	text := make([]byte, 0, 128)
	for _, part := range []string{k.Identity, k.Tool, k.ID} {
		text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return store.Key(sum[:16])
}

// Find returns the id of the session in which a call with a request_id was made, or "".
func (r *Store) Find(ctx context.Context, k Request) (string, error) {
	ctx, cancel := Timed(ctx)
	defer cancel()
	id, err := r.FindRequest(ctx, k.Key())
	return id, Explain(err)
}

// Definition returns the bytes of a stored definition.
func (r *Store) Definition(hash string) ([]byte, error) {
	ctx, cancel := Timed(context.Background())
	defer cancel()
	data, err := r.Sessions.Definition(ctx, hash)
	return data, Explain(err)
}

// Explain converts those errors of a store on which agents can act.
func Explain(err error) error {
	if errors.Is(err, task.ErrDamaged) && session.CodeOf(err) == "" {
		return session.NotNow(codes.StoreDamaged,
			"The database of this project is damaged, and this call has changed nothing: %v.", err).
			Ask("restore it").Because(err)
	}
	return store.Refused(err)
}

// Unreadable converts a read error to one on which agents can act.
func (r *Store) Unreadable(id string, err error) error {
	err = Explain(err)
	switch {
	case session.CodeOf(err) != "":
		return err
	case errors.Is(err, store.ErrNotFound):
		if _, gone := os.Stat(r.root); gone != nil {
			return ProjectGone(r.root, gone)
		}
		return r.Missing(id).Because(err)
	}
	return session.NotNow(codes.SessionUnreadable, "Session '%s' cannot be read: %v.", id, err).With("session_id",
		id).Because(err)
}

// Unknown returns the error for a session that does not exist, as far as the caller may know.
func (r *Store) Unknown(id string) *session.Error {
	return session.NotNow(codes.UnknownSession,
		"Session '%s' not found in this project.", id).
		Next("see the sessions that can be resumed, in resumable and stack", "get_workflows").By("sessions list").
		Next("begin a new one", "start_workflow").With("session_id", id)
}

// Missing returns the error for a session that is not stored. It names a file that can be imported, if there
// is one.
func (r *Store) Missing(id string) *session.Error {
	e, dir := r.Unknown(id), filepath.Join(r.root, ".deepwork", "tmp")
	if info, err := os.Lstat(filepath.Join(dir, state.ExportName(id))); err == nil && info.Mode().IsRegular() {
		e.Add("A file of it is in the project: `deepwork sessions import %s` makes it a session, if a person "+
			"wants that and runs it at a terminal.",
			session.InShell(filepath.Join(dir, state.ExportName(id))))
	}
	files, err := fs.Glob(os.DirFS(dir), state.ExportName("????????"))
	if err != nil || len(files) == 0 {
		return e
	}
	if stored, err := r.List(context.Background(), store.SessionQuery{Limit: 1}); err == nil && len(stored) == 0 {
		e.Add("The project has files of sessions, and its database has no session: if the folder was moved here, " +
			"`deepwork where --adopt OLD-PATH` takes over what it had there.")
	}

	return e
}

// ProjectGone returns the error of a call that needs a project folder which cannot be reached.
func ProjectGone(root string, err error) error {
	return session.NotNow(codes.ProjectGone, "The project folder %s cannot be reached: %v. Restore it and try again.",
		root, err).Because(err)
}

// NotSaved returns the error of a transition that could not be stored, and so was not made.
func NotSaved(id string, err error) error {
	if err := Explain(err); session.CodeOf(err) != "" {
		return err
	}
	return session.NotNow(codes.NotSaved,
		"Session '%s' could not be saved, so nothing has moved: %v. Correct that and try again.", id,
		err).With("session_id", id).Because(err)
}

// An OpenStep is a current step whose last hand-in no person has let through. Whether it waits for a person
// depends on the settings.
type OpenStep struct {
	ID      string    `json:"id"`
	Began   time.Time `json:"began"`
	Given   bool      `json:"given,omitempty"`   // handed in for an external review
	Failed  time.Time `json:"failed,omitzero"`   // when the newest review failed
	Reviews int       `json:"reviews,omitempty"` // number of failed reviews of the step
	// when a person was asked to pass its outputs; zero if nobody is being asked
	Asked  time.Time `json:"asked,omitzero"`
	Rounds bool      `json:"rounds,omitempty"` // the person is asked about used up rounds
	Shown  time.Time `json:"shown,omitzero"`   // when the agent was told to review the outputs itself
	Why    why.Why   `json:"why,omitzero"`
}

// A Waiting says what may wait for a person in an active session. It is a column of the session's row.
type Waiting struct {
	Steps    []OpenStep      `json:"steps"`
	Override config.Override `json:"override,omitempty"` // the pinned setting, if the session is pinned
	Pin      bool            `json:"pin,omitempty"`
}

// waitingOf returns what may wait for a person in a session, or "".
func waitingOf(s *machine.State) string {
	if s.Status != machine.Active {
		return ""
	}

	var w Waiting
	for _, entry := range s.StepProgress {
		p := entry.Value
		if !p.Current() {
			continue
		}

		// a person has let through what was handed in before
		since := func(at time.Time) bool { return !p.HasGrant() || at.After(p.Granted.At) }
		step := OpenStep{ID: entry.Key, Began: p.StartedAt, Reviews: p.FailedTries(), Why: p.Why()}
		if u := p.AsksPerson(); u != nil && since(u.Turn().At) {
			step.Asked, step.Rounds = u.Turn().At, u.Turn().About != ""
		}
		if u := p.Handed(); u.With() == judging.BySelf && since(u.Turn().At) {
			step.Shown = u.Turn().At
		}
		for _, u := range slices.Backward(p.Submissions) {
			if u.LastTurn(judging.ByReviewer) == nil && !u.FailedBy(judging.ByPerson) {
				continue
			}
			step.Given = true
			if u.Failed() && since(*u.EndedAt) {
				step.Failed = *u.EndedAt
			}
			break
		}
		if !step.Asked.IsZero() || !step.Shown.IsZero() || !step.Failed.IsZero() {
			w.Steps = append(w.Steps, step)
		}
	}
	if w.Steps == nil {
		return ""
	}
	if p := s.Pinned; p != nil {
		w.Override, w.Pin = p.Override, p.Pin
	}
	text, err := jsontext.Encode(w)
	if err != nil {
		return ""
	}
	return string(text)
}

// WaitingIn returns what may wait for a person in a session of the store.
func WaitingIn(row store.Session) (w Waiting) {
	if row.Waiting == "" || json.Unmarshal([]byte(row.Waiting), &w) != nil {
		return Waiting{}
	}
	return w
}
