// Package wire serves MCP on standard input and output, one message per line.
package wire

import (
	"bufio"
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
	"deepwork/catalog/jsontext"
)

const (
	// MaxInFlight is the maximum number of unanswered calls; at that number reading pauses.
	MaxInFlight = 1024
	// StallAfter is how long one write may take before its client is considered stalled.
	StallAfter = 5 * time.Minute
)

// ListenMethod opens a stream of notifications that lasts until the client ends it.
const ListenMethod = "subscriptions/listen"

// ErrStalled is the failure of a connection whose client does not read.
var ErrStalled = errors.New("the client does not read: standard output has been blocked for too long")

// A Stdio is the SDK's transport over standard input and output. The SDK's own connection ends at the
// first malformed or overlong line, and drops the replies to calls in flight when its input ends; with
// Stdio such lines are answered (lineReader), and the end of the input is reported only after all
// replies are written.
type Stdio struct {
	mcp.Connection               // the SDK's
	Ended          chan struct{} // closed when the input has ended
	Closed         chan struct{} // closed when the connection is closed, or has failed

	in     io.ReadCloser
	out    io.WriteCloser
	logger *slog.Logger

	// Stop ends reading; calls in flight are still answered.
	Stop     context.CancelFunc
	reading  context.Context // ended by Stop
	answered wait.Signal     // signalled when fewer calls are in flight
	wg       sync.WaitGroup
	once     sync.Once // of closing

	mu      sync.Mutex
	calls   map[jsonrpc.ID]bool // read and not yet answered; true if the client has cancelled it
	pending int                 // how many of them, and of replies being written
	err     error               // why it failed, if it did
	writing sync.Mutex          // held for one write
}

// NewStdio returns a connection over in and out. Close closes both.
func NewStdio(in io.ReadCloser, out io.WriteCloser, logger *slog.Logger) *Stdio {
	c := &Stdio{Ended: make(chan struct{}), Closed: make(chan struct{}), in: in, out: out, logger: logger, answered: wait.NewSignal(), calls: map[jsonrpc.ID]bool{}}
	c.reading, c.Stop = context.WithCancel(context.Background())
	return c
}

// Connect implements mcp.Transport. A goroutine of the SDK may stay blocked in a read until there is input
// or the process ends: standard input could only be interrupted in non-blocking mode, and that mode would
// outlive this process on a terminal or pipe that it shares with others.
func (c *Stdio) Connect(ctx context.Context) (_ mcp.Connection, err error) {
	lines := &lineReader{in: bufio.NewReaderSize(c.in, 64<<10), refuse: c.refuse, ended: sync.OnceFunc(func() { close(c.Ended) })}
	c.Connection, err = (&mcp.IOTransport{Reader: io.NopCloser(lines), Writer: output{c}, MaxLineLength: -1}).Connect(ctx) // lineReader has a limit
	return c, err
}

// Read returns the next message. At the end of the input, or after Stop, it waits until every call
// is answered before it returns the error.
func (c *Stdio) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if !c.wait(MaxInFlight - 1) {
			return nil, io.EOF
		}
		msg, err := c.Connection.Read(c.reading)
		if err != nil {
			if !errors.Is(err, io.EOF) && c.reading.Err() == nil {
				c.logger.Warn("reading standard input failed; ending as if it had ended", "error", err)
			}
			c.wait(0)
			return nil, io.EOF
		}
		if r, ok := msg.(*jsonrpc.Request); !ok || c.note(r) {
			return msg, nil
		}
		c.refuse(jsonrpc.CodeInvalidRequest, "invalid request: a call with this id is still in flight")
	}
}

// note records a call, or that one is cancelled. One that lasts until it is cancelled is not waited for.
// It reports false if there is a call with this id, whose reply a refusal must not be taken for.
func (c *Stdio) note(r *jsonrpc.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.IsCall() && r.Method != ListenMethod:
		if _, twice := c.calls[r.ID]; twice {
			return false
		}
		c.calls[r.ID] = false
		c.pending++
	case r.Method == "notifications/cancelled":
		var p struct{ RequestID any }
		if json.Unmarshal(r.Params, &p) != nil {
			break // the SDK reports what is wrong
		}
		if id, err := jsonrpc.MakeID(p.RequestID); err == nil {
			if _, known := c.calls[id]; known {
				c.calls[id] = true
			}
		}
	}
	return true
}

// Write writes one message as a line. The client wants no error for a call that it has cancelled (MCP
// "Cancellation").
func (c *Stdio) Write(ctx context.Context, msg jsonrpc.Message) (err error) {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		return c.Connection.Write(ctx, msg)
	}
	c.mu.Lock()
	cancelled, counted := c.calls[resp.ID]
	delete(c.calls, resp.ID) // the client may use the id again as soon as it has the reply
	c.mu.Unlock()
	if !cancelled || resp.Error == nil {
		err = c.Connection.Write(ctx, msg)
	}
	if counted {
		c.mu.Lock()
		c.pending--
		c.mu.Unlock()
		c.answered.Wake()
	}
	return err
}

// refuse answers a message without its id.
func (c *Stdio) refuse(code int64, reason string) {
	c.logger.Warn("refusing a line of input", "fault", reason)
	fault := jsontext.Quote(reason)
	_, _ = output{c}.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%s}}`+"\n", code, fault))
}

// An output writes lines.
type output struct{ c *Stdio }

// Write implements io.Writer. If it fails the connection ends, since half a line may have been written.
func (o output) Write(line []byte) (int, error) {
	o.c.writing.Lock()
	defer o.c.writing.Unlock()
	select {
	case <-o.c.Closed:
		return 0, cmp.Or(o.c.Err(), io.ErrClosedPipe)
	default:
	}
	watch := time.AfterFunc(StallAfter, func() { o.c.fail(ErrStalled) })
	n, err := o.c.out.Write(line)
	watch.Stop()
	if err != nil {
		o.c.fail(err)
	}
	return n, err
}

// Close implements io.Closer.
func (output) Close() error { return nil }

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

// fail closes the connection because of err.
func (c *Stdio) fail(err error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		close(c.Closed)
		if c.Connection != nil {
			c.Connection.Close()
		}
		// Closing a file that another thread is blocked on may itself block.
		c.wg.Go(func() { c.in.Close() })
		c.wg.Go(func() { c.out.Close() })
	})
}

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
