package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"deepwork/catalog/jsontext"
)

// A poster calls the tools of a source behind a URL with requests of its own, in the
// session that the SDK began and keeps: on the SDK's way a call is encoded and decoded
// four times and handed on between three goroutines, which is most of what a call
// costs. It is for the versions of MCP that begin with initialize.
type poster struct {
	link     *link
	wire     *urlWire
	session  string // "" where the source has none
	version  string // of MCP
	requests atomic.Int64
}

// firstID keeps a poster's ids apart from the SDK's, which counts from 1. Some sources
// have 32 bits for them.
const firstID = 1 << 30

const (
	// drainTime and drainBytes bound what is read behind an answer.
	drainTime  = time.Second
	drainBytes = 4 << 10
	// noticeTimeout bounds a message that is not answered.
	noticeTimeout = 5 * time.Second
)

// A wireMessage is a message of JSON-RPC.
type wireMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// callTool calls a tool and waits for the answer, until ctx ends; then the source is
// told. The error is a *RefusedError, a transportError, or ctx's. What is left to do
// when the caller has its answer is for rest, which may block for drainTime.
func (p *poster) callTool(ctx context.Context, r *request) (answer *reply, rest func(), err error) {
	params, err := jsontext.Encode(r)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the call of %q: %w", r.Name, err)
	}
	x := &exchange{poster: p, id: firstID + p.requests.Add(1)}
	// The request outlives the call: what follows the answer, the end of the stream as
	// a rule, has to be read for its connection to be used again.
	asking, cancel := context.WithCancel(p.wire.cutting)
	attached := context.AfterFunc(ctx, cancel)
	answer, body, err := x.call(asking, params)
	attached()
	given := err != nil && ctx.Err() != nil // up, by the caller
	if body == nil && !given {
		cancel()
		return answer, nil, err
	}
	return answer, func() {
		if given {
			p.cancelled(ctx, x.id)
		}
		if body != nil {
			late := time.AfterFunc(drainTime, cancel)
			_, _ = io.CopyN(io.Discard, body, drainBytes)
			late.Stop()
			body.Close()
		}
		cancel()
	}, err
}

// cancelled tells the source that a call is given up. It is a courtesy.
func (p *poster) cancelled(ctx context.Context, id int64) {
	if params, err := cancellation(ctx, id); err == nil {
		_ = p.notify(p.wire.cutting, &wireMessage{Version: "2.0", Method: cancelledMethod, Params: params})
	}
}

// cancelledMethod tells the source that a call is given up.
const cancelledMethod = "notifications/cancelled"

// cancellation is what it says of a call whose context has ended.
func cancellation(ctx context.Context, id int64) ([]byte, error) {
	return json.Marshal(struct {
		RequestID int64  `json:"requestId"`
		Reason    string `json:"reason"`
	}{id, ctx.Err().Error()})
}

// notify sends what is not answered.
func (p *poster) notify(ctx context.Context, m *wireMessage) error {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	resp, err := p.send(ctx, m)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// send sends a message and returns the response to it.
func (p *poster) send(ctx context.Context, m *wireMessage) (*http.Response, error) {
	data, err := jsontext.Encode(m)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.wire.endpoint, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["Accept"] = []string{"application/json, text/event-stream"}
	return p.do(req)
}

// do sends a request in the session.
func (p *poster) do(req *http.Request) (*http.Response, error) {
	req.Header["Mcp-Protocol-Version"] = []string{p.version}
	if p.session != "" {
		req.Header["Mcp-Session-Id"] = []string{p.session}
	}
	p.wire.dress(req)
	return p.wire.own.Do(req)
}
