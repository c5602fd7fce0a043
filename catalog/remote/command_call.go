package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A shared connection to a command carries calls of our own beside what the SDK sends
// over it: as over HTTP, the SDK's way with a call is most of what it costs. Their
// ids are apart from the SDK's.
type shared struct {
	mcp.Connection
	cut func() // ends the source

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan<- *jsonrpc.Response // each with room for its answer
	ended   error                              // why nothing is read any more
}

// Read implements mcp.Connection. The SDK gets to read what is not answered here.
func (c *shared) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := c.Connection.Read(ctx)
		if err != nil {
			c.end(err)
			return nil, err
		}
		if resp, ok := m.(*jsonrpc.Response); ok && c.deliver(resp) {
			continue
		}
		return m, nil
	}
}

// deliver hands an answer to the call that it belongs to.
func (c *shared) deliver(resp *jsonrpc.Response) bool {
	id, ok := resp.ID.Raw().(int64)
	if !ok || id <= firstID {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if to := c.waiting[id]; to != nil {
		to <- resp
		delete(c.waiting, id)
	}
	return true
}

// end has those that wait for answers know that none will come.
func (c *shared) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = err
	for _, to := range c.waiting {
		to <- &jsonrpc.Response{Error: transportError{err}}
	}
	c.waiting = nil
}

// expect makes an id and a channel for the answer to it.
func (c *shared) expect() (int64, <-chan *jsonrpc.Response) {
	answer := make(chan *jsonrpc.Response, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		answer <- &jsonrpc.Response{Error: transportError{c.ended}}
	}
	if c.waiting == nil {
		c.waiting = make(map[int64]chan<- *jsonrpc.Response)
	}
	c.last++
	c.waiting[firstID+c.last] = answer
	return firstID + c.last, answer
}

func (c *shared) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// call calls a tool and waits for the answer, until ctx ends; then the source is told.
// The error is a *RefusedError or a transportError. A message that cannot be written
// ends the link: half of it may be out.
func (c *shared) call(ctx context.Context, l *link, r *request) (*reply, error) {
	params, err := encodeExact(r)
	if err != nil {
		return nil, fmt.Errorf("writing the call of %q: %w", r.Name, err)
	}
	if ctx.Err() != nil {
		return nil, transportError{ctx.Err()}
	}
	id, answer := c.expect()
	defer c.forget(id)
	if err := c.send(ctx, id, "tools/call", params); err != nil {
		l.cancel(err)
		return nil, transportError{err}
	}
	select {
	case resp := <-answer:
		switch e := resp.Error.(type) {
		case nil:
		case transportError:
			return nil, e
		case *jsonrpc.Error:
			return nil, &RefusedError{Text: clip(e.Message, maxErrorText)}
		default:
			return nil, &RefusedError{Text: clip(e.Error(), maxErrorText)}
		}
		answer := &reply{}
		if err := answer.UnmarshalJSON(resp.Result); err != nil {
			return nil, &RefusedError{Text: fmt.Sprintf("its answer cannot be read: %v", err)}
		}
		return answer, nil
	case <-ctx.Done():
	}
	reason, err := json.Marshal(struct {
		RequestID int64  `json:"requestId"`
		Reason    string `json:"reason"`
	}{id, ctx.Err().Error()})
	if err == nil {
		err = c.send(ctx, 0, "notifications/cancelled", reason)
	}
	if err != nil {
		l.cancel(err)
	}
	return nil, transportError{ctx.Err()}
}

// stuckFor is how long a write may go on when its call has ended.
const stuckFor = time.Second

// send writes a request, or without an id a notification. A source that does not read
// is cut off where somebody waits for it in vain.
func (c *shared) send(ctx context.Context, id int64, method string, params []byte) error {
	var written atomic.Bool
	defer written.Store(true)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(stuckFor, func() {
			if !written.Load() {
				c.cut()
			}
		})
	})()
	m := &jsonrpc.Request{Method: method, Params: params}
	if id != 0 {
		var err error
		if m.ID, err = jsonrpc.MakeID(float64(id)); err != nil {
			return err
		}
	}
	return c.Write(context.WithoutCancel(ctx), m)
}
