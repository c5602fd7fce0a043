package transport

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// asked are the calls of a connection that are carried out past the SDK, by their
// ids, so that its client can cancel them.
type asked struct {
	mu    sync.Mutex
	calls map[jsonrpc.ID]context.CancelCauseFunc
}

// add enters a call, unless there is one of that id.
func (a *asked) add(id jsonrpc.ID, cancel context.CancelCauseFunc) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.calls[id]; there {
		return false
	}
	if a.calls == nil {
		a.calls = map[jsonrpc.ID]context.CancelCauseFunc{}
	}
	a.calls[id] = cancel
	return true
}

// remove ends what add began.
func (a *asked) remove(id jsonrpc.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.calls, id)
}

// heed cancels the call that a message cancels, if it is a cancellation of one of
// these. The cause is context.Canceled, as of those that the SDK cancels.
func (a *asked) heed(m *enveloped) {
	if string(m.method) != `"notifications/cancelled"` {
		return
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(m.params, &params) != nil {
		return
	}
	id, err := decodeID(params["requestId"])
	if err != nil || !id.IsValid() {
		return
	}
	a.mu.Lock()
	cancel := a.calls[id]
	a.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}
