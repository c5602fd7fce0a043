package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/export"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/store"
)

// What commands and pages read of sessions, of all roots and identities.

// A SessionInfo is a session in a list.
type SessionInfo struct {
	store.Session
	InUse bool   // a living process last moved it over a connection, so somebody probably works on it
	By    string // that process, described for people; "" if unknown
}

// List returns every session, the most recently changed first.
func (e *Engine) List(ctx context.Context) ([]SessionInfo, error) {
	return e.infos(ctx, store.SessionQuery{})
}

func (e *Engine) infos(ctx context.Context, q store.SessionQuery) ([]SessionInfo, error) {
	rows, err := e.records.List(ctx, q)
	if err != nil {
		return nil, err
	}

	inUse := e.Stores.InUse(ctx)
	out := make([]SessionInfo, len(rows))
	for i, row := range rows {
		out[i] = SessionInfo{Session: row}
		if row.Status == string(machine.Active) && inUse(&row) {
			out[i].InUse, out[i].By = true, e.Stores.Mover(&row)
		}
	}
	return out, nil
}

// Info returns one session, as List does. For an unknown id it returns the session.Error unknown_session.
func (e *Engine) Info(ctx context.Context, id string) (*SessionInfo, error) {
	if err := checkSessionID(id); err != nil {
		return nil, err
	}

	all, err := e.infos(ctx, store.SessionQuery{IDs: []string{id}})
	if err == nil && len(all) == 0 {
		err = e.records.Missing(id)
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// Elsewhere returns where a session's files are, if that is not this engine's place and folder, else "".
func (e *Engine) Elsewhere(row *store.Session) string {
	if at := row.PlaceOf(); at != nil && (e.Place == nil || !at.Is(*e.Place)) {
		return at.Describe()
	}
	if row.AttemptID != e.Attempt {
		return row.Root
	}
	return ""
}

func checkSessionID(id string) error {
	if machine.IsSessionID(id) {
		return nil
	}
	return session.Wrong(codes.BadSessionID,
		"'%s' is not a session id: expected 8 hexadecimal characters, as `deepwork sessions list` shows it.",
		jsontext.Clip(id, 100))
}

// Records returns the records of the sessions, to be read.
func (e *Engine) Records() *record.Store { return e.records }

// Read returns one session.
func (e *Engine) Read(ctx context.Context, id string) (*machine.State, error) {
	if err := checkSessionID(id); err != nil {
		return nil, err
	}

	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	return r.State, nil
}

// Importer returns an Importer, which makes sessions of exported files. The engine needs a catalog.
func (e *Engine) Importer() *export.Importer {
	return &export.Importer{
		Folder:      e.State,
		Records:     e.records,
		Definitions: e.definitions,
		Files:       e.exports,
		Place:       e.Place,
		Now:         e.now,
		Enter:       e.enter,
	}
}

// GivenFor returns the digest of what was last handed in for a step, "" if nothing was, and its files.
func GivenFor(s *machine.State, stepID string) (digest string, files []judging.FileHash) {
	u := s.Progress(stepID).Handed()
	switch {
	case u == nil:
		return "", nil
	case u.With() == judging.ByProgram, u.FailedBy(judging.ByProgram),
		u.Void != nil && u.LastTurn(judging.ByReviewer) == nil && u.Bound != "":
		return u.Bound, u.Files
	}
	return u.Content, u.Files
}

// definitionsKept is how long definitions that no session needs are kept: a session that is just beginning
// may need one.
const definitionsKept = 2 * time.Hour

// awaited reports whether a complete session is a step whose own session has not taken its outputs yet, or
// cannot be read.
func (e *Engine) awaited(ctx context.Context, row store.Session) bool {
	if row.Parent == "" || row.Status != string(machine.Completed) {
		return false
	}
	r, err := e.records.Read(ctx, row.Parent, nil)
	if err != nil {
		return session.CodeOf(err) != codes.UnknownSession
	}
	return slices.ContainsFunc(r.State.StepProgress, func(p jsontext.Pair[*machine.StepProgress]) bool {
		return p.Value.Child == row.ID && r.State.IsCurrent(p.Key)
	})
}

// Prune removes the sessions that ended before the cutoff and that no other session waits for, their exports
// on this machine, and the definitions that no session needs afterwards. It returns the ids of the sessions
// and the number of definitions. A dry run removes nothing, and does not count definitions.
func (e *Engine) Prune(ctx context.Context, cutoff time.Time, dryRun bool) (old []string, definitions int, err error) {
	rows, err := e.records.List(ctx, store.SessionQuery{Ended: true, Before: cutoff})
	if err != nil {
		return nil, 0, err
	}
	rows = slices.DeleteFunc(rows, func(row store.Session) bool { return e.awaited(ctx, row) })
	for _, row := range rows {
		old = append(old, row.ID)
	}
	if dryRun {
		return old, 0, nil
	}
	if err := e.records.RemoveSessions(ctx, old); err != nil {
		return nil, 0, err
	}
	for _, row := range rows {
		err = errors.Join(err, e.exports.Remove(row))
	}
	if err != nil {
		return old, 0, fmt.Errorf("removing the files of sessions: %w", err)
	}

	definitions, err = e.records.PruneDefinitions(ctx, definitionsKept)
	return old, definitions, err
}

// Inspect checks every session of the project, and the exports in the roots on this machine; see
// record.Inspection. The error is a system error.
func (e *Engine) Inspect(ctx context.Context) (session.Report, error) {
	i := &record.Inspection{Behind: func(r *record.Record) string { return e.exports.Behind(r.Row, r.State) }}
	if err := e.inspect(ctx, i); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the sessions: %w", err)
	}
	return i.Report, nil
}

func (e *Engine) inspect(ctx context.Context, i *record.Inspection) error {
	all, err := e.List(ctx)
	if err != nil {
		return err
	}
	rows := make([]store.Session, len(all))
	for n, info := range all {
		rows[n] = info.Session
	}

	if err := e.records.Inspect(ctx, rows, i); err != nil {
		return err
	}

	inUse, active := 0, 0
	for _, info := range all {
		if _, readable := i.Found(info.ID); readable && info.Status == string(machine.Active) {
			active++
			if info.InUse {
				inUse++
			}
		}
	}

	if i.Report.Live, err = e.Stores.Others(ctx); err != nil {
		return err
	}
	i.Report.Counts = append(i.Report.Counts, session.Count{N: i.Len(), What: "session",
		Of: fmt.Sprintf("%d active, %d of them with a server", active, inUse)})
	return nil
}

// A Progress says how far a session is, for callers outside it. Reading it changes nothing.
type Progress struct {
	SessionID    string
	JobName      string
	WorkflowName string
	Status       machine.SessionStatus
	StepID       string      // the current step, or the last one of an ended session
	Done, Total  int         // steps of the workflow, including members of groups
	Outputs      outputs.Map // of all completed steps, merged as in all_outputs
	AbortReason  *string     // why it was aborted, or nil
}

// Session returns a session of this identity. For its errors see Progress.
func (e *Engine) Session(ctx context.Context, identity, sessionID string) (*machine.State, error) {
	if !machine.IsSessionID(sessionID) {
		return nil, session.Wrong(codes.BadSessionID,
			"'%s' is not a session_id: expected 8 hexadecimal characters, as workflows-execute-tool gives it.",
			jsontext.Clip(sessionID, 100)).With("argument", "execution_id").With("value", jsontext.Clip(sessionID, 100))
	}

	r, err := e.records.Read(ctx, sessionID, nil)
	if err != nil {
		return nil, err
	}
	if r.Row.Identity != identity {
		return nil, e.records.Unknown(sessionID)
	}

	e.resendSpans(ctx, r.State)
	return r.State, nil
}

// Newest returns the sessions of an identity that moved last, at most limit of them, with only their ids,
// jobs and states.
func (e *Engine) Newest(ctx context.Context, identity string, limit int) ([]store.Session, error) {
	return e.records.List(ctx, store.SessionQuery{Identity: identity, Limit: limit, Brief: true})
}

// Children returns the active sessions of this identity that were started from these sessions.
func (e *Engine) Children(
	ctx context.Context, identity string, parents map[string]bool,
) (all []*machine.State, err error) {
	rows, err := e.records.List(ctx,
		store.SessionQuery{Identity: identity, Active: true, Parents: slices.Sorted(maps.Keys(parents))})
	for _, row := range rows {
		r, err := e.records.Read(ctx, row.ID, nil)
		switch {
		case session.CodeOf(err) == codes.UnknownSession: // removed meanwhile
		case err != nil:
			return nil, err
		default:
			all = append(all, r.State)
		}
	}
	return all, err
}

// Defined returns a step by the session's definition: the job's current one or, if the job no longer has the
// workflow, the stored one. For an unknown step it returns an empty one.
func (e *Engine) Defined(ctx context.Context, s *machine.State, stepID string) (*job.Step, error) {
	def, err := e.definitions.Current(ctx, s, e.placeKey())
	if err != nil {
		return nil, err
	}
	if step := def.Job.Step(stepID); step != nil {
		return step, nil
	}
	return &job.Step{}, nil
}

// Progress returns the progress of a session of this identity, also after it ended, whichever connection or
// server moved it. Errors: a ToolError, bad_session_id, for an invalid session_id; a StateError,
// unknown_session, for one that does not exist or belongs to another identity; the file's error if it cannot
// be read.
func (e *Engine) Progress(ctx context.Context, identity, sessionID string) (*Progress, error) {
	s, err := e.Session(ctx, identity, sessionID)
	if err != nil {
		return nil, err
	}

	x := &Progress{
		SessionID: s.SessionID, JobName: s.JobName, WorkflowName: s.WorkflowName, Status: s.Status,
		StepID: s.CurrentStepID, AbortReason: s.AbortReason,
	}

	def, err := e.definitions.Current(ctx, s, e.placeKey())
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil { // the definition is lost, but the progress is known
		e.Logger.Warn("telling of a session without its definition", "session", sessionID, "error", err)
		def = nil
	}
	x.Outputs = s.AllOutputs(def)
	x.Done, x.Total = s.Counts(def)
	return x, nil
}

// ExportEnded exports again the spans of sessions that ended in the last minute, and that nobody goes on
// with: the process that ended them may have been killed before sending them. Spans of unreadable sessions
// are lost.
func (e *Engine) ExportEnded(ctx context.Context) {
	if !telemetry.On() {
		return
	}

	rows, _ := e.records.List(ctx, store.SessionQuery{Ended: true, Limit: 100})
	for _, row := range rows {
		if time.Since(row.UpdatedAt) > time.Minute {
			return
		}
		if r, err := e.records.Read(ctx, row.ID, nil); err == nil {
			e.resendSpans(ctx, r.State)
		}
	}
}
