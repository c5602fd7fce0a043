// Package attempt runs coding agents on the tasks of the board (seed 004): an attempt is a worktree
// for each repository, an agent that works there, and follow-ups. Every change is on the board
// before it is acknowledged, so any server of the project can continue it.
//
// Each execution of an agent is led by one goroutine of the server that owns it (see run); an
// Executor handles the agent itself. To add one whose agents are not processes of this machine,
// implement Executor in its own package and name it in Options.Executors. Workspaces are always created
// on this machine.
package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
)

// Options configure an Engine. The zero value of a field is its default.
type Options struct {
	Root   string        // project root, absolute
	State  *state.Folder // of the project; default: state.Of(Root)
	Config func(context.Context) (*config.Config, error)
	// Executors are those that the config cannot name, by their names. All others run command lines on this
	// machine, with this program as the shim.
	Executors map[string]Executor

	Logger *slog.Logger // default: discards

	// Stores are those of the project; default: the files of State, closed with the engine. Else the
	// caller closes them after it.
	Stores *store.Stores

	// Only has the names of the executors that this process runs, and Max is how many agents it runs at
	// once, in stores that several machines share; default: all, and as configured.
	Only []string
	Max  int

	// CheckWorkflow checks the workflow that a task names; its error is returned to the caller. nil
	// means that it is not checked.
	CheckWorkflow func(ctx context.Context, job, workflow string) error
	// Steps returns the steps that wait for a person of a caller's sessions, and of those in workspaces
	// of attempts; nil means that there are none.
	Steps FindSteps
	// Attempt is set in the workspace of an attempt, to its id: every call is then one of its maker,
	// who may not start agents there.
	Attempt string
	// Leader leads the agents of runs; nil leaves runs to other processes.
	Leader Leader
	// Passive engines start nothing before Serve is called, and take over only what Settle or a stop
	// needs: they are for the command line, and may run at the same time as servers.
	Passive bool
	// Poll is how often the board is checked for changes by other servers; default 500 ms. In a store that several
	// machines share it is checked after changes, at most so often, and a sixth as often without one.
	Poll time.Duration
	// Grace is the time from SIGTERM to SIGKILL when an agent is stopped; default 5 s.
	Grace time.Duration
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Config == nil {
		o.Config = func(context.Context) (*config.Config, error) { return config.Default(), nil }
	}
	o.Poll = cmp.Or(max(o.Poll, 0), 500*time.Millisecond)
	o.Grace = cmp.Or(max(o.Grace, 0), 5*time.Second)
	if o.State == nil {
		o.State = state.Of(o.Root)
	}
	return o
}

// An Engine is the task board of one project in this process, and the attempts that this server
// leads. Its methods may be called from any goroutine, and by several processes on one project;
// each returns when its changes are durable. who makes the call: it sees and changes what its
// identity or its group made, the owner everything, and what it does not see does not exist for it.
// Its identity scopes request_ids. Starting agents needs session.RightAgents.
type Engine struct {
	o        Options
	log      *slog.Logger
	home     string // <root>/.deepwork
	local    local
	member   store.Members
	db       store.Database
	changes  store.Changes
	close    func(context.Context) error // nil if the caller closes the stores
	stores   *store.Stores
	shared   *store.Stores // stores, nil if only this machine uses them
	here     task.Place    // of this process; zero in those
	projects projects

	ctx      context.Context // of every goroutine; ends with Close
	cancel   context.CancelFunc
	serving  context.Context // for starting new work; ends when Close begins
	halt     context.CancelFunc
	makers   sync.WaitGroup // goroutines that hand out slots, create workspaces and start agents
	beside   sync.WaitGroup // every goroutine of the engine
	kicks    wait.Signal    // a slot or a waiting execution may be available
	finished wait.Signal    // this process no longer leads an execution
	readies  wait.Signal    // a task may be ready to be started without a call

	only            string    // the attempt of the only run that it leads, "" for any; set before it serves
	able            able      // of serve
	lookedElsewhere time.Time // likewise

	mu       sync.Mutex // guards the fields below; held while the board is opened
	used     bool       // the database is open
	closed   bool
	runs     map[string]*run // by execution: those that this server runs
	removals map[string]bool // by attempt: the worktrees that it removes for other machines
	slot     chan struct{}   // closed when an agent of a step ends; nil means that nobody waits for it
	stats    Stats
}

// Open returns the engine of a project. The board is opened, or created, by the first call that
// needs it; if it exists, the executions of dead servers are taken over at once, concurrently. A
// board that cannot be opened fails each call, not Open. The caller closes the engine.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if !filepath.IsAbs(o.Root) {
		return nil, errors.New("opening the task board: the project root must be an absolute path")
	}
	o = o.withDefaults()
	e := &Engine{
		o: o, log: o.Logger, home: filepath.Join(o.Root, ".deepwork"),
		kicks: wait.NewSignal(), finished: wait.NewSignal(), readies: wait.NewSignal(), runs: make(map[string]*run), removals: make(map[string]bool),
		stats: Stats{Ended: make(map[task.AttemptState]uint64)},
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("opening the task board: finding this program, which is the agents' shim: %w", err)
	}
	e.local = local{runner.Runner{Shim: []string{self, runner.ShimCommand}}, o.State.Logs()}
	stores := o.Stores
	if stores == nil {
		stores = backend.Local(o.State, o.Logger)
		e.close = stores.Close
	}
	e.use(stores)
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.serving, e.halt = context.WithCancel(e.ctx)
	if !o.Passive {
		e.makers.Add(1)
		e.beside.Go(e.serveReady)
		e.Serve()
		e.beside.Go(e.notify)
	}
	return e, nil
}

