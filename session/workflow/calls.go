package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"deepwork/actor"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// FinishArgs are the parameters of finished_step (seed 000, 001.4.2 and 3).
type FinishArgs struct {
	Outputs        json.RawMessage `json:"outputs"` // untyped: 001.5 judges it
	Notes          *string         `json:"notes"`
	OverrideReason *string         `json:"quality_review_override_reason"`
	SessionID      *string         `json:"session_id"`
	StepID         *string         `json:"step_id"`
	RequestID      *string         `json:"request_id"`
}

// Finish reports a step as finished (seed 000, 001.4). Called again with the
// step_id and outputs of the step that was finished last, or with the same
// request_id, it gives the reply again and moves nothing.
func (c *Conn) Finish(ctx context.Context, a FinishArgs) (*FinishReply, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	arrived := time.Now()
	id := a.RequestID
	a.RequestID = nil
	who, err := c.caller(ToolFinish, id, a)
	if err != nil {
		return nil, err
	}
	var about, ended string
	r, again, err := once(ctx, c, who, func() (*FinishReply, string, error) {
		f, err := c.finish(ctx, who, a, arrived)
		if err != nil {
			return nil, "", err
		}
		about = f.ID
		reply := *f.Reply
		if reply.Status == WorkflowComplete {
			ended = f.ID
		}
		if !f.Recorded {
			return &reply, "", nil
		}
		return &reply, f.ID, nil
	})
	if err != nil {
		return nil, err
	}
	if err := c.resumeReplayed(ctx, again); err != nil {
		return nil, err
	}
	if again != "" {
		about = again
		if r.Status == WorkflowComplete {
			ended = again
		}
	}
	if ended != "" {
		r.ResumedWorkflow, r.ResumedStep = c.resumed(ctx, ended)
	}
	r.Stack = c.stackOf(ctx, about)
	return r, nil
}

// finish finds the session a finished_step is about and asks it.
func (c *Conn) finish(ctx context.Context, who caller, a FinishArgs, arrived time.Time) (*finished, error) {
	how, err := c.engine.reviewing(ctx)
	if err != nil {
		return nil, err
	}
	asked := func(id string) (*finished, error) {
		return askWithin(ctx, c.engine, id, c.engine.askTimeout+how.ReplyWithin, func(r actor.Reply[*finished]) message {
			return &finishMessage{caller: who, Args: a, Arrived: arrived, Gone: ctx.Done(), Progress: progressOf(ctx), Conn: c, Reply: r}
		})
	}
	if a.SessionID == nil && a.StepID != nil {
		// The session that this step ended has left the stack: the call may be
		// the repetition of the one whose reply was lost.
		if id := c.lastEnded(ctx, a, c.moves.Load()); id != "" {
			f, err := asked(id)
			if err == nil && !f.Recorded {
				if stack := c.Stack(); len(stack) > 0 {
					top := stack[len(stack)-1]
					again := *f.Reply
					again.Notice = join(again.Notice, fmt.Sprintf(
						"This repeats the reply to the call that completed session '%s'. If you meant session '%s' (%s), which is at step '%s', pass its session_id.",
						id, top.SessionID, top.Workflow, top.Step))
					f.Reply = &again
				}
			}
			return f, err
		}
	}
	h, err := c.target(ctx, a.SessionID)
	if err != nil {
		if a.StepID != nil && session.CodeOf(err) == codeNoSession {
			if id := c.lastEnded(ctx, a, 0); id != "" {
				return asked(id)
			}
		}
		return nil, err
	}
	return asked(h.id)
}

// lastEnded finds the session that the step of this call ended, by the
// connection's transition since or a later one. On a stateless connection, which
// agents share, only a call that named no session either can be repeated by this.
func (c *Conn) lastEnded(ctx context.Context, a FinishArgs, since uint64) string {
	same := func(have Outputs) bool { return machine.SameOutputs(a.Outputs, have) }
	id, err := askStack(ctx, c, func(r actor.Reply[string]) stackMessage {
		return lastEndedMessage{*a.StepID, same, since, c.stateless, r}
	})
	if err != nil {
		return ""
	}
	return id
}

