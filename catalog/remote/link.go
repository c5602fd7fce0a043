package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/catalog/jsontext"
)

// The versions of MCP that sources are spoken to in. handshake is the newest that
// begins with initialize; what came after, from 2026-07-28 on, begins with a
// question, server/discover, that older servers do not know, and some of them end
// at it. So initialize is asked first, and a source that answers it with an error
// is connected anew in the newest version that the SDK knows.
const (
	handshake     = "2025-11-25"
	newestVersion = "" // the SDK's own choice
)

// A wire is what carries a link: a command or a URL.
type wire interface {
	transport() mcp.Transport
	// begun notes that the session has begun.
	begun()
	// end ends everything at once, so that whoever waits for the source returns; it
	// does not block.
	end()
	// leave ends it in order, or at once when ctx ends, and calls close, which
	// closes the session, when that can no longer hang. It waits for all of it.
	leave(ctx context.Context, close func())
	// reason says what became of the wire, where err alone does not.
	reason(err error) error
}

// A link is one connection to a source, from its initialize to its end.
type link struct {
	session *mcp.ClientSession
	wire    wire
	ctx     context.Context // ends with the link; its cause says why
	cancel  context.CancelCauseFunc
	changed wait.Signal // the source says that its tools changed
	suspect wait.Signal // a call came to nothing, the source may be gone
	tools   atomic.Pointer[map[string]bool]
	calls   atomic.Int64 // in flight
	tokens  atomic.Int64
	wg      sync.WaitGroup

	mu       sync.Mutex
	closed   bool                     // no goroutine may be started any more
	progress map[string]chan Progress // of the calls that want it, by token
}

// refusesHandshake tells of the error of a connect that the source was there and
// answered initialize with an error.
func refusesHandshake(err error) bool {
	return errorOf(err) != nil
}

// connect begins a session in a version of MCP over a wire; when ctx ends first,
// it fails and nothing of the wire is left.
func connect(ctx context.Context, w wire, o Options, version string) (*link, error) {
	l := &link{
		wire: w, changed: wait.NewSignal(), suspect: wait.NewSignal(),
		progress: make(map[string]chan Progress),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork", Version: o.Version}, &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{},
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { l.changed.Wake() },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { l.route(r.Params) },
	})
	err := registerRaw(client)
	if err == nil {
		// Not every wait of the SDK ends with its context; the wire's end ends all.
		stop := context.AfterFunc(ctx, w.end)
		l.session, err = client.Connect(ctx, w.transport(), &mcp.ClientSessionOptions{ProtocolVersion: version})
		if !stop() && err == nil {
			l.session.Close()
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		w.leave(ctx, func() {})
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = w.reason(err)
		l.cancel(err)
		return nil, fmt.Errorf("connecting: %w", err)
	}
	w.begun()
	l.wg.Go(func() {
		err := l.session.Wait()
		if err == nil {
			err = errEnded
		}
		l.cancel(w.reason(err))
	})
	return l, nil
}

var errEnded = errors.New("it closed the connection")

// close ends the link, and the calls in flight with it, and waits for all its
// goroutines. When ctx ends, it does so at once.
func (l *link) close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	busy := l.calls.Load() > 0 && l.ctx.Err() == nil
	l.cancel(errClosed)
	if busy {
		// The SDK tells the source in the background that the calls are cancelled; a
		// question and its answer are about the time that takes.
		ctx, cancel := context.WithTimeout(ctx, farewell)
		_ = l.ping(ctx)
		cancel()
	}
	l.wire.leave(ctx, func() { l.session.Close() })
	l.wg.Wait()
}

// begin starts a goroutine that close waits for, or reports false if it is too late.
func (l *link) begin(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.wg.Go(f)
	}
	return !l.closed
}

var (
	errForgotten = errors.New("it does not know the session any more")
	errUndone    = errors.New("it has not got the call, or refused it, since the connection or the session is gone") // it has done nothing
	errClosed    = errors.New("the connection was closed by this server")
)

// A transportError is a call that came to nothing without an answer of the
// source.
type transportError struct{ error }

func (e transportError) Unwrap() error { return e.error }

// A call is a call of a tool that is in flight. The context of its HTTP request
// holds it.
type call struct {
	tool      string
	sent      atomic.Bool // the source may have got it
	forgotten atomic.Bool // the source has refused it, since it does not know the session
}

type callKey struct{}