// use sets the stores.
func (e *Engine) use(s *store.Stores) {
	e.stores, e.member, e.db, e.changes = s, s.Members, s.Database, s.Database.Changes()
	if s.Place != nil {
		e.shared, e.here = s, *s.Place
	}
}

// Close ends the engine and leaves the agents running: another server, or the next one, takes them
// over. Executions that wait to be started go back to the board. The error names what had not ended
// before ctx did.
func (e *Engine) Close(ctx context.Context) []string {
	e.halt()
	var stuck []string
	if wait.Group(ctx, &e.makers) != nil { // a setup command that is being killed
		stuck = append(stuck, "making workspaces")
	}
	e.cancel()
	if wait.Group(ctx, &e.beside) != nil {
		stuck = append(stuck, "waiting for agents")
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	// Last, so that until here no other server takes over this server's executions.
	if e.close != nil {
		if err := e.close(ctx); err != nil {
			e.log.Error("closing the task board", "error", err)
		}
	}
	return stuck
}

// board returns the board, and opens it the first time.
func (e *Engine) board(ctx context.Context) (store.Board, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fault("opening the task board", task.ErrClosed)
	}
	if e.used {
		return e.db.Board(), nil
	}
	if err := e.db.Open(ctx); err != nil {
		return nil, fault("opening the task board", err)
	}
	e.used = true
	e.kick()
	return e.db.Board(), nil
}

// A view is the board as the caller of a call sees it.
type view struct {
	store.View
	who session.Caller
}

// ready returns the board as a caller sees it, with its projects synchronized with the config, and
// the config. Every call begins with it.
func (e *Engine) ready(ctx context.Context, who session.Caller) (view, *config.Config, error) {
	cfg, err := e.config(ctx)
	if err != nil {
		return view{}, nil, err
	}
	b, err := e.board(ctx)
	if err != nil {
		return view{}, nil, err
	}
	if err := e.syncProjects(ctx, b, cfg); err != nil {
		return view{}, nil, fault("reading the projects of the config", err)
	}
	if e.o.Attempt != "" {
		// Of an attempt that was deleted, nobody is the maker.
		if who, err = b.Maker(ctx, e.o.Attempt); err != nil && !errors.Is(err, task.ErrNotFound) {
			return view{}, nil, fault("reading who made the attempt", err)
		}
	}
	return view{b.For(who), who}, cfg, nil
}

// mayStart returns an error if a caller may not start agents.
func (e *Engine) mayStart(who session.Caller) error {
	switch {
	case who.Has(session.RightAgents):
		return nil
	case e.o.Passive:
		return session.NotNow(codes.RightNeeded, "An agent that works on an attempt cannot start agents. Create a task for the work and mention it in your final message: your user can start an attempt on it.").With("right", "agents")
	}
	return session.NotNow(codes.RightNeeded, "Starting agents needs the right agents, which %s does not have. Ask the user of this server for a token with it: deepwork token new %[1]s --rights agents makes one.", who.Identity).With("right", "agents")
}

// open is ready for a call that names something by an id, which it checks first.
func (e *Engine) open(ctx context.Context, who session.Caller, field, given string) (b view, id string, err error) {
	if id, err = checkID(field, given); err == nil {
		b, _, err = e.ready(ctx, who)
	}
	return b, id, err
}

// openAttempt is ready for a call that names an attempt.
func (e *Engine) openAttempt(ctx context.Context, who session.Caller, t Target) (b view, id string, err error) {
	if id, err = t.id(); err == nil {
		b, _, err = e.ready(ctx, who)
	}
	return b, id, err
}

// openList is open for a list with a limit and a cursor.
func (e *Engine) openList(ctx context.Context, who session.Caller, field, given string, limit *int, cursor *string) (b view, id string, p task.Page, err error) {
	if p, err = page(limit, cursor); err == nil {
		b, id, err = e.open(ctx, who, field, given)
	}
	return b, id, p, err
}

func (e *Engine) config(ctx context.Context) (*config.Config, error) {
	cfg, err := e.o.Config(ctx)
	if err != nil {
		return nil, session.NotNow(codes.ConfigInvalid,
			"The configuration is not valid: %v. Correct the file that this names, .deepwork/config.yml or your own config, and call again; no restart is needed.", err).Because(err)
	}
	return cfg, nil
}

// keeper returns the keeper of the worktrees below a folder.
func (e *Engine) keeper(dir string) *worktree.Keeper {
	return worktree.New(worktree.Options{Dir: dir, Journal: e.journalOf(dir), Project: e.o.State.Root, Board: e.boardName(), Dropping: e.dropState, Logger: e.log})
}

// Stats are counts of this server since the engine was opened.
type Stats struct {
	Running int                          // executions that this server leads now, starting ones included
	Started uint64                       // agents that were started
	Ended   map[task.AttemptState]uint64 // executions by final state, as recorded by this server
}

// Stats returns the counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Running, s.Ended = len(e.runs), maps.Clone(s.Ended)
	return s
}

// count changes the counts under the lock.
func (e *Engine) count(change func(*Stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.stats)
}

// kick makes serve check the slots, and serveReady the tasks. It does not block.
func (e *Engine) kick() {
	e.kicks.Wake()
	e.readies.Wake()
}
