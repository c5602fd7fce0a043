package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
)

const (
	// MaxInFlight is the maximum number of unanswered calls; at that number reading pauses.
	MaxInFlight = 1024
	// StallAfter is how long one write may take before its client is considered stalled.
	StallAfter = 5 * time.Minute
)

// ErrStalled is the failure of a connection whose client does not read.
var ErrStalled = errors.New("the client does not read: standard output has been blocked for too long")

// A Stdio is the server's end of newline-delimited JSON-RPC. The SDK's own ends at the first
// malformed line, and drops the replies to calls in flight when its input ends; Stdio answers
// malformed lines and continues, and reports the end of its input only after all replies are
// written.
type Stdio struct {
	Ended  chan struct{} // closed when the input has ended
	Closed chan struct{} // closed when the connection is closed, or has failed

	in     io.ReadCloser
	out    io.WriteCloser
	logger *slog.Logger
	stall  time.Duration // how long one write may take

	lines    chan line     // unbuffered, never closed; the last one has an error
	stopping chan struct{} // closed by Stop, which ends reading
	answered wait.Signal   // signalled when fewer calls are in flight
	wg       sync.WaitGroup

	queue []jsonrpc.Message // the rest of a batch; used by Read alone
	token chan struct{}     // capacity 1; its holder writes
	buf   []byte            // owned by the holder of token

	stopOnce, closeOnce sync.Once

	mu      sync.Mutex
	calls   map[jsonrpc.ID]call // read and not yet answered
	pending int                 // how many of them, and of replies being written, count
	err     error               // why it failed, if it did
}

// A call is a request that was read and must be answered.
type call struct {
	batch  *batch // its batch, or nil
	parked bool   // answered only when it is cancelled, so nobody waits for it
	// cancelled by the client, which wants no reply any more (MCP "Cancellation") and treats one as
	// a fault.
	cancelled bool
}

// A batch collects the replies to a list of requests.
type batch struct {
	calls   int // how many are answered with it
	left    int // how many of them are not answered yet
	replies []jsonrpc.Message
}

// NewStdio returns a connection over in and out. Close closes both.
func NewStdio(in io.ReadCloser, out io.WriteCloser, logger *slog.Logger) *Stdio {
	return &Stdio{
		in: in, out: out, logger: logger, stall: StallAfter,
		lines: make(chan line), Ended: make(chan struct{}), stopping: make(chan struct{}),
		Closed: make(chan struct{}), answered: wait.NewSignal(), token: make(chan struct{}, 1),
		calls: map[jsonrpc.ID]call{},
	}
}

// Connect implements mcp.Transport; it starts reading, in a goroutine that a read may block until
// there is input or the process ends: standard input could only be interrupted in non-blocking mode,
// and that mode would outlive this process on a terminal or pipe that it shares with others.
func (c *Stdio) Connect(context.Context) (mcp.Connection, error) {
	go func() {
		defer close(c.Ended)
		for r := newLineReader(c.in); ; {
			l := r.next()
			select {
			case c.lines <- l:
			case <-c.Closed:
				return
			}
			if l.err != nil {
				return
			}
		}
	}()
	return c, nil
}

// SessionID implements mcp.Connection: there is one session, without an id.
func (c *Stdio) SessionID() string { return "" }

// Read returns the next message. At the end of the input, or after Stop, it waits until every call
// is answered before it returns the error.
func (c *Stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if len(c.queue) > 0 {
			msg := c.queue[0]
			c.queue = c.queue[1:]
			return msg, nil
		}
		if !c.wait(MaxInFlight - 1) {
			return nil, io.EOF
		}
		select {
		case <-c.stopping: // takes precedence over the next line
			c.wait(0)
			return nil, io.EOF
		default:
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.Closed:
			return nil, io.EOF
		case <-c.stopping:
			c.wait(0)
			return nil, io.EOF
		case l := <-c.lines:
			if l.err != nil {
				if !errors.Is(l.err, io.EOF) {
					c.logger.Warn("reading standard input failed; ending as if it had ended", "error", l.err)
				}
				c.wait(0)
				return nil, io.EOF
			}
			if err := c.accept(ctx, l); err != nil {
				return nil, err
			}
		}
	}
}

