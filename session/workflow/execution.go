package workflow

import (
	"context"
	"slices"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// An Execution is how far a session is, for callers outside of it: it is read from
// disk, and reading it takes nothing up and moves nothing.
type Execution struct {
	SessionID    string
	JobName      string
	WorkflowName string
	Status       machine.SessionStatus
	StepID       string          // the current one; of one that has ended, the last
	Done, Total  int             // steps of the workflow, members of groups included
	Outputs      machine.Outputs // of all completed steps, merged as finished_step's all_outputs are
	AbortReason  *string         // of one that was aborted
}

// Execution returns how far a session of this identity is, whichever connection or
// server has it, and also after it ended. Errors: a text that is no session_id is
// a ToolError, bad_session_id; a session that is not there, or is another
// identity's, a StateError, unknown_session; one whose file cannot be read, that
// file's own.
func (e *Engine) Execution(ctx context.Context, identity, sessionID string) (*Execution, error) {
	if !machine.IsSessionID(sessionID) {
		return nil, session.Wrong("bad_session_id", "'%s' is no session_id: it is 8 hexadecimal characters, as workflows-execute-tool gives it.", jsontext.Clip(sessionID, 100)).With("argument", "execution_id").With("value", jsontext.Clip(sessionID, 100))
	}
	s, err := e.records.Peek(sessionID)
	if err != nil {
		return nil, err
	}
	if s.Identity != identity {
		return nil, unknownSession(sessionID)
	}
	x := &Execution{
		SessionID: s.SessionID, JobName: s.JobName, WorkflowName: s.WorkflowName, Status: s.Status,
		StepID: s.CurrentStepID, AbortReason: s.AbortReason,
	}
	def, err := e.definitions.Current(ctx, s)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	var steps []string
	if err == nil {
		steps = slices.Concat(def.Workflow.Entries...)
	} else {
		// The definition is lost; what was done is known all the same.
		e.Logger.Warn("telling of a session without its definition", "session", sessionID, "error", err)
		def = nil
		for _, p := range s.StepProgress {
			steps = append(steps, p.Key)
		}
	}
	x.Outputs, x.Total = s.AllOutputs(def), len(steps)
	for _, id := range steps {
		if p := s.Progress(id); p.Done() || p != nil && p.Unreported {
			x.Done++
		}
	}
	return x, nil
}
