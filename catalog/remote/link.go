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
	// caller makes the calls of tools over a link whose session has begun.
	caller(*link) caller
	// end ends everything at once, so that whoever waits for the source returns; it
	// does not block.
	end()
	// leave ends it in order, or at once when ctx ends, and calls close, which
	// closes the session, when that can no longer hang. It waits for all of it.
	leave(ctx context.Context, close func())
	// reason says what became of the wire, where err alone does not.
	reason(err error) error
}

// A caller calls a tool of a source and waits for the answer. rest, which may be nil,
// is to be called when the answer has been handed on.
type caller func(context.Context, *request) (answer *reply, rest func(), err error)

// A link is one connection to a source, from its initialize to its end.
type link struct {
	session *mcp.ClientSession
	wire    wire
	tell    caller
	ctx     context.Context // ends with the link; its cause says why
	cancel  context.CancelCauseFunc
	changed chan struct{} // capacity 1: the source says that its tools changed
	tools   atomic.Pointer[map[string]bool]
	calls   atomic.Int64 // in flight
	tokens  atomic.Int64
	wg      sync.WaitGroup

	suspect chan struct{} // capacity 1: a call came to nothing, the source may be gone

	mu     sync.Mutex
	closed bool             // no goroutine may be started any more
	sinks  map[string]*sink // by progress token
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
		wire: w, changed: make(chan struct{}, 1), suspect: make(chan struct{}, 1),
		sinks: make(map[string]*sink),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork", Version: o.Version}, &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{},
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { l.hearChange() },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { l.route(r.Params) },
	})
	err := registerExact(client)
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
	l.tell = w.caller(l)
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

// begin starts a goroutine that close waits for; false: it is too late for one.
func (l *link) begin(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.wg.Go(f)
	}
	return !l.closed
}

var errForgotten = errors.New("it does not know the session any more")

var errClosed = errors.New("the connection was closed by this server")

// A transportError is a call that came to nothing without an answer of the
// source.
type transportError struct{ error }

func (e transportError) Unwrap() error { return e.error }

// rejected is the code that the SDK gives its own errors of sending; it does not
// export it.
const rejected = -32005

// call calls a tool of the source and waits for the answer, until ctx or the link
// ends; close waits for it.
func (l *link) call(ctx context.Context, r *request) (*reply, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, transportError{errClosed}
	}
	l.wg.Add(1)
	l.mu.Unlock()
	defer l.wg.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.ctx, func() { cancel(transportError{context.Cause(l.ctx)}) })
	defer stop()
	l.calls.Add(1)
	answer, rest, err := l.tell(ctx, r)
	l.calls.Add(-1)
	if rest != nil {
		l.wg.Go(rest) // the count that is held keeps close from having waited
	}
	if err == nil && answer.fault != "" {
		err = &RefusedError{Text: "its answer is not what MCP asks of a tool's: " + answer.fault}
	}
	if err == nil {
		return answer, nil
	}
	if unknown, is := errors.AsType[sessionUnknownError](err); is && l.isKnown() {
		err = unknown.error // it spoke of the call, which may have been carried out
	} else if is {
		// The other calls of this link may be carried out all the same: they end with
		// it, as lost, and are not made again.
		l.cancel(errForgotten)
		return nil, transportError{err}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if e, ok := errors.AsType[*RefusedError](err); ok {
		return nil, e
	}
	if e := errorOf(err); e != nil {
		return nil, &RefusedError{Text: jsontext.Clip(e.Message, maxErrorText)}
	}
	l.doubt()
	if lost, ok := errors.AsType[transportError](err); ok {
		err = lost.error
	}
	return nil, transportError{l.wire.reason(err)}
}

// isKnown asks the source whether it does not know our session, as it seems to have said:
// what it says of a ping speaks of nothing else. That it says nothing does not tell.
func (l *link) isKnown() bool {
	ctx, cancel := context.WithTimeout(l.ctx, noticeTimeout)
	defer cancel()
	err := l.ping(ctx) // where the session is not known, the link ends over it
	return err == nil || errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// callOverSDK calls a tool by the SDK's own means. That may hang in a write though its
// context has ended, so it has a goroutine of its own, which close waits for.
func (l *link) callOverSDK(ctx context.Context, r *request) (*reply, func(), error) {
	type outcome struct {
		answer *reply
		err    error
	}
	done := make(chan outcome, 1)
	if !l.begin(func() {
		answer, err := callExact(ctx, l.session, r)
		done <- outcome{answer, err}
	}) {
		return nil, nil, transportError{errClosed}
	}
	select {
	case o := <-done:
		return o.answer, nil, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done: // both were ready: what is there is not thrown away
		return o.answer, nil, o.err
	default:
		return nil, nil, context.Cause(ctx)
	}
}

// doubt has the source asked whether it is still there.
func (l *link) doubt() {
	select {
	case l.suspect <- struct{}{}:
	default:
	}
}

// hearChange notes that the source says that its tools changed.
func (l *link) hearChange() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// errorOf is the error with which the source has answered a request, or nil: why a
// connection broke may be an error of JSON-RPC, too, and so may why nothing was sent.
func errorOf(err error) *jsonrpc.Error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if _, lost := errors.AsType[transportError](err); !ok || lost || e.Code == rejected {
		return nil
	}
	return e
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
	params := &toolsRequest{}
	for range maxToolPages {
		page, err := listExact(ctx, l.session, params)
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

// listen makes a sink for the progress of one call, and its token.
func (l *link) listen(hand func(Progress)) (token string, s *sink) {
	token = strconv.FormatInt(l.tokens.Add(1), 10)
	s = newSink(hand)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sinks[token] = s
	return token, s
}

func (l *link) forget(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sinks, token)
}

// route hands a progress notification to the call it belongs to.
func (l *link) route(p *mcp.ProgressNotificationParams) {
	if p == nil {
		return
	}
	token, ok := p.ProgressToken.(string)
	if !ok {
		return
	}
	l.mu.Lock()
	s := l.sinks[token]
	l.mu.Unlock()
	if s == nil {
		return
	}
	progress := Progress{Value: &p.Progress, Message: jsontext.Clip(p.Message, maxMessageText)}
	if p.Total > 0 {
		progress.Total = &p.Total
	}
	s.put(progress)
}

// bounded is ctx with a timeout whose cause says what took too long.
func bounded(ctx context.Context, limit time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s took longer than %v: %w", what, limit, context.DeadlineExceeded))
}
