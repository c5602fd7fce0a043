// Package workflow guides agents through the workflows of job.yml files. An Engine has an actor for each session
// that is in use here; package machine says what a command does to the session's state.
//
// No process owns a session: it is in a store that all servers of a project share. An actor applies a command to
// its copy of the state and writes the result if the stored session still has that revision; otherwise it reads
// the session and applies the command again (see apply). Effects outside of the record, such as a reviewer or a
// branch, are started by the process whose write was made.
//
// Callers name a session by its id. Package connection finds it for those that do not.
//
// To change the package, know these concepts, 24 of its own:
//   - Engine, Caller, root: what is done to a session, for whom, and where its files are;
//   - actor, apply, commit, unsure: how a state changes, and what follows if the store does not confirm it;
//   - FinishCall, result: a finished_step, and how far the actor has brought it;
//   - candidate: a finished_step whose step and outputs were found, on its way to package judging, which decides;
//   - look, contents: what is read outside of the actor before that;
//   - running, awaited: a turn of programs or reviewers that this process carries out, as work (package work), and
//     what calls wait for; Judge: who judges beside the external reviewer;
//   - HandIn, decision, grant: what a person sees, and says about it;
//   - nestedWrites: the sessions that a transition begins or goes on with besides its own, for steps that are
//     workflows; end: a session that a step has left;
//   - branch due, export, follower, span: what follows from a transition.
//
// How a step is finished takes these and those of package judging; package pin has the settings, package check what
// checks are bound to, package machine the transition.
package workflow

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/export"
	"deepwork/session/machine"
	"deepwork/session/pin"
	"deepwork/session/record"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/work"
)

// Options configure an Engine. Zero fields have their default value.
type Options struct {
	Root    string           // absolute path of the project, or of an attempt's workspace
	State   *state.Folder    // of Root; default: state.Of(Root)
	Catalog *catalog.Catalog // nil: sessions go on with their stored definitions, and none can begin
	Config  *config.Source
	Notice  string        // for agents, in get_workflows; "" means none
	Logger  *slog.Logger  // default: discards
	Stores  *store.Stores // of the project; the caller closes them after the engine

	// Place is where this process runs, if other machines share the stores; nil means that they do not, and
	// no place is recorded.
	Place *task.Place
	// Attempt is the id of the attempt whose workspace the engine serves; "" means none.
	Attempt string
	// Reviews false is --no-quality-gate: steps are not reviewed (seed 000, 001.1.9).
	Reviews bool
	// Gate is the external reviewer. nil means none: agents have their work reviewed by a subagent
	// (seed 000, 001.1.7 and 001.1.8).
	Gate *gate.Gate
	// Judges judge beside the external reviewer, in its pool.
	Judges []Judge
	// Checks runs the checks of steps. With nil, as in commands, steps with checks cannot be finished.
	Checks *check.Runner
	// Work carries out reviews and checks, for this engine alone. It is nil in commands, which judge nothing.
	Work *work.Loop
	// Reviewing returns how steps are reviewed. It is called once per call, so that an edited config takes
	// effect. nil means that agents review their own work.
	Reviewing func(context.Context) (pin.Reviewing, error)
	// IdleAfter is how long an unused session actor stays in memory; default 5 min.
	IdleAfter time.Duration
	// AskTimeout limits the wait for a session's actor; default 60 s.
	AskTimeout time.Duration
	// Moved is called after each durable transition, by any process. It must not block, and may be called
	// more often than needed. May be nil.
	Moved func()
	Wrote func(took time.Duration) // see record.Store; nil means nothing
	Now   func() time.Time         // default time.Now
}

// An Engine serves the sessions of one project in this process. Agents get those of its Root; commands and
// pages get all.
type Engine struct {
	Options // with defaults applied

	records     *record.Store
	definitions *definition.Store
	policy      *pin.Policy
	system      *actor.System
	sessions    *actor.Registry[string, message]
	resent      sync.Map // sessions whose last spans were exported again: id -> true
	resends     atomic.Int64
	exports     *export.Files
	follower    follower
	ctx         context.Context // for work outside the actors; ends with Close
	cancel      context.CancelFunc
	background  sync.WaitGroup

	closing context.Context // ends when the engine begins to close
	close   context.CancelFunc

	running sync.Map // what this process judges: key of its row -> *running, which the session's actor sets

	mu     sync.Mutex    // guards the following fields
	closed bool          // no more work may start outside the actors
	ends   map[*end]bool // the work of ending
}

