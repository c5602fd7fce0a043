// Package board is the task board of a project (seed 004): its projects, tasks and their attempts, what they
// cost, what waits for a person, and what runs say of themselves. It reads and writes the store of the project
// and the config, and starts no process and touches no worktree: package attempt does that.
//
// What a reader has to hold:
//
//   - Board, its Options and Store; View, the board as the caller of one call sees it
//   - projects and repositories, which SyncProjects takes over from the config
//   - Task, its status, its workflow, what it depends on and who leads it; Repeated, which recognizes a call
//   - AttemptSummary; Target, which names an attempt
//   - Run, RunEnd, RunWait: what the leader of a run keeps on the board; RunReply, RunStep, PlanStep: what callers see
//   - Cost, ExecutionCost, Limits; Reached, a budget that is reached, so that what waits is HeldBack
//   - Attention, its kinds, and FindSteps; Notify
//   - Workspace and Context: the attempt in whose workspace a process is
//   - Fault, FaultOf and Midway, which turn errors into refusals; the checks and the spelling of arguments
package board

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
)

// Options configure a Board. The zero value of a field is its default.
type Options struct {
	Root   string        // project root, absolute
	State  *state.Folder // of the project; default: state.Of(Root)
	Config func(context.Context) (*config.Config, error)
	Logger *slog.Logger // default: discards

	// Stores are the project's; by default the files of State, which are closed with the board. The caller closes
	// others after the board.
	Stores *store.Stores

	// CheckWorkflow returns the workflow that a task names; its error is returned to the caller. nil means that neither
	// it nor its inputs are checked.
	CheckWorkflow func(ctx context.Context, job, workflow string) (*job.Workflow, error)
	// Steps returns the steps that wait for a person in a caller's sessions and in the workspaces of attempts. A nil
	// function means no steps.
	Steps FindSteps
	// Attempt is the id of the attempt in whose workspace the process is: every call then counts as its maker's. ""
	// means that it's in none.
	Attempt string
	// Changed is called after the board was opened or a task changed; it must not block. May be nil.
	Changed func()
}

// A Board is the task board of one project in this process. Its methods may be called from any goroutine,
// and by several processes on one project; each returns when its changes are durable. who makes the call:
// it sees and changes what its identity or its group made, the owner everything, and what it does not see
// does not exist for it. Its identity scopes request_ids.
type Board struct {
	Log      *slog.Logger
	Database store.Database
	Members  store.Members
	Stores   *store.Stores
	Shared   *store.Stores // Stores, nil if only this machine uses them
	Here     task.Place    // of this process; zero in stores of one machine

	o        Options
	close    func(context.Context) error // nil if the caller closes the stores
	projects projects

	mu     sync.Mutex // guards the fields below; held while the database is opened
	used   bool       // the database is open
	closed bool
}

// New returns the board of a project. Its database is opened, or created, by the first call that needs it.
func New(o Options) *Board {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Config == nil {
		o.Config = func(context.Context) (*config.Config, error) { return config.Default(), nil }
	}
	if o.State == nil {
		o.State = state.Of(o.Root)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	b := &Board{o: o, Log: o.Logger, Stores: o.Stores}
	if b.Stores == nil {
		b.Stores = backend.Local(o.State, o.Logger)
		b.close = b.Stores.Close
	}

	b.Members, b.Database = b.Stores.Members, b.Stores.Database
	if b.Stores.Place != nil {
		b.Shared, b.Here = b.Stores, *b.Stores.Place
	}
	return b
}

// Root returns the root of the project.
func (b *Board) Root() string { return b.o.Root }

// State returns the state folder of the project.
func (b *Board) State() *state.Folder { return b.o.State }

// Close refuses later calls, and closes the stores unless the caller of New does.
func (b *Board) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	if b.close == nil {
		return nil
	}
	return b.close(ctx)
}

// Store returns the board's records for the program itself, which sees everything. It opens the database
// the first time.
func (b *Board) Store(ctx context.Context) (store.Board, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, Fault("opening the task board", task.ErrClosed)
	}

	if b.used {
		return b.Database.Board(), nil
	}

	if err := b.Database.Open(ctx); err != nil {
		return nil, Fault("opening the task board", err)
	}
	b.used = true

	b.o.Changed()
	return b.Database.Board(), nil
}

// A View is the board as the caller of a call sees it.
type View struct {
	store.View
	Who session.Caller
}

// View returns the board as a caller sees it, with its projects synchronized with the config, and
// the config. Every call begins with it.
func (b *Board) View(ctx context.Context, who session.Caller) (View, *config.Config, error) {
	cfg, err := b.Config(ctx)
	if err != nil {
		return View{}, nil, err
	}

	records, err := b.Store(ctx)
	if err != nil {
		return View{}, nil, err
	}
	if err := b.SyncProjects(ctx, records, cfg); err != nil {
		return View{}, nil, Fault("reading the projects of the config", err)
	}

	if b.o.Attempt != "" {
		// Of an attempt that was deleted, nobody is the maker.
		if who, err = records.Maker(ctx, b.o.Attempt); err != nil && !errors.Is(err, task.ErrNotFound) {
			return View{}, nil, Fault("reading who made the attempt", err)
		}
	}
	return View{records.For(who), who}, cfg, nil
}

// ViewFor is View for a call that names something by an id, which it checks first.
func (b *Board) ViewFor(ctx context.Context, who session.Caller, field, given string) (v View, id string, err error) {
	if id, err = CheckID(field, given); err == nil {
		v, _, err = b.View(ctx, who)
	}
	return v, id, err
}

// ViewOfAttempt is View for a call that names an attempt.
func (b *Board) ViewOfAttempt(ctx context.Context, who session.Caller, t Target) (v View, id string, err error) {
	if id, err = t.ID(); err == nil {
		v, _, err = b.View(ctx, who)
	}
	return v, id, err
}

// viewOfList is ViewFor for a list with a limit and a cursor.
func (b *Board) viewOfList(
	ctx context.Context, who session.Caller, field, given string, limit *int, cursor *string,
) (v View, id string, p task.Page, err error) {
	if p, err = page(limit, cursor); err == nil {
		v, id, err = b.ViewFor(ctx, who, field, given)
	}
	return v, id, p, err
}

// Config returns the configuration as it is now; its error is one for callers.
func (b *Board) Config(ctx context.Context) (*config.Config, error) {
	cfg, err := b.o.Config(ctx)
	if err != nil {
		return nil, session.NotNow(codes.ConfigInvalid,
			"The configuration is not valid: %v. Correct the file that this names, .deepwork/config.yml or your own "+
				"config, and call again; no restart is needed.", err).Because(err)
	}
	return cfg, nil
}
