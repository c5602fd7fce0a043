// Package board is the task board of a project (seed 004): its projects, tasks and their attempts, what they
// cost, what waits for a person, and what runs record about themselves. It reads and writes the project's
// store and reads its config. Processes and worktrees belong to package attempt.
//
// The concepts to know:
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

// Options configure a Board. Zero fields have their default.
type Options struct {
	Root   string        // absolute path of the project
	State  *state.Folder // of the project; default: state.Of(Root)
	Config func(context.Context) (*config.Config, error)
	Logger *slog.Logger // default: discards

	// Stores are the project's. By default these are the files of State, which are closed with the board. The
	// caller closes other stores after the board.
	Stores *store.Stores

	// CheckWorkflow returns the workflow that a task names; the caller gets its error. nil means that neither
	// workflows nor their inputs are checked.
	CheckWorkflow func(ctx context.Context, job, workflow string) (*job.Workflow, error)
	// Steps returns the steps that wait for a person in a caller's sessions and in the workspaces of
	// attempts. nil means no steps.
	Steps FindSteps
	// Conflicts names the files with conflicts in an attempt's worktrees. May be nil.
	Conflicts func(context.Context, *task.Attempt) []string
	// Attempt is the id of the attempt in whose workspace the process runs: every call then counts as made by
	// the attempt's maker. "" means none.
	Attempt string
	// Changed is called after the board was opened or a task changed. It must not block. May be nil.
	Changed func()
}

// A Board is the task board of one project in this process. Its methods may be called from any goroutine, and
// by several processes of one project; each returns when its changes are durable. who makes the call: it sees
// and changes what its identity or group has made, and the owner everything; other things do not exist for
// it. request_ids are scoped by its identity.
type Board struct {
	Log      *slog.Logger
	Database store.Database
	Members  store.Members
	Stores   *store.Stores
	Shared   *store.Stores // Stores, or nil if only this machine uses them
	Here     task.Place    // this process's place; zero in stores of one machine

	o        Options
	close    func(context.Context) error // nil if the caller closes the stores
	projects projects

	mu     sync.Mutex // guards the fields below; held while the database is opened
	used   bool       // the database has been opened
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

// Store returns the board's records without a caller's view, for the program itself. The first call opens the
// database.
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

// A View is the board as the caller of one call sees it.
type View struct {
	store.View
	Who session.Caller
}

// View returns a caller's view of the board, with its projects synchronized with the config, and the config.
// Every call starts with it.
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
		// A deleted attempt has no maker.
		who, err = records.Maker(ctx, b.o.Attempt)
		if err != nil && !errors.Is(err, task.ErrNotFound) {
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

// Config returns the current configuration; its error is for callers.
func (b *Board) Config(ctx context.Context) (*config.Config, error) {
	cfg, err := b.o.Config(ctx)
	if err != nil {
		return nil, session.NotNow(codes.ConfigInvalid,
			"The configuration is not valid: %v. Correct the file that this names, .deepwork/config.yml or the user's "+
				"own config, and try again; no restart is needed.", err).Because(err)
	}
	return cfg, nil
}
