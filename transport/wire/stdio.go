// Package wire serves MCP on standard input and output, one message per line.
package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/catalog/jsontext"
)

const (
	// MaxLine is the maximum length of a line, in bytes.
	MaxLine = 8 << 20
	// MaxBatch is the maximum number of messages per line.
	MaxBatch = 1000
	// MaxInFlight is the maximum number of unanswered calls; at that number reading pauses.
	MaxInFlight = 1024
	// StallAfter is how long one write may take before its client is considered stalled.
	StallAfter = 5 * time.Minute
)

// ListenMethod opens a stream of notifications that lasts until the client ends it.
const ListenMethod = "subscriptions/listen"

// ErrStalled is the failure of a connection whose client does not read.
var ErrStalled = errors.New("the client does not read: standard output has been blocked for too long")

// A Stdio is the server's end of standard input and output: the SDK's messages, one per line. The SDK's own
// connection ends at the first malformed or overlong line, and drops the replies to calls in flight when its
// input ends; Stdio answers such lines, and reports the end of its input only after all replies are written.
// Around the SDK's connection, each message would be decoded twice, which makes a step half as slow again.
type Stdio struct {
	Ended  chan struct{} // closed when the input has ended
	Closed chan struct{} // closed when the connection is closed, or has failed
	// Stop ends reading; calls in flight are still answered.
	Stop context.CancelFunc

	in     io.ReadCloser
	out    io.WriteCloser
	logger *slog.Logger

	lines    chan line         // unbuffered, never closed; the last one has an error
	queue    []jsonrpc.Message // of the current line; used by Read alone
	reading  context.Context   // ended by Stop
	answered wait.Signal       // signalled when fewer calls are in flight
	wg       sync.WaitGroup
	once     sync.Once // of closing

	mu      sync.Mutex
	calls   map[jsonrpc.ID]bool // read and not yet answered; true if the client has cancelled it
	pending int                 // how many of them, and of replies being written
	err     error               // why it failed, if it did
	writing sync.Mutex          // held for one write
}

// A line is a line of input.
type line struct {
	text []byte // without space around it; nil if it is too long
	size int
	err  error // instead of a line: the input has ended, usually with io.EOF
}

// NewStdio returns a connection over in and out. Close closes both.
func NewStdio(in io.ReadCloser, out io.WriteCloser, logger *slog.Logger) *Stdio {
	c := &Stdio{
		in: in, out: out, logger: logger, Ended: make(chan struct{}), Closed: make(chan struct{}),
		lines: make(chan line), answered: wait.NewSignal(), calls: map[jsonrpc.ID]bool{},
	}
	c.reading, c.Stop = context.WithCancel(context.Background())
	return c
}

