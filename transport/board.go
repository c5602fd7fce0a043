package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"deepwork/actor/presence"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/session/attempt"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

// A board is a server's share of the task board: the engine behind the tools, and
// in a workspace of an attempt what ties the server to that. Its zero value is that
// of a server without.
type board struct {
	engine  *attempt.Engine
	context *attempt.Context // nil: the server is in no workspace
	news    *boardReporter   // nil: likewise

	// inner reports whether a session in parent runs inside one of the same workflow.
	inner func(job, name, parent string) bool
}

// openBoard opens the share of a server on root. In a workspace, which getenv
// tells, that is the board of the attempt: there the tools know the ids that
// get_context gives, and what is started is run by the servers of the project,
// since this one ends with its agent. chosen reports whether the tools of the set are
// offered at all. It returns at once; files are opened when they are needed.
func openBoard(ctx context.Context, root string, member *presence.Member, db store.Database, chosen bool, settings *config.Source, jobs *catalog.Catalog, logger *slog.Logger, getenv func(string) string) (b *board, err error) {
	b = &board{}
	o := attempt.Options{Root: root, Config: settings.Current, Logger: logger, Member: member, Database: db,
		CheckWorkflow: func(ctx context.Context, job, name string) error { return workflow.CheckWorkflow(ctx, jobs, job, name) }}
	if file, id, ok := attempt.Workspace(getenv); ok {
		if b.context, err = attempt.OpenContext(file, id, logger); err != nil {
			return nil, fmt.Errorf("opening the workspace of an attempt: %w", err)
		}
		b.news = newBoardReporter(b.context.Tell, func(ctx context.Context) ([]attempt.News, error) { return pastNews(ctx, root, logger) }, logger)
		b.inner = func(job, name, parent string) bool { return insideItself(root, logger, job, name, parent) }
		if home := filepath.Dir(file); filepath.Base(home) == ".deepwork" {
			around := config.Open(filepath.Dir(home))
			around.Logger = logger
			o.Root, o.Config, o.Member, o.Database, o.Passive = filepath.Dir(home), around.Current, nil, nil, true
		}
	}
	if chosen {
		if b.engine, err = attempt.Open(ctx, o); err != nil {
			return nil, errors.Join(fmt.Errorf("opening the task board: %w", err), b.close(ctx))
		}
	}
	return b, nil
}

// share adds it to the engines of a server.
func (b *board) share(e *engines) {
	if b.engine != nil {
		e.board, e.metrics = b.engine, append(e.metrics, attemptMetrics(b.engine.Stats)...)
	}
	if b.context != nil {
		e.workspace = b.context
	}
	if b.news == nil {
		return
	}
	connect, stateless := e.connect, e.connectStateless
	e.connect = func(identity string) tool.WorkflowCaller { return reporting{connect(identity), b.news} }
	e.connectStateless = func(identity string) tool.WorkflowCaller { return reporting{stateless(identity), b.news} }
}

// moved is what the engine of workflows tells of each transition. What runs inside
// a session of its own workflow is a part of that one's work and no news.
func (b *board) moved() func(workflow.Move) {
	if b.news == nil {
		return nil
	}
	return func(m workflow.Move) {
		if m.Parent != "" && b.inner(m.JobName, m.WorkflowName, m.Parent) {
			return
		}
		b.news.put(attempt.News{JobName: m.JobName, WorkflowName: m.WorkflowName, SessionID: m.SessionID, Status: string(m.Status), Step: m.Step, Nested: m.Parent != ""})
	}
}

// close comes after the last transition. Agents go on, and the next server takes them up.
func (b *board) close(ctx context.Context) error {
	var errs []error
	if b.news != nil {
		errs = append(errs, b.news.close(ctx))
	}
	if b.engine != nil {
		if err := notStopped(b.engine.Close(ctx)); err != nil {
			errs = append(errs, fmt.Errorf("parts of the task board that did not stop: %w", err))
		}
	}
	if b.context != nil {
		errs = append(errs, b.context.Close())
	}
	return errors.Join(errs...)
}

// reporting is a connection in a workspace: before it answers a call that has moved a
// workflow, the board gets the news, if that takes a moment only.
type reporting struct {
	tool.WorkflowCaller
	news *boardReporter
}

func (r reporting) Start(ctx context.Context, a workflow.StartArgs) (*machine.StartReply, error) {
	defer r.news.settle(ctx)
	return r.WorkflowCaller.Start(ctx, a)
}

func (r reporting) Finish(ctx context.Context, a workflow.FinishArgs) (*machine.FinishReply, error) {
	defer r.news.settle(ctx)
	return r.WorkflowCaller.Finish(ctx, a)
}

func (r reporting) Abort(ctx context.Context, a workflow.AbortArgs) (*machine.AbortReply, error) {
	defer r.news.settle(ctx)
	return r.WorkflowCaller.Abort(ctx, a)
}

func (r reporting) GoTo(ctx context.Context, a workflow.GoToArgs) (*machine.GoToReply, error) {
	defer r.news.settle(ctx)
	return r.WorkflowCaller.GoTo(ctx, a)
}

// keepApart keeps what a server writes in a workspace out of the attempt's own
// changes: the folder of sessions hides itself, so that .deepwork/.gitignore, which
// may be the project's, need not be touched.
func keepApart(root string) error {
	dir := workflow.TmpDir(root)
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