// AbortArgs are the parameters of abort_workflow (seed 000, 001.6).
type AbortArgs struct {
	Explanation string  `json:"explanation"`
	SessionID   *string `json:"session_id"`
	RequestID   *string `json:"request_id"`
}

// Abort ends a session and takes it off the stack (seed 000, 001.6).
func (c *Conn) Abort(ctx context.Context, a AbortArgs) (*AbortReply, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	id := a.RequestID
	a.RequestID = nil
	who, err := c.caller(ToolAbort, id, a)
	if err != nil {
		return nil, err
	}
	aborted := ""
	r, again, err := once(ctx, c, who, func() (*AbortReply, string, error) {
		h, err := c.target(ctx, a.SessionID)
		if err != nil {
			return nil, "", err
		}
		r, err := ask(ctx, c.engine, h.id, func(p actor.Reply[*AbortReply]) message { return abortMessage{who, a.Explanation, p} })
		if err != nil {
			return nil, "", err
		}
		c.moved(ctx, nil, false)
		aborted = h.id
		reply := *r
		return &reply, h.id, nil
	})
	if err != nil {
		return nil, err
	}
	if err := c.resumeReplayed(ctx, again); err != nil {
		return nil, err
	}
	if again != "" {
		aborted = again
	}
	r.ResumedWorkflow, r.ResumedStep = c.resumed(ctx, aborted)
	r.Stack = c.stackOf(ctx, aborted)
	return r, nil
}

// StepArgs are the parameters of get_step.
type StepArgs struct {
	SessionID *string `json:"session_id"`
}

// Step reads the current step without moving; it takes a session up as well
// (DESIGN "Stacks").
func (c *Conn) Step(ctx context.Context, a StepArgs) (*StepReply, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	who, err := c.caller("get_step", nil, a)
	if err != nil {
		return nil, err
	}
	h, err := c.target(ctx, a.SessionID)
	if err != nil {
		return nil, err
	}
	r, err := ask(ctx, c.engine, h.id, func(p actor.Reply[*StepReply]) message { return stepMessage{who, p} })
	if err != nil {
		return nil, err
	}
	r.Stack = c.stackOf(ctx, h.id)
	return r, nil
}

// GoToArgs are the parameters of go_to_step.
type GoToArgs struct {
	StepID    string  `json:"step_id"`
	SessionID *string `json:"session_id"`
	RequestID *string `json:"request_id"`
}

// GoTo goes back to an earlier step, or begins the current one anew: the
// progress of that step and all later ones is cleared and kept in the session's
// history; files stay.
func (c *Conn) GoTo(ctx context.Context, a GoToArgs) (*GoToReply, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	id := a.RequestID
	a.RequestID = nil
	who, err := c.caller(ToolGoTo, id, a)
	if err != nil {
		return nil, err
	}
	r, again, err := once(ctx, c, who, func() (*GoToReply, string, error) {
		h, err := c.target(ctx, a.SessionID)
		if err != nil {
			return nil, "", err
		}
		r, err := ask(ctx, c.engine, h.id, func(p actor.Reply[*GoToReply]) message { return goToMessage{who, a.StepID, p} })
		if err != nil {
			return nil, "", err
		}
		c.moved(ctx, nil, false)
		reply := *r
		return &reply, h.id, nil
	})
	if err == nil {
		err = c.resumeReplayed(ctx, again)
	}
	if err != nil {
		return nil, err
	}
	r.Stack = c.stackOf(ctx, r.BeginStep.SessionID)
	return r, nil
}

// resumeReplayed puts the session whose reply was given again by its request_id
// on the stack, since the caller goes on with it, or what is below one that has
// ended: the connection that it was on may be gone.
func (c *Conn) resumeReplayed(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	_, err := c.target(ctx, &id)
	return err
}