// Open makes the engine of a project. The project folder need not have a .deepwork yet. The engine registers
// with the project's servers at its first write.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{Options: o, ends: map[*end]bool{}}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.closing, e.close = context.WithCancel(e.ctx)
	if e.Reviewing == nil {
		e.Reviewing = func(context.Context) (pin.Reviewing, error) { return pin.Reviewing{}, nil }
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

	e.AskTimeout, e.IdleAfter = cmp.Or(e.AskTimeout, time.Minute), cmp.Or(e.IdleAfter, 5*time.Minute)
	e.records = record.Of(e.Stores.Database.Sessions(), o.Root)
	e.records.Wrote = o.Wrote
	e.definitions = &definition.Store{Catalog: e.Catalog, Records: e.records}
	e.policy = &pin.Policy{
		Configured:  e.Reviewing,
		Reviews:     e.Reviews,
		Command:     e.Checks == nil,
		Definitions: e.definitions,
		Place:       e.placeKey(),
		Logger:      e.Logger,
	}

	e.exports = &export.Files{
		Own:      e.State,
		Attempt:  e.Attempt,
		Place:    e.Place,
		Revision: e.records.Revision,
		Logger:   e.Logger,
	}

	e.follower.engine = e
	e.system = actor.NewSystem(e.Logger)
	e.sessions = actor.NewRegistry(e.system, actor.Options{Name: "session", Idle: e.IdleAfter, Logger: e.Logger},
		func(id string) (actor.Behavior[message], error) {
			return &sessionActor{engine: e, id: id, pin: pin.Session{Policy: e.policy}}, nil
		})

	if e.Moved != nil {
		e.follower.start()
	}
	if e.Work != nil {
		e.Work.Register(work.Kind{Name: store.JudgingWork, Place: e.here(), Do: e.judge})
	}
	return e, nil
}

// Close stops every session actor. Acknowledged changes are on disk already; Close writes only the ends of
// sessions that a transition has left. It returns the names of the actors that did not stop before ctx ended.
func (e *Engine) Close(ctx context.Context) []string {
	e.close()
	var stuck []string
	if e.Work != nil {
		stuck = e.Work.Leave(ctx, store.JudgingWork)
	}
	e.shut(ctx)
	stuck = append(stuck, e.system.Stop(ctx)...)
	e.cancel()
	if wait.Group(ctx, &e.background) != nil { // a read may hang on a dead disk
		stuck = append(stuck, "ending sessions")
	}

	e.exports.Close()
	return stuck
}

// aside runs f outside the actors. It reports false, without running f, if the engine is closing.
func (e *Engine) aside(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.background.Go(f)
	return true
}

// An end is the pending end of a step's workflow that its session has left.
type end struct {
	of, child string // ids of sessions
	done      chan struct{}
}

// ending runs f, which ends the workflow of a left step, outside the actors. f needs the actors, so Close
// waits for f before it stops them.
func (e *Engine) ending(of, child string, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}

	one := &end{of, child, make(chan struct{})}
	e.ends[one] = true
	e.background.Go(func() {
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.ends, one)
			close(one.done)
		}()
		f()
	})
}

// endWithin is how long Close, and a call that has left sessions, wait for the work of ending.
const endWithin = 3 * time.Second

// ended waits at most endWithin for the work of ending, which may start more of it: below these sessions, or
// for all if none are given.
func (e *Engine) ended(ctx context.Context, below ...string) {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	for all := len(below) == 0; ctx.Err() == nil; {
		e.mu.Lock()
		var next *end
		for one := range e.ends {
			if all || slices.Contains(below, one.of) {
				next = one
				break
			}
		}
		e.mu.Unlock()
		if next == nil {
			return
		}
		below = append(below, next.child)
		_ = wait.Done(ctx, next.done)
	}
}

// shut waits for the work of ending, and then lets no other work begin.
func (e *Engine) shut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	for closed := false; !closed; {
		e.ended(ctx)
		e.mu.Lock()
		closed = len(e.ends) == 0 || ctx.Err() != nil
		e.closed = closed
		e.mu.Unlock()
	}
}

// now returns the time of a transition, as written to files.
func (e *Engine) now() time.Time { return e.Now().UTC().Truncate(time.Microsecond) }

// placeKey is the key of this place in State.Sources.
func (e *Engine) placeKey() string {
	if e.Place == nil {
		return ""
	}
	return e.Place.Key()
}

// server returns the id of this process.
func (e *Engine) server() string { return e.Stores.Members.ID() }

// enter registers this process as a user of the stores, before its first write.
func (e *Engine) enter(ctx context.Context) error {
	ctx, cancel := record.Timed(ctx)
	defer cancel()
	return record.Explain(e.Stores.Members.Enter(ctx))
}

// Stats are metrics of an Engine.
type Stats struct {
	Awake  int         // sessions with an actor in memory
	Actors actor.Stats // sessions and their mailboxes
	record.Figures
}

