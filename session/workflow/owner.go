package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// The requests to the owner of a session; there is no answer.
const (
	actionAbort    = "abort"    // its argument is the reason
	actionOverride = "override" // its argument is a grant
	actionGoTo     = "go back"  // its argument is a step
	actionReview   = "review"   // its argument is a decision
)

// A grant is a person's override of the reviews of a step.
type grant struct {
	Step     string
	Override machine.Override // without time
}

// serveRequests carries out requests of other processes about sessions that this server owns, until
// the engine closes.
func (e *Engine) serveRequests(requests store.Requests) {
	owns := func(id string) bool { return e.handles.Get(id) != nil }
	requests.Serve(e.ctx, store.OfSession, owns, func(ctx context.Context, q store.Request) (any, error) {
		if !q.Caller.Owner || q.Caller.Remote() {
			return nil, unknownSession(q.Target) // only commands and pages of the user ask
		}
		return nil, e.carryOut(ctx, q.Target, q.Action, q.Arguments)
	})
}

// carryOut does what a person asks for about a session that this server owns.
func (e *Engine) carryOut(ctx context.Context, id, action string, arguments json.RawMessage) error {
	var text string
	var g grant
	var d decision
	argument := map[string]any{actionAbort: &text, actionOverride: &g, actionGoTo: &text, actionReview: &d}[action]
	if argument == nil || json.Unmarshal(arguments, argument) != nil {
		return fmt.Errorf("a session's owner cannot %s %s", action, arguments)
	}
	h := e.handles.Get(id)
	if h == nil {
		return unknownSession(id)
	}
	if action == actionReview {
		if err := e.unchanged(ctx, id, d); err != nil {
			return err
		}
	}
	who := caller{Identity: h.View().Identity}
	_, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (struct{}, error) {
		var err error
		switch action {
		case actionAbort:
			who.Call.Tool = machine.ToolAbort
			_, err = a.abort(who, text)
		case actionOverride:
			err = a.grant(ctx, g)
		case actionGoTo:
			who.Call.Tool = machine.ToolGoTo
			_, err = a.goTo(ctx, who, text, false)
		case actionReview:
			err = a.decide(d)
		}
		return struct{}{}, err
	})
	return err
}

// AbortFor ends a session, anybody's, for a person. Like OverrideFor and GoToFor it asks the server
// that owns the session. If none does, it takes the session over and releases it then, for the server
// of the agent that goes on with it.
func (e *Engine) AbortFor(ctx context.Context, id, reason string) error {
	return e.actFor(ctx, id, actionAbort, reason)
}

// OverrideFor records that a person overrides the reviews of a current step; see Archive.Override.
func (e *Engine) OverrideFor(ctx context.Context, id, stepID string, o machine.Override) error {
	return e.actFor(ctx, id, actionOverride, grant{stepID, o})
}

// GoToFor goes back to a step of a session; see Conn.GoTo.
func (e *Engine) GoToFor(ctx context.Context, id, stepID string) error {
	return e.actFor(ctx, id, actionGoTo, stepID)
}

// ReviewFor records what a person decides about a step that waits for them; see Archive.Review.
func (e *Engine) ReviewFor(ctx context.Context, id, stepID, digest string, answer machine.Answer) error {
	return e.actFor(ctx, id, actionReview, decision{stepID, digest, answer})
}

func (e *Engine) actFor(ctx context.Context, id, action string, argument any) error {
	arguments, err := jsontext.Encode(argument)
	if err != nil {
		return err
	}
	s, err := e.records.Peek(id)
	if err != nil {
		return err
	}
	if s.Status != machine.Active {
		return s.Ended()
	}
	if s.Owner == "" || s.Owner == e.records.Server() || !e.records.Alive(s.Owner) {
		c := e.Connect(s.Identity)
		defer c.Close()
		if _, err := c.target(ctx, &id); err != nil {
			return err
		}
		return e.carryOut(ctx, id, action, arguments)
	}
	return askOwner(ctx, e.Requests, id, e.records.Describe(s.Owner), action, arguments)
}

// askOwner asks the running server that owns a session to carry out an action.
func askOwner(ctx context.Context, requests store.Requests, id, owner, action string, arguments json.RawMessage) error {
	_, err := requests.Ask(ctx, store.Request{Kind: store.OfSession, Target: id, Action: action, Arguments: arguments, Caller: session.LocalCaller(session.ChannelTerminal)})
	if errors.Is(err, store.ErrNotAnswered) {
		return session.NotNow(codeOwned,
			"Session '%s' is in use by a deepwork server that is running (%s). It was asked to %s the session and has not answered yet. Look whether it did with `deepwork sessions show %s`, or stop that server and call again.", id, owner, action, id)
	}
	return err
}
