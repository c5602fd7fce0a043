package workflow

import (
	"context"
	"maps"
	"slices"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/store"
)

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
