package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/run"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow"
	boardtools "deepwork/transport/tools/board"
)

// A board holds what a server needs for the task board: the engine behind the tools and, in the
// workspace of an attempt, the connection to that attempt. A server without either has the zero
// value.
type board struct {
	engine  *attempt.Engine
	byAgent bool             // an agent of an attempt started this server
	context *attempt.Context // nil outside a workspace
	log     *slog.Logger
}

// openBoard opens the board of a project. In the workspace of an attempt, "" outside, that is the board of the
// attempt: there the tools know the ids that get_context gives. around and stores are the project's. A server
// that an agent started, or that is in a workspace, runs no attempts, since it ends with its agent. chosen
// reports whether the tools of the set are offered at all. steps is attempt.Options.Steps outside a workspace.
// openBoard does not block; files are opened on first use.
func openBoard(ctx context.Context, root string, around *state.Folder, inside string, stores *store.Stores, chosen bool, settings *config.Source, jobs *catalog.Catalog, steps func(context.Context, session.Caller, []string) ([]session.AwaitingStep, error), leader attempt.Leader, logger *slog.Logger, getenv func(string) string) (b *board, err error) {
	b = &board{byAgent: attempt.ByAgent(getenv), log: logger}
	o := attempt.Options{Root: root, State: around, Config: settings.Current, Logger: logger, Stores: stores, Steps: steps, Leader: leader, Passive: b.byAgent || inside != "",
		CheckWorkflow: func(ctx context.Context, job, name string) error { return workflow.CheckWorkflow(ctx, jobs, job, name) }}
	if inside != "" {
		if b.context, err = attempt.OpenContext(inside, stores.Database); err != nil {
			return nil, fmt.Errorf("opening the workspace of an attempt: %w", err)
		}
		o.Root, o.Attempt, o.Steps = around.Root, inside, nil
	}
	if chosen {
		if b.engine, err = attempt.Open(ctx, o); err != nil {
			return nil, errors.Join(fmt.Errorf("opening the task board: %w", err), b.close(ctx))
		}
	}
	return b, nil
}

// getRun returns what carries out get_run: it asks the user of the client about what waits for a person in the
// run, and returns the run after the answers, with where its steps are.
func (b *board) getRun(sessions runSessions) boardtools.GetRun {
	get := func(ctx context.Context, who session.Caller, a attempt.RunArgs) (*attempt.RunReply, error) {
		r, err := b.engine.GetRun(ctx, who, a)
		if err == nil {
			run.Look(ctx, r, sessions, nil)
		}
		return r, err
	}
	return func(ctx context.Context, who session.Caller, a attempt.RunArgs) (*attempt.RunReply, error) {
		r, err := get(ctx, who, a)
		if err != nil {
			return nil, err
		}
		answered := false
		for _, w := range r.Waits {
			if w.For != attempt.WaitsForPerson {
				continue
			}
			has, err := sessions.AskAbout(ctx, who, w.SessionID, w.StepID)
			if err != nil {
				b.log.Debug("the user of a client was not asked, or the answer not recorded", "run", r.RunID, "step", w.StepID, "error", err)
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
	// AskAbout asks the user of a client about a step that waits for a person, and reports whether they answered.
	AskAbout(ctx context.Context, who session.Caller, sessionID, stepID string) (bool, error)
}

// share adds the board to the engines of a server.
func (b *board) share(e *engines, sessions runSessions) {
	if b.engine != nil {
		e.board, e.getRun = b.engine, b.getRun(sessions)
		e.metrics = append(e.metrics, attemptMetrics(b.engine.Stats)...)
	}
	e.workspace = b.context
	if b.byAgent {
		e.local = session.Caller{Identity: session.LocalIdentity} // an agent of the board, not the user
	}
}

// close is called after the last transition. Agents keep running; the next server adopts them.
func (b *board) close(ctx context.Context) error {
	var errs []error
	if b.engine != nil {
		if err := notStopped(b.engine.Close(ctx)); err != nil {
			errs = append(errs, fmt.Errorf("parts of the task board that did not stop: %w", err))
		}
	}
	return errors.Join(errs...)
}

// keepApart excludes files that a server writes in a workspace from the attempt's changes. The
// session folder ignores itself, since .deepwork/.gitignore may belong to the project.
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
