// Package workflow guides agents through the workflows of job.yml files: a pure state machine for
// one session, an actor that owns it, a stack of sessions per connection, and a store with one
// durable record per transition.
package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

// Options configure an Engine. Zero fields have their default value.
type Options struct {
	Root    string        // project root, absolute
	State   *state.Folder // of the project; default: state.Of(Root)
	Catalog *catalog.Catalog
	Config  *config.Source
	Logger  *slog.Logger // default: discards

	// Stores are those of the project; default: files, closed with the engine. Else the caller closes
	// them after it.
	Stores *store.Stores
	// Place is where this process runs, if the stores are shared with other machines; nil means that
	// they are not, and nothing of it is recorded.
	Place *task.Place
	// Attempt is the id of the attempt in whose workspace the engine is; "" outside.
	Attempt string
	// Reviews false is --no-quality-gate: steps are not reviewed (seed 000, 001.1.9).
	Reviews bool
	// Gate is the external reviewer. nil means none: agents have their work reviewed by a subagent
	// (seed 000, 001.1.7 and 001.1.8).
	Gate *gate.Gate
	// Reviewing returns how steps are reviewed; it is called for each call, so that an edited
	// config takes effect. nil means by the agents themselves.
	Reviewing func(context.Context) (Reviewing, error)
	// IdleAfter is how long an unused session actor stays in memory; default 5 min.
	IdleAfter time.Duration
	// Requests delivers requests of other processes about the engine's sessions; nil means none.
	Requests store.Requests
	// StatelessIdle returns how long an unused session stays with its identity's stateless Conn, as
	// configured now; nil means 1 h. Then it is released, and resumable. It may be called from any
	// goroutine.
	StatelessIdle func() time.Duration
	// AskTimeout limits the wait for a session's actor; default 60 s.
	AskTimeout time.Duration
	// Moved is called for each durable transition, by the goroutine that made it: it must not
	// block. The calls for one session are in order. May be nil.
	Moved func(*machine.State)
	Now   func() time.Time // default time.Now

	// records and definitions replace the disk in benchmarks.
	records     records
	definitions definitions
}

// An Engine runs the sessions of one project in this process.
type Engine struct {
	Options // with defaults applied

	ownStores  bool        // close them
	lease      store.Lease // nil if this server owns its sessions for as long as it runs
	handles    *stack.Table
	requests   sync.Map // calls with a request_id in progress: store.Key -> chan struct{}
	system     *actor.System
	sessions   *actor.Registry[string, message]
	declined   sync.Map   // what users declined to answer about runs: session id and digest -> true
	git        sync.Mutex // branches are made one at a time
	jobs       atomic.Pointer[encodedJobs]
	conns      atomic.Int64           // numbers the stacks' names
	read       memo[string, struct{}] // sessions whose files were not sealed here, and were logged
	ctx        context.Context        // for work outside the actors; ends with Close
	cancel     context.CancelFunc
	beside     sync.WaitGroup
	stopping   atomic.Bool   // sessions are no longer released
	releasing  chan struct{} // capacity releasesAtOnce: held while a session is released
	unreleased atomic.Bool   // a session could not be released

	mu        sync.Mutex // guards the following fields
	closed    bool       // no work outside the actors may start
	stateless map[string]*Conn
	reviewsOf map[string]int // by identity, those that run or wait; not the user's
}

// Open makes the engine of a project. The project folder need not have a .deepwork yet; the engine
// joins the servers of the project with its first write.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{
		Options: o, handles: stack.NewTable(), read: memo[string, struct{}]{most: 1000},
		releasing: make(chan struct{}, releasesAtOnce), stateless: map[string]*Conn{}, reviewsOf: map[string]int{},
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if e.Reviewing == nil {
		e.Reviewing = func(context.Context) (Reviewing, error) { return Reviewing{}, nil }
	}
	if e.Logger == nil {
		e.Logger = slog.New(slog.DiscardHandler)
	}
	if e.State == nil {
		e.State = state.Of(o.Root)
	}
	if e.Now == nil {
		e.Now = session.Clock
	}
	if e.StatelessIdle == nil {
		e.StatelessIdle = func() time.Duration { return time.Hour }
	}
	e.AskTimeout, e.IdleAfter = cmp.Or(e.AskTimeout, time.Minute), cmp.Or(e.IdleAfter, 5*time.Minute)
	if e.records == nil {
		if e.ownStores = e.Stores == nil; e.ownStores {
			e.Stores = local.Stores(e.State, false, e.Logger)
		}
		r, err := openRecords(e.State, e.Stores, false, e.Logger)
		if err != nil {
			return nil, err
		}
		e.records = r
	}
	if e.definitions == nil {
		e.definitions = newJobDefinitions(e.Catalog, e.records)
	}
	if e.Stores != nil {
		e.lease, _ = e.Stores.Members.(store.Lease)
	}
	e.system = actor.NewSystem(e.Logger)
	e.sessions = actor.NewRegistry(e.system, actor.Options{Name: "session", Idle: e.IdleAfter, Logger: e.Logger},
		func(id string) (actor.Behavior[message], error) {
			return &sessionActor{engine: e, id: id}, nil
		})
	e.beside.Go(e.releaseFailed)
	if o.Requests != nil {
		e.beside.Go(func() { e.serveRequests(o.Requests) })
	}
	return e, nil
}

