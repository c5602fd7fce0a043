package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/process"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
)

// A policy has the settings that a source follows without reconnecting.
type policy struct {
	refresh time.Duration
	retries int
}

// An offer is what is known about a source at one moment. It is immutable.
type offer struct {
	workflows []*offered
	skipped   []Skipped
	queried   bool // a query has succeeded once
	connected bool
	since     time.Time // when the connection was lost
	err       error     // why it is not connected, or why its last query failed
}

// A source maintains the connection to one MCP server. Only its goroutine, run, replaces link and offer.
type source struct {
	def     config.WorkflowSource
	apart   bool // a command that was started outside the project
	options Options
	logger  *slog.Logger
	changed wait.Signal     // the offer changed
	grace   context.Context // when it ends, the connection is ended at once
	policy  atomic.Pointer[policy]
	offer   atomic.Pointer[offer]
	link    atomic.Pointer[link]

	requests chan chan error // each value requests a query that starts after it was sent; unbuffered
	adjusted wait.Signal     // the policy changed
	cancel   context.CancelFunc
	done     chan struct{} // closed when run has returned

	// Owned by run:
	version string          // the MCP version to try first
	waiting chan error      // a received request, with room for its answer; or nil
	logged  map[string]bool // skipped workflows and defaults logged for the last query
	served  bool            // this connection has answered a query
	broken  bool            // the previous connection broke, and this one has not answered yet
}

// newSource makes a source. before is the source that it replaces, or nil; the tools of that stay listed
// until the first query.
func newSource(
	def config.WorkflowSource, o Options, before *source, p policy, changed wait.Signal, grace context.Context,
) *source {
	s := &source{
		def: def, options: o, logger: o.Logger.With("source", def.Name), changed: changed, grace: grace,
		version: handshake, requests: make(chan chan error), adjusted: wait.NewSignal(), done: make(chan struct{}),
	}
	if def.Tools != nil {
		s.version = newestVersion // the first version with tasks
	}

	s.policy.Store(&p)
	first := offer{since: time.Now()}
	if before != nil {
		if known := *before.offer.Load(); known.queried {
			if known.connected {
				known.connected, known.since = false, time.Now()
			}
			first = known
		}
	}
	first.err = errConnecting
	s.offer.Store(&first)
	return s
}

var errConnecting = errors.New("the connection is not established yet")

// run keeps the source connected until ctx ends.
func (s *source) run(ctx context.Context) {
	defer close(s.done)
	pause := wait.Backoff{Min: firstRetry, Max: lastRetry}
	var repaired time.Time // when a good connection was last replaced immediately
	for ctx.Err() == nil {
		began := time.Now()
		err := s.connection(ctx)
		if ctx.Err() != nil {
			break
		}

		if time.Since(began) > steadyAfter {
			pause.Reset()
		}

		_, malformed := errors.AsType[malformedError](err)
		if s.served && (malformed || s.def.URL != "") && time.Since(repaired) > settleBetween {
			// A good connection that breaks on a message is replaced immediately. Meanwhile the source does
			// not count as away: calls wait for the next connection.
			s.served = false
			s.broken = true
			repaired = time.Now()
			s.logger.Warn("a source cannot be reached; trying again", "error", err)
			continue
		}
		s.served = false

		s.failed(err, false)
		next := time.NewTimer(pause.Next())
		select { // until the next attempt, or until a query is requested
		case <-ctx.Done():
		case <-next.C:
		case s.waiting = <-s.requests:
		}
		next.Stop()
	}

	s.answer(errClosed)
}

// ended reports whether run has returned.
func (s *source) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// connection connects once and returns when the connection is lost. A panic becomes an error, so
// that one source does not end the others.
func (s *source) connection(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.logger.Error("a source made its connection fail", "panic", r, "trace", string(debug.Stack()))
			err = fmt.Errorf("its connection failed: %v", r)
		}
	}()

	l, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer func() {
		s.link.Store(nil)
		l.close(s.grace)
	}()
	s.link.Store(l)
	return s.converse(ctx, l)
}

// dial connects in the MCP version that the source used last, or in the other one if the source refuses that.
func (s *source) dial(ctx context.Context) (*link, error) {
	l, err := s.dialIn(ctx, s.version)
	if err == nil || errorOf(err) == nil && s.def.Tools == nil || ctx.Err() != nil {
		return l, err
	}

	other := newestVersion
	if s.version == newestVersion {
		other = handshake
	}
	l, again := s.dialIn(ctx, other)
	if again != nil {
		return nil, fmt.Errorf("%w; and in another version of MCP: %w", err, again)
	}
	s.logger.Debug("a source refuses initialize, and is spoken to in another version of MCP", "version",
		l.session.InitializeResult().ProtocolVersion, "error", err)
	s.version = other
	return l, nil
}

