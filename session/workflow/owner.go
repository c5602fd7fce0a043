package workflow

import (
	"context"
	"encoding/json"
	"fmt"

	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// actionAbort requests the owner of a session to abort it. Its argument is the reason; there is no
// answer.
const actionAbort = "abort"

// serveRequests carries out requests of other processes about sessions that this server owns, until
// the engine closes.
func (e *Engine) serveRequests(requests store.Requests) {
	owns := func(id string) bool { return e.handles.Get(id) != nil }
	requests.Serve(e.ctx, store.OfSession, owns, func(ctx context.Context, q store.Request) (any, error) {
		var reason string
		if err := json.Unmarshal(q.Arguments, &reason); err != nil || q.Action != actionAbort {
			return nil, fmt.Errorf("a session's owner cannot %s %s", q.Action, q.Arguments)
		}
		h := e.handles.Get(q.Target)
		if h == nil {
			return nil, unknownSession(q.Target)
		}
		who := caller{Identity: h.View().Identity, Call: machine.Call{Tool: machine.ToolAbort}}
		_, err := ask(ctx, e, q.Target, func(_ context.Context, a *sessionActor) (*machine.AbortReply, error) { return a.abort(who, reason) })
		return nil, err
	})
}
