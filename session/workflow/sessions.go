package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/export"
	"deepwork/session/judging"
	"deepwork/session/machine"
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
	case u.With() == judging.ByProgram || u.FailedBy(judging.ByProgram) || u.Void != nil && u.Of(judging.ByReviewer) == nil:
		return u.Bound, u.Files
	}
	return u.Content, u.Files
}

// Step returns a step of a session by the definition that was stored when the session last moved.
func (e *Engine) Step(s *machine.State, stepID string) (*job.Step, error) {
	def, err := e.Definition(s)
	if err != nil {
		return nil, err
	}
	if def.Workflow.Find(stepID) < 0 {
		return nil, fmt.Errorf("session %s has no step %q", s.SessionID, stepID)
	}
	return def.Job.Step(stepID), nil
}

// Definition returns the definition that was stored when a session last moved.
func (e *Engine) Definition(s *machine.State) (*machine.Definition, error) {
	def, err := e.definitions.Kept(s.Definition)
	if err != nil {
		return nil, fmt.Errorf("reading the definition of session %s: %w", s.SessionID, err)
	}
	return def.For(s), nil
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
