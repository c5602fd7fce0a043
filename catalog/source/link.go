package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
)

// The versions of MCP used with sources. handshake is the newest version that starts with initialize. From
// 2026-07-28 on, sessions start with server/discover, which older servers do not know and which makes some of
// them exit. So initialize is tried first, and a source that answers it with an error is connected again in
// the newest version that the SDK supports.
const (
	handshake     = "2025-11-25"
	newestVersion = "" // the SDK's own choice
)

// A wire carries a link: a command or a URL.
type wire interface {
	transport() mcp.Transport
	// begun notes that the session has started.
	begun()
	// end ends everything at once, so that all waits for the source return. It does not block.
	end()
	// leave ends the wire gracefully, or at once when ctx ends. It calls close, which closes the session,
	// once that can no longer hang, and waits for all of it.
	leave(ctx context.Context, close func())
	// reason adds the state of the wire to an error.
	reason(err error) error
}

// A link is one connection to a source, from its initialize to its end.
type link struct {
	session    *mcp.ClientSession
	wire       wire
	ctx        context.Context // ends with the link; its cause says why
	cancel     context.CancelCauseFunc
	changed    wait.Signal // the source's tools changed
	checkAlive wait.Signal // a call got no answer: the source may be gone
	tools      atomic.Pointer[map[string]bool]
	calls      atomic.Int64 // number of calls in flight
	tokens     atomic.Int64
	wg         sync.WaitGroup

	mu       sync.Mutex
	closed   bool                     // no more goroutines may start
	progress map[string]chan Progress // channels of the calls that report progress, by token
}

// ClientName is the name of this program as a client of its sources.
const ClientName = "deepwork"

// connect starts a session in a version of MCP over a wire. If it fails, it closes the wire.
func connect(ctx context.Context, w wire, o Options, version string) (*link, error) {
	l := &link{
		wire: w, changed: wait.NewSignal(), checkAlive: wait.NewSignal(),
		progress: make(map[string]chan Progress),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	client := mcp.NewClient(&mcp.Implementation{Name: ClientName, Version: o.Version}, &mcp.ClientOptions{
		Capabilities:           &mcp.ClientCapabilities{},
		MultiRoundTrip:         &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { l.changed.Wake() },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			l.route(r.Params)
		},
	})

	var err error
	for _, method := range []string{callMethod, getTask, cancelTask} {
		err = cmp.Or(err, mcp.AddSendingCustomMethod[*callRequest, *reply](client, raw+method))
	}
	if err == nil {
		// Not every wait of the SDK ends with its context, but the end of the wire ends all of them.
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
		l.cancel(w.reason(cmp.Or(l.session.Wait(), errEnded)))
	})
	return l, nil
}

var errEnded = errors.New("it closed the connection")

// close ends the link and its calls in flight, and waits for all its goroutines. If ctx ends, it ends them at
// once.
func (l *link) close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel(errClosed)
	l.wire.leave(ctx, func() { l.session.Close() })
	l.wg.Wait()
}

// begin starts a goroutine for which close waits. It reports false if the link is closed.
func (l *link) begin(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.wg.Go(f)
	}
	return !l.closed
}

var errClosed = errors.New("the connection was closed by this server")

// findTools finds out which of these tools the source has.
func (l *link) findTools(ctx context.Context, wanted ...string) error {
	tools := make(map[string]bool)
	err := l.eachTool(ctx, func(tool *mcp.Tool) error {
		if slices.Contains(wanted, tool.Name) {
			tools[tool.Name] = true
		}
		return nil
	})
	if err != nil {
		return err
	}

	if old := l.tools.Load(); old == nil || !maps.Equal(*old, tools) {
		l.tools.Store(&tools)
	}
	return nil
}

// eachTool calls f for each tool that the source lists, on at most maxPages pages. The SDK's iterator would
// ask for pages as long as there is a cursor.
func (l *link) eachTool(ctx context.Context, f func(*mcp.Tool) error) error {
	var pages pages
	for cursor := ""; ; {
		r, err := l.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return fmt.Errorf("listing its tools: %w", err)
		}
		for _, tool := range r.Tools {
			if err := f(tool); err != nil {
				return err
			}
		}

		cursor = r.NextCursor
		if err := pages.goOn(cursor, len(r.Tools)); err != nil {
			return fmt.Errorf("listing its tools: %w", err)
		}
		if cursor == "" {
			return nil
		}
	}
}

// has reports whether the source is known to have a tool.
func (l *link) has(tool string) bool {
	tools := l.tools.Load()
	return tools != nil && (*tools)[tool]
}

// bounded returns ctx with a timeout whose cause says what took too long.
func bounded(ctx context.Context, limit time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%s took longer than %v: %w", what, limit, context.DeadlineExceeded))
}