// Close stops every session actor; acknowledged changes are on disk already, and nothing is
// written: once this server's lock file is gone, any server may own its sessions. It returns the
// names of the actors that did not stop before ctx ended.
func (e *Engine) Close(ctx context.Context) []string {
	e.Stopping()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	stuck := e.system.Stop(ctx)
	e.cancel()
	if wait.Group(ctx, &e.beside) != nil { // a read or a write on a disk that hangs
		stuck = append(stuck, "reading files for reviews, or giving sessions up")
	}
	if err := e.records.Close(ctx); err != nil {
		e.Logger.Error("closing the sessions", "error", err)
	}
	if e.ownStores {
		if err := e.Stores.Close(ctx); err != nil {
			e.Logger.Error("closing the stores", "error", err)
		}
	}
	return stuck
}

// now returns the time of a transition, as written to files.
func (e *Engine) now() time.Time { return e.Now().UTC().Truncate(time.Microsecond) }

// claim reads a session and makes this server its owner, unless a living one is (DESIGN "Several
// servers, one project").
func (e *Engine) claim(id string) (*machine.State, error) {
	s, err := e.records.Load(id)
	if err != nil {
		return nil, err
	}
	if s.Status != machine.Active || s.Owner == e.records.Server() {
		return s, nil
	}
	if e.records.Alive(s.Owner) {
		return nil, e.owned(s)
	}
	previous := s.Owner
	s, err = e.records.Update(id, func(now *machine.State) (*machine.State, error) {
		if now.Status != machine.Active {
			return nil, nil
		}
		if now.Owner != e.records.Server() && e.records.Alive(now.Owner) {
			return nil, e.owned(now)
		}
		next := now.Next(now.UpdatedAt)
		next.Owner, next.Place = e.records.Server(), e.Place
		return next, nil
	})
	if err != nil {
		if session.CodeOf(err) == "session_unreadable" {
			err = session.NotNow("not_saved", "Session '%s' cannot be taken over, because that must be recorded first: %v", id, errors.Unwrap(err)).With("session_id", id).Because(err)
		}
		return nil, err
	}
	if s.Status == machine.Active && previous != "" {
		e.Logger.Info("session taken over from a server that is gone", "session", id, "server", previous)
	}
	return s, err
}

// term returns the term of this server's lease, if it needs one to own a session.
func (e *Engine) term(s *machine.State) (int64, error) {
	if e.lease == nil || s.Status != machine.Active {
		return 0, nil
	}
	term, err := e.lease.Term()
	return term, store.Refused(err)
}

// held reports whether a session is on a stack here.
func (e *Engine) held(id string) bool {
	h := e.handles.Get(id)
	return h != nil && h.Pinned()
}

func (e *Engine) owned(s *machine.State) error {
	return session.NotNow(codeOwned,
		"Session '%s' is in use by another deepwork server that is running (%s). Go on there, or stop that server and call again.",
		s.SessionID, e.records.Describe(s.Owner)).With("session_id", s.SessionID).With("owner", s.Owner).Wait(10 * time.Second)
}

// ask has a session's actor call do and returns its result.
func ask[R any](ctx context.Context, e *Engine, id string, do func(ctx context.Context, a *sessionActor) (R, error)) (R, error) {
	return askWithin(ctx, e, id, e.AskTimeout, func(reply actor.Reply[R]) message {
		return func(ctx context.Context, a *sessionActor) {
			answer(reply, func() (r R, err error) {
				if err = a.owns(ctx); err == nil {
					r, err = do(ctx, a)
				}
				return r, err
			})
		}
	})
}

// askWithin sends a message to a session's actor and waits for its answer.
func askWithin[R any](ctx context.Context, e *Engine, id string, within time.Duration, build func(actor.Reply[R]) message) (R, error) {
	bounded := ctx
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > within {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	r, err := actor.Ask(bounded, e.sessions.For(id), build)
	_, refused := errors.AsType[*session.Error](err)
	switch {
	case err == nil, refused:
		return r, err
	case errors.Is(err, actor.ErrStopped):
		return r, session.NotNow("shutting_down", "The server is shutting down. Call again when it is back; session '%s' can be resumed by its session_id.", id).Because(err).Wait(5 * time.Second)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return r, session.NotNow("session_busy", "Session '%s' did not answer within %v; the call may still be carried out. Call get_step to see where it is.", id, within).Because(err).Wait(time.Second)
	}
	return r, fmt.Errorf("asking session %s: %w", id, err)
}
