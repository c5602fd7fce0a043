package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/catalog/jsontext"
)

var (
	errForgotten = errors.New("it no longer knows the session")
	// it had no effect
	errUndone = errors.New("it did not receive the call or refused it, because the connection or the session is gone")
)

// A transportError is the error of a call that the source did not answer.
type transportError struct{ error }

func (e transportError) Unwrap() error { return e.error }

// A call is a tool call in flight. The context of its HTTP request holds it.
type call struct {
	method    string
	about     string                 // the tool or the task
	sent      atomic.Bool            // the source may have received the call
	refused   atomic.Pointer[string] // the HTTP status with which the call was refused, or nil
	unread    atomic.Pointer[error]  // why its HTTP answer cannot be read, or nil
	forgotten atomic.Bool            // the source refused the call because it does not know the session
}

type callKey struct{}

// callIn returns the call to which a request belongs, or nil.
func callIn(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// call calls a tool of the source, or a method of its tasks, and waits for the answer until ctx or the link
// ends; then it cancels the call at the source. Meanwhile progress, which may be nil, receives progress. The
// error is a *RefusedError, a transportError, or the cause of ctx.
func (l *link) call(ctx context.Context, method string, request *callRequest, progress func(Progress)) (*reply, error) {
	r := new(*request) // a copy for this link
	r.Meta = mcp.Meta{}
	if in := telemetry.Current(ctx); in.IsValid() {
		r.Meta["traceparent"] = telemetry.Text(in)
	}

	var progressed chan Progress
	if progress != nil {
		token := strconv.FormatInt(l.tokens.Add(1), 10)
		r.Meta["progressToken"] = token
		progressed = make(chan Progress, maxProgress)
		l.listen(token, progressed)
		defer l.listen(token, nil)
	}

	type outcome struct {
		answer *reply
		err    error
	}
	done := make(chan outcome, 1)
	c := &call{method: method, about: cmp.Or(r.Name, r.TaskID)}

	// The request outlives the call: to reuse its connection, the end of the stream after the answer must be
	// read.
	sending, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), callKey{}, c))

	l.calls.Add(1)
	defer l.calls.Add(-1)

	// The SDK may hang in a write after its context has ended.
	if !l.begin(func() {
		if r.mayBeTask && l.session.InitializeResult().ProtocolVersion >= tasksSince {
			r.Meta[mcp.MetaKeyClientCapabilities] = tasksExtension
		}
		answer, err := mcp.CallCustomMethod[*callRequest, *reply](sending, l.session, raw+method, r)
		if err != nil {
			err = renamedError{err}
		}
		done <- outcome{answer, err}
	}) {
		cancel()
		return nil, transportError{errUndone} // nothing was sent
	}

	var o outcome
	for waiting := true; waiting; {
		select {
		case p := <-progressed:
			progress(p)
			continue
		case o = <-done:
		case <-ctx.Done():
			o.err = context.Cause(ctx)
		case <-l.ctx.Done():
			o.err = transportError{context.Cause(l.ctx)}
		}

		waiting = false
	}
	for range len(progressed) { // only once: a source may report progress forever
		progress(<-progressed)
	}
	if o.answer == nil && len(done) > 0 {
		o = <-done // both were ready: use the answer
	}
	if o.err == nil {
		time.AfterFunc(drainTime, cancel)
		if o.answer.task != nil && !r.mayBeTask {
			o.answer.fault = "it is a task, which was not asked for"
		}
		if o.answer.fault != "" {
			return nil, &RefusedError{
				Text:    "its answer is not what MCP asks of a tool's: " + o.answer.fault,
				Garbled: true,
			}
		}
		return o.answer, nil
	}

	cancel()
	return nil, l.failed(ctx, c, o.err)
}

// failed returns the error of a call that has no answer.
func (l *link) failed(ctx context.Context, c *call, err error) error {
	if c.forgotten.Load() {
		// Other calls of this link may have been executed, so they end as lost and are not repeated.
		l.cancel(errForgotten)
		return transportError{errUndone}
	}

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	if e := errorOf(err); e != nil {
		return &RefusedError{Text: jsontext.Clip(e.Message, maxErrorText)}
	}

	if status := c.refused.Load(); status != nil {
		err = fmt.Errorf("calling a tool: %s", *status)
	}

	if unread := c.unread.Load(); unread != nil {
		err = *unread
	}

	if lost, ok := errors.AsType[transportError](err); ok {
		err = lost.error
	}

	l.checkAlive.Wake()
	if !c.sent.Load() {
		return transportError{errUndone}
	}
	return transportError{l.wire.reason(err)}
}

// listen sends progress with this token to a channel; a nil channel stops that.
func (l *link) listen(token string, to chan Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to == nil {
		delete(l.progress, token)
		return
	}
	l.progress[token] = to
}

// route sends a progress notification to its call. If the call is too slow, the notification is dropped.
func (l *link) route(p *mcp.ProgressNotificationParams) {
	if p == nil {
		return
	}

	token, _ := p.ProgressToken.(string)
	progress := Progress{Value: &p.Progress, Message: jsontext.Clip(p.Message, maxMessageText)}
	if p.Total > 0 {
		progress.Total = &p.Total
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.progress[token] <- progress: // never if no call has the token
	default:
	}
}
