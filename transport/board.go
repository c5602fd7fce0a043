package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/definition"
	"deepwork/session/run"
	"deepwork/session/schedule"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	boardtools "deepwork/transport/tools/board"
)

// A taskBoard holds what a server needs for the task board: the engine behind the tools and, in the
// workspace of an attempt, the connection to that attempt. A server without either has the zero
// value.
type taskBoard struct {
	engine  *attempt.Engine
	byAgent bool           // an agent of an attempt started this server
	context *board.Context // nil outside a workspace
	log     *slog.Logger
}

// openBoard opens the board of the project. In the workspace of an attempt, that is the board of the
// attempt: there the tools know the ids that get_context gives. A server that an agent started, or that is
// in a workspace, runs no attempts, since it ends with its agent. openBoard does not block; files are
// opened on first use.
func (p *opening) openBoard() (err error) {
	b := &taskBoard{byAgent: board.ByAgent(p.getenv), log: p.logger}
	p.board = b
	o := attempt.Options{Leader: Leader(p.options, p.projectState), Passive: b.byAgent || p.workspace != nil}
	o.Options = board.Options{
		Root:   p.root,
		State:  p.projectState,
		Config: p.settings.Current,
		Logger: p.logger,
		Stores: p.stores,
		Steps: func(ctx context.Context, who session.Caller, attempts []string) ([]session.AwaitingStep, error) {
			return p.engine.Awaiting(ctx, who, attempts)
		},
		CheckWorkflow: func(ctx context.Context, job, name string) (*job.Workflow, error) {
			return definition.CheckWorkflow(ctx, p.jobs, job, name)
		},
	}
	if p.workspace != nil {
		if b.context, err = board.OpenContext(p.attempt(), p.stores.Database); err != nil {
			return fmt.Errorf("opening the workspace of an attempt: %w", err)
		}
		o.Root = p.projectState.Root
		o.Attempt = p.attempt()
		o.Steps = nil
	}
	o.Work = p.work
	if slices.Contains(p.sets, "board") {
		if b.engine, err = attempt.Open(p.ctx, o); err != nil {
			return fmt.Errorf("opening the task board: %w", err)
		}
		p.opened.add("parts of the task board that did not stop", func(ctx context.Context) error {
			return notStopped(b.engine.Close(ctx))
		})
		if !o.Passive && o.Leader != nil {
			schedule.New(b.engine).Serve(p.work)
			p.opened.add("schedules that did not stop", func(ctx context.Context) error {
				return notStopped(p.work.Leave(ctx, store.ScheduleWork))
			})
		}
	}

	return nil
}

// getRun returns the handler of get_run: it asks the client's user about what waits for a person in the run, and then
// returns the run with the state of its steps.
func (b *taskBoard) getRun(sessions runSessions) boardtools.GetRun {
	get := func(ctx context.Context, who session.Caller, a board.RunArgs) (*board.RunReply, error) {
		r, err := b.engine.GetRun(ctx, who, a)
		if err == nil {
			run.Look(ctx, r, sessions, nil)
		}
		return r, err
	}
	return func(ctx context.Context, who session.Caller, a board.RunArgs) (*board.RunReply, error) {
		arrived := time.Now()
		r, err := get(ctx, who, a)
		if err != nil {
			return nil, err
		}

		answered := false
		for _, w := range r.Waits {
			if w.For != board.WaitsForPerson {
				continue
			}

			has, err := sessions.AskAbout(ctx, who, arrived, w.SessionID, w.StepID)
			if err != nil {
				b.log.Debug("the user of a client was not asked, or the answer not recorded", "run", r.RunID, "step",
					w.StepID, "error", err)
			}
			answered = answered || has && err == nil
		}
		if !answered {
			return r, nil
		}
		return get(ctx, who, a)
	}
}

// runSessions are the sessions of runs.
type runSessions interface {
	run.Sessions
	// AskAbout asks a client's user about a step that waits for a person, for as long as a call that arrived then may
	// take, and reports whether they answered.
	AskAbout(ctx context.Context, who session.Caller, arrived time.Time, sessionID, stepID string) (bool, error)
}

// share adds the board to the engines of a server.
func (b *taskBoard) share(e *engines, sessions runSessions) {
	if b.engine != nil {
		e.board, e.getRun = b.engine, b.getRun(sessions)
		attemptMetrics(e.metrics, b.engine.Stats)
	}

	e.workspace = b.context
	if b.byAgent {
		e.local = session.Caller{Identity: session.LocalIdentity} // an agent of the board, not the user
	}
}

// keepApart excludes the files that a server writes in a workspace from the attempt's changes. The session folder has
// its own .gitignore, since .deepwork/.gitignore may belong to the project.
func keepApart(folder *state.Folder) error {
	dir := folder.Tmp()
	for _, own := range []string{filepath.Dir(dir), dir} {
		if fi, err := os.Lstat(own); err == nil && !fi.IsDir() {
			return fmt.Errorf("%s is %s, expected a folder of the workspace: remove it", own, durable.Kind(fi.Mode()))
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of sessions: %w", err)
	}

	f, err := os.OpenFile(filepath.Join(dir, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString("*\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("hiding the folder of sessions from git: %w", err)
	}

	return nil
}

// Workspace returns the attempt in whose workspace the folder of this state lies, or nil. Of the options only the store
// counts. In a workspace the config of the attempt's project applies, never one on a branch, and its database has the
// sessions. A workspace that only the environment names is confirmed now, since servers of other projects inherit the
// same variables. While the database cannot be used, the calls confirm it instead.
func Workspace(
	ctx context.Context, o Options, folder *state.Folder, getenv func(string) string, logger *slog.Logger,
) (*board.Workspace, error) {
	w := board.FindWorkspace(folder.Root, getenv)
	if w == nil || w.ByPath {
		return w, nil
	}
	project, _ := w.State() // Confirm returns the error
	own, err := config.Open(project.Root).Own(ctx)
	if err != nil {
		own = &config.User{}
	}
	choice, err := backend.Choose(o.Store, o.Project, own, project.Root)
	if err != nil {
		return nil, err
	}
	stores, err := backend.Open(ctx, project, choice, true, logger)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}

	bounded, cancel := context.WithTimeout(ctx, confirmFor)
	defer cancel()
	is, err := w.Confirm(bounded, stores.Database)
	if err != nil {
		logger.Error("it is not known whether this server is in the workspace of an attempt: calls are refused "+
			"until it is", "attempt", w.Attempt, "error", err)
	} else if !is {
		w = nil
	}
	if err := stores.Close(ctx); err != nil {
		logger.Warn("closing the store in which an attempt was looked up", "error", err)
	}
	return w, nil
}

// confirmFor is how long the start waits for the database to confirm the workspace.
const confirmFor = 2 * time.Second
