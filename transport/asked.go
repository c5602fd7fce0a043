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
	calls map[jsonrpc.ID]*askedCall
}

// An askedCall is one of them; no two are the same.
type askedCall struct{ cancel context.CancelCauseFunc }

// add enters a call, until remove, which may be called again, is; nil: there is one of
// that id.
func (a *asked) add(id jsonrpc.ID, cancel context.CancelCauseFunc) (remove func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.calls[id]; there {
		return nil
	}
	if a.calls == nil {
		a.calls = map[jsonrpc.ID]*askedCall{}
	}
	mine := &askedCall{cancel}
	a.calls[id] = mine
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.calls[id] == mine {
			delete(a.calls, id)
		}
	}
}

// heed cancels the call that a message cancels, if it is a cancellation of one of
// these. The cause is context.Canceled, as of those that the SDK cancels.
func (a *asked) heed(m *enveloped) {
	if m.id != nil && !isNull(m.id) || m.name() != "notifications/cancelled" {
		return
	}
	a.cancel(m.params)
}

// cancel cancels the call that the params of a cancellation name.
func (a *asked) cancel(raw json.RawMessage) {
	var params map[string]json.RawMessage
	if json.Unmarshal(raw, &params) != nil {
		return
	}
	id, err := decodeID(params["requestId"])
	if err != nil || !id.IsValid() {
		return
	}
	a.mu.Lock()
	call := a.calls[id]
	a.mu.Unlock()
	if call != nil {
		call.cancel(nil)
	}
}