// dialIn opens the wire and starts a session in a version of MCP.
func (s *source) dialIn(ctx context.Context, version string) (*link, error) {
	var w wire
	limit := dialTimeout
	if s.def.URL != "" {
		u, err := openURL(&s.def)
		if err != nil {
			return nil, err
		}
		w = u
	} else {
		limit = startTimeout
		settings, err := s.options.Settings(ctx)
		if err != nil {
			return nil, err
		}
		program, err := trust.Program(s.options.Root, settings.Approval, s.def.Command)
		if errors.Is(err, trust.ErrChanged) {
			return nil, fmt.Errorf("%w: the user must review it and run deepwork trust in a terminal", err)
		}
		if err != nil {
			program = s.def.Command[0] // starting it reports what is wrong
		}
		dir := s.options.Root
		if settings.Approval.Unapproved() { // from the user's own config
			dir = process.Home()
		}
		c, err := startCommand(&s.def, program, dir, s.logger)
		if err != nil {
			return nil, err
		}

		w = c
	}
	ctx, cancel := bounded(ctx, limit, "its initialize")
	defer cancel()
	return connect(ctx, w, s.options, version)
}

// An schedule says when a source is queried next.
type schedule struct {
	next     time.Time // zero means never
	last     time.Time // when the last query ended
	failures int       // consecutive failures
	pause    wait.Backoff
}

// queryBy schedules a query, unless an earlier one is scheduled; zero means never.
func (a *schedule) queryBy(t time.Time) {
	if a.next.IsZero() || !t.IsZero() && t.Before(a.next) {
		a.next = t
	}
}

// converse queries the source when needed, until the link or ctx ends.
func (s *source) converse(ctx context.Context, l *link) error {
	var probe <-chan time.Time
	if s.def.URL != "" {
		ticker := time.NewTicker(probeInterval)
		defer ticker.Stop()
		probe = ticker.C
	}

	a := schedule{next: time.Now(), pause: wait.Backoff{Min: firstRetry, Max: lastRetry}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var next <-chan time.Time
		if !a.next.IsZero() {
			timer.Reset(time.Until(a.next))
			next = timer.C
		}

		requests := s.requests
		if s.waiting != nil { // waiting for the first query
			requests = nil
		}

		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		case <-s.adjusted:
			a.queryBy(s.nextQuery())
		case <-l.changed: // one query for a burst of notices
			at := time.Now().Add(settleFor)
			if earliest := a.last.Add(settleBetween); at.Before(earliest) {
				at = earliest
			}
			a.queryBy(at)
		case <-l.checkAlive:
			err = s.probe(ctx, l)
		case <-probe:
			err = s.probe(ctx, l)
		case s.waiting = <-requests:
			err = s.queryNow(ctx, l, &a)
		case <-next:
			err = s.queryNow(ctx, l, &a)
		}
		if err != nil {
			return err
		}
	}
}

// queryNow queries the source and plans the next query. It returns an error if the link must end.
func (s *source) queryNow(ctx context.Context, l *link, a *schedule) error {
	err := s.query(ctx, l)
	a.last = time.Now()
	switch {
	case err == nil:
		s.served = true
		a.pause.Reset()
		a.failures, a.next = 0, s.nextQuery()
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case errors.Is(err, context.DeadlineExceeded) && l.calls.Load() == 0:
		// A source that is busy with a call may be slow to answer; otherwise it hangs.
		return err
	}

	s.failed(err, true)
	a.failures++
	if a.failures <= s.policy.Load().retries && !errors.Is(err, errEndless) {
		a.next = time.Now().Add(a.pause.Next())
		return nil
	}
	a.pause.Reset()
	if a.failures, a.next = 0, s.nextQuery(); a.next.IsZero() {
		a.next = time.Now().Add(queryAgain)
	}
	return nil
}

// nextQuery returns when the next query is due; zero means never.
func (s *source) nextQuery() time.Time {
	d := s.policy.Load().refresh
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// probe checks that the source is still there. Over HTTP without an open stream, nothing else shows that.
func (s *source) probe(ctx context.Context, l *link) error {
	if l.calls.Load() > 0 {
		return nil
	}

	ctx, cancel := bounded(ctx, probeTimeout, "its answer to a ping")
	defer cancel()
	stop := context.AfterFunc(l.ctx, cancel)
	defer stop()

	// An error from the source also counts as an answer.
	if err := l.session.Ping(ctx, nil); err != nil && errorOf(err) == nil && l.calls.Load() == 0 {
		if l.ctx.Err() != nil || errors.Is(err, mcp.ErrConnectionClosed) && wait.For(l.ctx, closeTimeout) != nil {
			return context.Cause(l.ctx) // has the reason
		}
		return fmt.Errorf("it does not answer: %w", err)
	}
	return nil
}

// answer answers the waiting request, if any.
func (s *source) answer(err error) {
	if s.waiting != nil {
		s.waiting <- err
		s.waiting = nil
	}
}