// accept records the calls of a line and queues its messages; invalid messages are answered at
// once.
func (c *Stdio) accept(ctx context.Context, l line) error {
	var replies []jsonrpc.Message
	for _, f := range l.faults {
		c.logger.Warn("refusing a line of input", "fault", f.fault.Message)
		replies = append(replies, &jsonrpc.Response{ID: f.id, Error: &f.fault})
	}
	var b *batch
	if l.batch {
		b = &batch{}
	}
	c.mu.Lock()
	for _, msg := range l.messages {
		req, ok := msg.(*jsonrpc.Request)
		if ok && req.IsCall() {
			if _, twice := c.calls[req.ID]; twice {
				// The id belongs to another call, so the reply must not have it.
				replies = append(replies, &jsonrpc.Response{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
					Message: "invalid request: a call with this id is still in flight"}})
				continue
			}
			call := call{batch: b, parked: req.Method == ListenMethod}
			if call.parked {
				call.batch = nil // its reply may never come, but the others' must
			} else {
				c.pending++
				if b != nil {
					b.calls++
					b.left++
				}
			}
			c.calls[req.ID] = call
		}
		if ok && !req.IsCall() && req.Method == "notifications/cancelled" {
			c.cancelled(req.Params)
		}
		c.queue = append(c.queue, msg)
	}
	if b != nil && b.left > 0 {
		b.replies, replies = replies, nil
	}
	c.mu.Unlock()
	if len(replies) == 0 {
		return nil
	}
	return c.send(ctx, l.batch, replies...)
}

// Write writes one message as a line. A reply to a call of a batch waits for
// the others of its batch.
func (c *Stdio) Write(ctx context.Context, msg jsonrpc.Message) error {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok || !resp.ID.IsValid() {
		return c.send(ctx, false, msg)
	}
	c.mu.Lock()
	call, known := c.calls[resp.ID]
	// The client may use the id again as soon as it has the reply.
	delete(c.calls, resp.ID)
	var replies []jsonrpc.Message
	done := 1
	if !call.cancelled || resp.Error == nil {
		replies = append(replies, msg)
	}
	if b := call.batch; b != nil {
		b.left--
		b.replies = append(b.replies, replies...)
		if b.left > 0 {
			c.mu.Unlock()
			return nil
		}
		replies, done = b.replies, b.calls
	}
	c.mu.Unlock()
	var err error
	if len(replies) > 0 {
		err = c.send(ctx, call.batch != nil, replies...)
	}
	if known && !call.parked {
		c.mu.Lock()
		c.pending -= done
		c.mu.Unlock()
		c.answered.Wake()
	}
	return err
}

// cancelled marks a call whose reply is not wanted. The caller holds the lock.
func (c *Stdio) cancelled(params json.RawMessage) {
	var p struct{ RequestID json.RawMessage }
	if json.Unmarshal(params, &p) != nil {
		return // the SDK reports what is wrong
	}
	id, err := DecodeID(p.RequestID)
	if call, ok := c.calls[id]; err == nil && ok && !call.parked {
		call.cancelled = true
		c.calls[id] = call
	}
}

// send writes messages as one line, in one Write. If that fails the connection ends, since half a
// line may have been written.
func (c *Stdio) send(ctx context.Context, list bool, msgs ...jsonrpc.Message) error {
	select {
	case c.token <- struct{}{}:
		defer func() { <-c.token }()
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Closed:
		return c.why()
	}
	b := c.buf[:0]
	if list {
		b = append(b, '[')
	}
	for i, m := range msgs {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendMessage(b, m); err != nil {
			return err
		}
	}
	if list {
		b = append(b, ']')
	}
	b = append(b, '\n')
	if cap(b) <= 1<<20 {
		c.buf = b
	}
	select {
	case <-c.Closed:
		return c.why()
	default:
	}
	watch := time.AfterFunc(c.stall, func() { c.fail(ErrStalled) })
	_, err := c.out.Write(b)
	watch.Stop()
	if err != nil {
		c.fail(err)
	}
	return err
}

// wait waits until at most n calls are in flight. It reports false if the connection was closed.
func (c *Stdio) wait(n int) bool {
	for {
		c.mu.Lock()
		ok := c.pending <= n
		c.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-c.answered:
		case <-c.Closed:
			return false
		}
	}
}

// Stop ends reading; calls in flight are still answered.
func (c *Stdio) Stop() { c.stopOnce.Do(func() { close(c.stopping) }) }

// fail closes the connection because of err.
func (c *Stdio) fail(err error) {
	c.closeOnce.Do(func() {
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		close(c.Closed)
		// Closing a file that another thread is blocked on may itself block.
		c.wg.Go(func() { c.in.Close() })
		c.wg.Go(func() { c.out.Close() })
	})
}

// why returns the error of a write after the end.
func (c *Stdio) why() error { return cmp.Or(c.Err(), io.ErrClosedPipe) }

// Close implements mcp.Connection.
func (c *Stdio) Close() error {
	c.fail(nil)
	return nil
}

// Err returns why the connection failed, or nil.
func (c *Stdio) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Unanswered returns an error with the number of abandoned calls.
func (c *Stdio) Unanswered() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("%d calls did not end in time and were given up", c.pending)
}

// Wait waits for the goroutines of the connection, except the one that reads. One that is blocked in
// a write that the system cannot interrupt may remain forever.
func (c *Stdio) Wait() { c.wg.Wait() }
