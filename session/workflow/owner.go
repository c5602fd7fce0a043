package workflow

import (
	"context"
	"encoding/json"
	"fmt"

	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// The requests to the owner of a session; there is no answer.
const (
	actionAbort    = "abort"    // its argument is the reason
	actionOverride = "override" // its argument is a grant
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
			return nil, unknownSession(q.Target) // only commands ask
		}
		var reason string
		var g grant
		argument := map[string]any{actionAbort: &reason, actionOverride: &g}[q.Action]
		if argument == nil || json.Unmarshal(q.Arguments, argument) != nil {
			return nil, fmt.Errorf("a session's owner cannot %s %s", q.Action, q.Arguments)
		}
		h := e.handles.Get(q.Target)
		if h == nil {
			return nil, unknownSession(q.Target)
		}
		if q.Action == actionOverride {
			_, err := ask(ctx, e, q.Target, func(ctx context.Context, a *sessionActor) (struct{}, error) { return struct{}{}, a.grant(ctx, g) })
			return nil, err
		}
		who := caller{Identity: h.View().Identity, Call: machine.Call{Tool: machine.ToolAbort}}
		_, err := ask(ctx, e, q.Target, func(_ context.Context, a *sessionActor) (*machine.AbortReply, error) { return a.abort(who, reason) })
		return nil, err
	})
}
