package remote

import (
	"context"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
)

// A shared connection to a command carries calls of our own beside what the SDK sends
// over it: as over HTTP, the SDK's way with a call is most of what it costs. Their
// ids are apart from the SDK's.
type shared struct {
	mcp.Connection

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan<- *jsonrpc.Response // each with room for its answer
	ended   error                              // why nothing is read any more, a transportError
}

// Read implements mcp.Connection. The SDK gets to read what is not answered here. The
// error is a transportError: the SDK gives it to the calls that wait, and what cannot
// be read would be taken there for an error that the source has answered.
func (c *shared) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := c.Connection.Read(ctx)
		if err != nil {
			err = transportError{err}
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
		to <- &jsonrpc.Response{Error: err}
	}
	c.waiting = nil
}

// expect makes an id and a channel for the answer to it; the error is a transportError,
// why nothing is read any more.
func (c *shared) expect() (int64, <-chan *jsonrpc.Response, error) {
	answer := make(chan *jsonrpc.Response, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return 0, nil, c.ended
	}
	if c.waiting == nil {
		c.waiting = make(map[int64]chan<- *jsonrpc.Response)
	}
	c.last++
	c.waiting[firstID+c.last] = answer
	return firstID + c.last, answer, nil
}

func (c *shared) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// call calls a tool and waits for the answer, until ctx ends; then the source is told.
// The error is a *RefusedError or a transportError. It is for link.call, which holds
// the link's wait group. A source may not read for as long as it works, so what is
// written has a goroutine of its own; a message that cannot be written ends the link,
// since half of it may be out.
func (c *shared) call(ctx context.Context, l *link, r *request) (*reply, error) {
	params, err := jsontext.Encode(r)
	if err != nil {
		return nil, fmt.Errorf("writing the call of %q: %w", r.Name, err)
	}
	id, answer, err := c.expect()
	if err != nil {
		return nil, err
	}
	defer c.forget(id)
	written := make(chan struct{}) // closed when it is
	l.wg.Go(func() {
		defer close(written)
		if err := c.send(id, "tools/call", params); err != nil {
			l.cancel(transportError{l.wire.reason(err)})
		}
	})
	var resp *jsonrpc.Response
	select {
	case resp = <-answer:
	case <-ctx.Done():
		select {
		case resp = <-answer: // both were ready: what is there is not thrown away
		default:
			l.wg.Go(func() {
				<-written
				c.cancelled(ctx, id)
			})
			return nil, transportError{ctx.Err()}
		}
	}
	switch e := resp.Error.(type) {
	case nil:
	case transportError:
		return nil, e
	case *jsonrpc.Error:
		return nil, &RefusedError{Text: jsontext.Clip(e.Message, maxErrorText)}
	default:
		return nil, &RefusedError{Text: jsontext.Clip(e.Error(), maxErrorText)}
	}
	return replyOf(resp.Result)
}

// cancelled tells the source that a call is given up. It is a courtesy.
func (c *shared) cancelled(ctx context.Context, id int64) {
	if params, err := cancellation(ctx, id); err == nil {
		_ = c.send(0, cancelledMethod, params)
	}
}

// send writes a request, or without an id a notification. How long that may take is
// bounded by who writes to the command.
func (c *shared) send(id int64, method string, params []byte) error {
	m := &jsonrpc.Request{Method: method, Params: params}
	if id != 0 {
		var err error
		if m.ID, err = jsonrpc.MakeID(float64(id)); err != nil {
			return err
		}
	}
	return c.Write(context.Background(), m)
}