// Add adds the figures of another engine.
func (s *Stats) Add(other Stats) {
	s.Awake += other.Awake
	s.Actors.Actors += other.Actors.Actors
	s.Actors.Waiting += other.Actors.Waiting
	s.Actors.Deepest = max(s.Actors.Deepest, other.Actors.Deepest)
	s.Actors.Blocked += other.Actors.Blocked
	s.Figures.Add(other.Figures)
}

// Stats returns the current figures. It visits every actor in memory, without delaying them.
func (e *Engine) Stats() Stats {
	return Stats{Awake: e.sessions.Len(), Actors: e.system.Stats(), Figures: e.records.Figures()}
}

// Step returns a step of a session by the definition that was stored when the session last moved.
func (e *Engine) Step(s *machine.State, stepID string) (*job.Step, error) {
	def, err := e.Definition(s)
	if err != nil {
		return nil, err
	}
	if def.Workflow.Find(stepID) < 0 {
		return nil, fmt.Errorf("session %s has no step %q", s.SessionID, stepID)
	}
	return def.Job.Step(stepID), nil
}

// Definition returns the definition that was stored when a session last moved.
func (e *Engine) Definition(s *machine.State) (*machine.Definition, error) {
	def, err := e.definitions.Kept(s.Definition)
	if err != nil {
		return nil, fmt.Errorf("reading the definition of session %s: %w", s.SessionID, err)
	}
	return def.For(s), nil
}

// triedListed is the maximum number of rows read to find those that wait for a person.
const triedListed = 10_000

// ask has a session's actor apply a command to the session's current state, and returns the result.
func ask[R any](
	ctx context.Context, e *Engine, id string, do func(ctx context.Context, a *sessionActor) (R, error),
) (R, error) {
	return askWithin(ctx, e, id, e.AskTimeout, func(reply actor.Reply[R]) message {
		return command[R]{do, reply}
	})
}

// askWithin sends a message to a session's actor and waits for its answer.
func askWithin[R any](
	ctx context.Context, e *Engine, id string, within time.Duration, build func(actor.Reply[R]) message,
) (R, error) {
	bounded := ctx
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > within {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}

	if telemetry.On() {
		plain := build
		build = func(reply actor.Reply[R]) message { return aboutSession{plain(reply), ctx} }
	}
	r, err := actor.Ask(bounded, e.sessions.For(id), build)
	_, refused := errors.AsType[*session.Error](err)
	switch {
	case err == nil, refused:
		return r, err
	case errors.Is(err, actor.ErrStopped):
		return r, session.NotNow(codes.ShuttingDown,
			"The server is shutting down. Call again when it is back; session '%s' can be resumed by its session_id.",
			id).Because(err).Wait(5 * time.Second)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return r, session.NotNow(codes.SessionBusy,
			"Session '%s' did not answer within %v; the call may still be carried out. Call get_step to see where "+
				"it is.", id, within).Because(err).Wait(time.Second)
	}

	return r, fmt.Errorf("asking session %s: %w", id, err)
}

// randomID returns 2n hexadecimal characters.
func randomID(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// A follower wakes those in this process that wait for transitions, whichever process makes them. It follows
// the feed of changes once there is a waiter. It is only a hint: a call that waits for a review also looks
// from time to time.
type follower struct {
	engine *Engine
	once   sync.Once

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed when the session has changed
}

// start follows the feed until the engine closes.
func (f *follower) start() {
	f.once.Do(func() { f.engine.aside(func() { f.run(f.engine.ctx) }) })
}

func (f *follower) run(ctx context.Context) {
	changes := f.engine.Stores.Database.Changes()
	position := ""
	for ctx.Err() == nil {
		news, err := changes.Since(ctx, position)
		if err != nil {
			_ = wait.For(ctx, time.Second) // the store cannot be reached
			continue
		}
		position = news.Next
		moved := news.Reset
		if news.Reset {
			f.wakeAll()
		}
		for _, c := range news.Changes {
			if c.Kind == store.SessionChanged {
				moved = true
				f.wake(c.ID)
			}
		}
		if moved {
			f.engine.notifyMoved()
		}

		if err := changes.Wait(ctx, position); err != nil {
			_ = wait.For(ctx, time.Second)
		}
	}
}

// changed returns a channel that is closed when the session has changed. Call it before reading the session.
func (f *follower) changed(id string) <-chan struct{} {
	f.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = map[string]chan struct{}{}
	}
	if f.waiting[id] == nil {
		f.waiting[id] = make(chan struct{})
	}
	return f.waiting[id]
}

func (f *follower) wake(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ch := f.waiting[id]; ch != nil {
		close(ch)
		delete(f.waiting, id)
	}
}

func (f *follower) wakeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, ch := range f.waiting {
		close(ch)
		delete(f.waiting, id)
	}
}

// notifyMoved calls Options.Moved for a durable transition.
func (e *Engine) notifyMoved() {
	if e.Moved != nil {
		e.Moved()
	}
}
