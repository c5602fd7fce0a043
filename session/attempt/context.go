package attempt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
)

// The values of News.Status, as in the session files of workflows.
const (
	WorkflowActive    = "active"
	WorkflowCompleted = "completed"
	WorkflowAborted   = "aborted"
)

// A Context is the board as seen by a deepwork inside a workspace: it reads the attempt of that
// workspace and records its workflow's progress (seed 004, "Workspace context data"). Its methods
// may be called from any goroutine.
type Context struct {
	board, attempt string
	reader, writer store.Database // opened when first needed
	close          func() error
}

// Workspace returns the board's file and the attempt that an agent's environment names, if root, a
// path without links, is in that attempt's workspace. An agent may have servers of other projects:
// those have the same environment, and nothing to do with its attempt.
func Workspace(root string, getenv func(string) string) (board, attempt string, ok bool) {
	board, attempt, ok = agentOf(getenv)
	for dir := root; ok; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == attempt { // see checkLayout
			return board, attempt, true
		}
		ok = dir != filepath.Dir(dir)
	}
	return "", "", false
}

// ByAgent reports whether an agent of an attempt started this process, as its environment says.
func ByAgent(getenv func(string) string) bool {
	_, _, ok := agentOf(getenv)
	return ok
}

func agentOf(getenv func(string) string) (board, attempt string, ok bool) {
	board = getenv(config.BoardEnv)
	attempt, err := checkID(config.AttemptEnv, getenv(config.AttemptEnv))
	return board, attempt, err == nil && filepath.IsAbs(board)
}

// OpenContext returns the context of an attempt, in the stores of its project, which the caller closes
// after it, or with nil in the file of its board. It does not touch the disk; the caller closes it. A
// nil logger discards.
func OpenContext(board, attempt string, stores *store.Stores, logger *slog.Logger) (*Context, error) {
	id, err := checkID("attempt_id", attempt)
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(board) {
		return nil, fmt.Errorf("opening the board %q: its path must be absolute", board)
	}
	c := &Context{board: board, attempt: id, close: func() error { return nil }}
	if stores != nil {
		c.board, c.reader, c.writer = stores.Database.Where(), stores.Database, stores.Database
		return c, nil
	}
	c.reader = sqlite.New(sqlite.Options{Path: board, ReadOnly: true, Logger: logger})
	c.writer = sqlite.New(sqlite.Options{Path: board, Logger: logger})
	c.close = func() error { return errors.Join(c.reader.Close(), c.writer.Close()) }
	return c, nil
}

// Close closes the board.
func (c *Context) Close() error {
	if err := c.close(); err != nil {
		return fmt.Errorf("closing the board: %w", err)
	}
	return nil
}

// open returns the board, which must exist.
func (c *Context) open(db store.Database) (store.Board, error) {
	if !db.Exists() {
		return nil, session.NotNow("no_board", "The task board %s of this workspace does not exist. The attempt, or its project, may have been removed.", c.board)
	}
	return db.Board(), nil
}

// GetContext returns the project, task and attempt of this workspace (seed 004, get_context).
func (c *Context) GetContext(ctx context.Context) (*ContextReply, error) {
	b, err := c.open(c.reader)
	if err != nil {
		return nil, err
	}
	const gone = "It was deleted; what is done here belongs to no task any more."
	at, err := b.AttemptContext(ctx, c.attempt)
	if err != nil {
		return nil, found("reading the attempt", err, "attempt", config.AttemptEnv, c.attempt, gone)
	}
	a, t, p := at.Attempt, at.Task, at.Project
	r := &ContextReply{
		ProjectID: p.ID, ProjectName: p.Name, TaskID: t.ID, TaskTitle: t.Title, TaskDescription: t.Description, TaskStatus: string(t.Status),
		AttemptID: a.ID, WorkspaceBranch: a.Branch, WorkspaceRepos: []ContextRepo{}, JobName: t.JobName, WorkflowName: t.WorkflowName,
		WorkflowSessionID: a.WorkflowSessionID, WorkflowStatus: a.WorkflowStatus, WorkflowStep: a.WorkflowStep,
	}
	for _, repo := range a.Repos {
		r.WorkspaceRepos = append(r.WorkspaceRepos, ContextRepo{RepoID: repo.RepoID, RepoName: repo.RepoName, TargetBranch: repo.TargetBranch, WorktreePath: repo.Worktree})
	}
	return r, nil
}

// News is one transition of a workflow session in the workspace.
type News struct {
	JobName, WorkflowName string // of the session
	SessionID             string // 8 hex
	Status                string // WorkflowActive, WorkflowCompleted or WorkflowAborted
	Step                  string // the step it is at
	Nested                bool   // it runs inside another session of the workspace
}

// Tell records a transition of a workflow in the workspace durably: the task goes to review only
// when its workflow is complete. If the task names a workflow, transitions of others are ignored;
// otherwise, those of nested ones. It blocks for one write to the board. A caller that must not
// fail because of it logs the error and calls it for the next transition.
func (c *Context) Tell(ctx context.Context, n News) error {
	b, err := c.open(c.writer)
	if err != nil {
		return err
	}
	a, err := b.Attempt(ctx, c.attempt)
	if err != nil {
		return fault("reading the attempt", err)
	}
	t, err := b.Task(ctx, a.TaskID)
	if err != nil {
		return fault("reading the task", err)
	}
	if t.JobName != nil && (*t.JobName != n.JobName || t.WorkflowName == nil || *t.WorkflowName != n.WorkflowName) {
		return nil
	}
	if t.JobName == nil && n.Nested {
		return nil
	}
	if is(a.WorkflowSessionID, n.SessionID) && is(a.WorkflowStatus, n.Status) && is(a.WorkflowStep, n.Step) {
		return nil // already recorded
	}
	if n.Status == WorkflowAborted && a.WorkflowSessionID != nil && !is(a.WorkflowSessionID, n.SessionID) {
		return nil // a later workflow counts instead
	}
	err = b.SetWorkflow(ctx, c.attempt, task.WorkflowProgress{SessionID: n.SessionID, Status: n.Status, Step: n.Step})
	return fault("recording the workflow's step", err)
}

func is(p *string, s string) bool { return p != nil && *p == s }
