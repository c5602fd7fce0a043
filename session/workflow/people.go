package workflow

import (
	"context"
	"errors"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// What a person does to a session, anybody's and of any root: at a terminal or on a page.

// A grant is a person's override of the reviews of a step.
type grant struct {
	Step     string
	Override machine.Override // without time
}

// AbortFor ends a session for a person.
func (e *Engine) AbortFor(ctx context.Context, id, reason string) error {
	return e.actFor(ctx, id, machine.ToolAbort, func(_ context.Context, a *sessionActor, who caller) error {
		_, err := a.abort(who, reason)
		return err
	})
}

// AbortOf ends the active sessions that were begun in the workspace of an attempt.
func (e *Engine) AbortOf(ctx context.Context, attemptID, reason string) error {
	rows, err := e.records.List(ctx, store.SessionQuery{Active: true, Attempt: &attemptID})
	for _, row := range rows {
		if aerr := e.AbortFor(ctx, row.ID, reason); session.CodeOf(aerr) != codes.SessionEnded {
			err = errors.Join(err, aerr)
		}
	}
	return err
}

// OverrideFor records that a person overrides the reviews of a current step, whose next finished_step then
// goes on without them. o.GivenFor is what they were shown (see GivenFor).
func (e *Engine) OverrideFor(ctx context.Context, id, stepID string, o machine.Override) error {
	return e.actFor(ctx, id, "", func(ctx context.Context, a *sessionActor, _ caller) error {
		return a.grant(ctx, grant{stepID, o})
	})
}

// GoToFor goes back to a step of a session; see Conn.GoTo.
func (e *Engine) GoToFor(ctx context.Context, id, stepID string) error {
	return e.actFor(ctx, id, machine.ToolGoTo, func(ctx context.Context, a *sessionActor, who caller) error {
		_, err := a.goTo(ctx, who, stepID, false)
		return err
	})
}

// ReviewFor records what a person decides about a step that waits for them: about the outputs with a digest,
// which they were shown. An answer is refused if its files have changed since they were handed in.
func (e *Engine) ReviewFor(ctx context.Context, id, stepID, digest string, answer machine.Answer) error {
	answer.At = e.now()
	d := decision{stepID, digest, answer}
	if err := e.unchanged(ctx, id, d); err != nil {
		return err
	}
	return e.actFor(ctx, id, "", func(_ context.Context, a *sessionActor, _ caller) error { return a.decide(d) })
}

// actFor has a session's actor do what a person asks for. The process that moved the session last over a
// connection stays what is recorded.
func (e *Engine) actFor(ctx context.Context, id, tool string, do func(context.Context, *sessionActor, caller) error) error {
	call := machine.Call{Tool: tool, ID: randomID(8)}
	_, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (none struct{}, err error) {
		who := caller{Identity: a.state.Identity, Anywhere: true, Call: call}
		if a.state.Status != machine.Active && a.state.OwnReply(call) == nil {
			return none, a.state.Ended()
		}
		return none, do(ctx, a, who)
	})
	return err
}