// Connect implements mcp.Transport; it starts reading, in a goroutine that a read may block until
// there is input or the process ends: standard input could only be interrupted in non-blocking mode,
// and that mode would outlive this process on a terminal or pipe that it shares with others.
func (c *Stdio) Connect(context.Context) (mcp.Connection, error) {
	go func() {
		defer close(c.Ended)
		for r := bufio.NewReaderSize(c.in, 64<<10); ; {
			l := readLine(r)
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

// readLine reads a line; of one that is too long it counts the bytes.
func readLine(r *bufio.Reader) (l line) {
	for {
		part, err := r.ReadSlice('\n')
		if l.size += len(part); l.size <= MaxLine {
			l.text = append(l.text, part...)
		} else {
			l.text = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && l.size == 0:
			return line{err: err}
		default:
			l.text = bytes.TrimSpace(l.text)
			return l // an error is returned again by the next read
		}
	}
}

// SessionID implements mcp.Connection: there is one session, without an id.
func (c *Stdio) SessionID() string { return "" }

// Read returns the next message. At the end of the input, or after Stop, it waits until every call
// is answered before it returns the error.
func (c *Stdio) Read(context.Context) (jsonrpc.Message, error) {
	for len(c.queue) == 0 {
		if !c.wait(MaxInFlight - 1) {
			return nil, io.EOF
		}

		var l line
		select {
		case <-c.Closed:
			return nil, io.EOF
		case <-c.reading.Done():
			l.err = io.EOF
		case l = <-c.lines:
		}
		if l.err != nil {
			if !errors.Is(l.err, io.EOF) {
				c.logger.Warn("reading standard input failed; ending as if it had ended", "error", l.err)
			}
			c.wait(0)
			return nil, io.EOF
		}
		c.take(l)
	}

	msg := c.queue[0]
	c.queue = c.queue[1:]
	return msg, nil
}

// take queues the messages of a line: several in a batch, which older versions of MCP allow. Their replies
// are written one by one. What is not a message is answered.
func (c *Stdio) take(l line) {
	text := l.text
	switch {
	case l.size > MaxLine:
		c.refuse(jsonrpc.CodeInvalidRequest,
			"the message has %d bytes; at most %d are read: put what is long into a file and give its path",
			l.size, MaxLine)
		return
	case len(text) == 0:
		return
	case !json.Valid(text):
		c.refuse(jsonrpc.CodeParseError, "parse error: %v", json.Unmarshal(text, new(json.RawMessage)))
		return
	}
	messages := []json.RawMessage{text}
	if text[0] == '[' {
		if err := json.Unmarshal(text, &messages); err != nil || len(messages) == 0 || len(messages) > MaxBatch {
			c.refuse(jsonrpc.CodeInvalidRequest, "invalid request: a batch of %d messages; it must have 1 to %d",
				len(messages), MaxBatch)
			return
		}
	}

	for _, message := range messages {
		if answer := RefusalOfID(message); answer != nil {
			_ = c.write(answer) // it fails the connection
			continue
		}

		msg, err := decode(message)
		r, ok := msg.(*jsonrpc.Request)
		switch {
		case err != nil:
			c.refuse(jsonrpc.CodeInvalidRequest, "invalid request: %v", err)
		case ok && !c.note(r):
			c.refuse(jsonrpc.CodeInvalidRequest, "invalid request: a call with this id is still in flight")
		default:
			c.queue = append(c.queue, msg)
		}
	}
}

// decode decodes a message. jsonrpc.DecodeMessage takes 64 KB of memory each time, so it only gets what is not a
// plain request.
func decode(message []byte) (jsonrpc.Message, error) {
	r, version := &jsonrpc.Request{}, ""
	plain := jsontext.Depth(message) < 1000 // the SDK's limit
	for m, err := range jsontext.Members(message) {
		switch m.Name {
		case "jsonrpc":
			version = string(m.Value)
		case "method":
			r.Method = "" // which null does not change
			err = cmp.Or(err, json.Unmarshal(m.Value, &r.Method))
		case "params":
			r.Params = m.Value
		case "id":
			var id any
			err = cmp.Or(err, json.Unmarshal(m.Value, &id))
			r.ID, _ = jsonrpc.MakeID(id)
			plain = plain && r.IsCall()
		default:
			plain = false
		}
		plain = plain && err == nil
	}

	if plain && version == `"2.0"` && r.Method != "" {
		return r, nil
	}
	return jsonrpc.DecodeMessage(message)
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
func (c *Stdio) Write(_ context.Context, msg jsonrpc.Message) (err error) {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		return c.send(msg)
	}

	c.mu.Lock()
	cancelled, counted := c.calls[resp.ID]
	delete(c.calls, resp.ID) // the client may use the id again as soon as it has the reply
	c.mu.Unlock()
	if !cancelled || resp.Error == nil {
		err = c.send(msg)
	}

	if counted {
		c.mu.Lock()
		c.pending--
		c.mu.Unlock()
		c.answered.Wake()
	}

	return err
}

func (c *Stdio) send(msg jsonrpc.Message) error {
	if r, ok := msg.(*jsonrpc.Response); ok && len(r.Result) > 0 && r.Error == nil {
		id, err := jsontext.Encode(r.ID.Raw())
		if err != nil {
			return err
		}
		// the SDK has encoded the result, and would scan it again
		return c.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, r.Result))
	}

	text, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return c.write(text)
}

// refuse answers what is not a message, or one whose id is another's.
func (c *Stdio) refuse(code int64, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	c.logger.Warn("refusing a line of input", "fault", reason)
	_ = c.write(Refusal("null", code, reason)) // it fails the connection
}

// Refusal returns the answer to a call, whose id is JSON, that is not carried out.
func Refusal(id string, code int64, reason string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code,
		jsontext.Quote(reason))
}

// oddID matches the beginning of ids that RefusalOfID may refuse.
var oddID = regexp.MustCompile(`"id"\s*:\s*-?([0-9]{16}|[0-9]+[.eE])`)

// RefusalOfID returns the answer to a call whose id is a number that the SDK would round: its client would
// wait forever for a reply with that id, and another call might get it. It returns nil for other messages.
func RefusalOfID(message []byte) []byte {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if !oddID.Match(message) || json.Unmarshal(message, &m) != nil || m.Method == "" {
		return nil
	}
	n, err := strconv.ParseFloat(string(m.ID), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return nil
	}
	return Refusal(string(m.ID), jsonrpc.CodeInvalidRequest,
		fmt.Sprintf("invalid request: the id %s would be rounded: use a whole number below %d, or a text", m.ID, 1<<53))
}

// write writes a line, in one Write. If that fails the connection ends, since half a line may have been
// written.
func (c *Stdio) write(text []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	select {
	case <-c.Closed:
		return cmp.Or(c.Err(), io.ErrClosedPipe)
	default:
	}

	watch := time.AfterFunc(StallAfter, func() { c.fail(ErrStalled) })
	_, err := c.out.Write(append(text, '\n'))
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

// fail closes the connection because of err.
func (c *Stdio) fail(err error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()

		// Closing a file that another thread is blocked on may itself block.
		for _, end := range []io.Closer{c.in, c.out} {
			c.wg.Go(func() {
				<-c.Closed
				end.Close()
			})
		}
		close(c.Closed) // last: who sees it may Wait
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