// callIn returns the call that a request belongs to, or nil.
func callIn(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// call calls a tool of the source and waits for the answer, until ctx or the link
// ends; then the source is told. progress, which may be nil, gets the progress
// meanwhile. The error is a *RefusedError, a transportError, or the cause of ctx.
func (l *link) call(ctx context.Context, tool string, arguments []byte, progress func(Progress)) (*reply, error) {
	r := &callRequest{Name: tool, Arguments: arguments}
	var progressed chan Progress
	if progress != nil {
		token := strconv.FormatInt(l.tokens.Add(1), 10)
		r.Meta = mcp.Meta{"progressToken": token}
		progressed = make(chan Progress, maxProgress)
		l.listen(token, progressed)
		defer l.listen(token, nil)
	}
	type outcome struct {
		answer *reply
		err    error
	}
	done := make(chan outcome, 1)
	c := &call{tool: tool}
	// The request outlives the call: what follows the answer, the end of the stream as
	// a rule, has to be read for its connection to be used again.
	sending, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), callKey{}, c))
	l.calls.Add(1)
	defer l.calls.Add(-1)
	// The SDK may hang in a write though its context has ended.
	if !l.begin(func() {
		answer, err := callRaw(sending, l.session, r)
		done <- outcome{answer, err}
	}) {
		cancel()
		return nil, transportError{errClosed}
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
	for len(progressed) > 0 {
		progress(<-progressed)
	}
	if o.answer == nil && len(done) > 0 {
		o = <-done // both were ready: what is there is not thrown away
	}
	if o.err == nil {
		time.AfterFunc(drainTime, cancel)
		if o.answer.fault != "" {
			return nil, &RefusedError{Text: "its answer is not what MCP asks of a tool's: " + o.answer.fault}
		}
		return o.answer, nil
	}
	cancel()
	return nil, l.failed(ctx, c, o.err)
}

// failed says what became of a call that has no answer.
func (l *link) failed(ctx context.Context, c *call, err error) error {
	if c.forgotten.Load() {
		// The other calls of this link may be carried out all the same: they end with
		// it, as lost, and are not made again.
		l.cancel(errForgotten)
		return transportError{errUndone}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e := errorOf(err); e != nil {
		return &RefusedError{Text: jsontext.Clip(e.Message, maxErrorText)}
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == unansweredCode {
		err = errors.New(e.Message)
	}
	if lost, ok := errors.AsType[transportError](err); ok {
		err = lost.error
	}
	l.suspect.Wake()
	if !c.sent.Load() {
		return transportError{errUndone}
	}
	return transportError{l.wire.reason(err)}
}

// listen has progress with this token sent to a channel; nil ends that.
func (l *link) listen(token string, to chan Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to == nil {
		delete(l.progress, token)
		return
	}
	l.progress[token] = to
}

// route hands a progress notification to the call it belongs to. Where it comes
// faster than it is taken, the newest is kept.
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
	to := l.progress[token]
	if to == nil {
		return
	}
	for { // nobody else sends
		select {
		case to <- progress:
			return
		default:
		}
		select {
		case <-to:
		default:
		}
	}
}

// ping asks whether the source is there. An error that it answers is an answer.
func (l *link) ping(ctx context.Context) error {
	err := l.session.Ping(ctx, nil)
	if errorOf(err) != nil {
		return nil
	}
	return err
}

// learn asks which of these tools the source has.
func (l *link) learn(ctx context.Context, wanted ...string) error {
	tools := make(map[string]bool)
	params := &listRequest{}
	for range maxToolPages {
		page, err := listRaw(ctx, l.session, params)
		if err != nil {
			return fmt.Errorf("listing its tools: %w", err)
		}
		for _, name := range page.Names {
			if slices.Contains(wanted, name) {
				tools[name] = true
			}
		}
		if page.NextCursor == "" || page.NextCursor == params.Cursor {
			break
		}
		params.Cursor = page.NextCursor
	}
	if old := l.tools.Load(); old == nil || !maps.Equal(*old, tools) {
		l.tools.Store(&tools)
	}
	return nil
}

// has tells whether the source has a tool, as far as it is known.
func (l *link) has(tool string) bool {
	tools := l.tools.Load()
	return tools != nil && (*tools)[tool]
}

// bounded is ctx with a timeout whose cause says what took too long.
func bounded(ctx context.Context, limit time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s took longer than %v: %w", what, limit, context.DeadlineExceeded))
}
