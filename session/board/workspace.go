package board

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
)

// A Workspace is the attempt in whose workspace a process seems to run, according to its folder or, where
// worktrees are elsewhere, its environment. The database of the project confirms it. What a branch can
// contain is never used as evidence. Methods may be called from any goroutine.
type Workspace struct {
	Attempt string
	ByPath  bool // found by the folder, which is below the state of the project

	root      string
	project   *state.Folder // has no place if fault is set
	fault     error         // why the state of the project cannot be opened
	apart     bool          // the environment names a project in a store that machines share
	confirmed atomic.Bool
}

// FindWorkspace returns the attempt in whose workspace a process with this root, a path without links, and
// this environment may run, or nil. An agent may also start servers of other projects with the same
// environment, so Confirm decides.
func FindWorkspace(root string, getenv func(string) string) *Workspace {
	w := &Workspace{root: root, apart: getenv(config.ProjectEnv) != ""}
	dir, below := state.Around(root)
	name, _, _ := strings.Cut(filepath.ToSlash(below), "/")
	if id, err := CheckID("attempt_id", worktree.Owner(strings.TrimSuffix(root, below), name)); err == nil {
		w.Attempt, w.ByPath = id, true
	} else if board, id, ok := agentOf(getenv); ok {
		w.Attempt, dir = id, filepath.Dir(board)
	} else {
		return nil
	}
	if w.project, w.fault = state.Open(dir); w.fault != nil {
		w.project = state.None(dir, w.fault)
	}
	return w
}

// State returns the state of the attempt's project. If it cannot be opened here, the error says why, and the
// state has no place.
func (w *Workspace) State() (*state.Folder, error) { return w.project, w.fault }

// ByAgent reports whether the environment says that an attempt's agent started this process.
func ByAgent(getenv func(string) string) bool {
	_, _, ok := agentOf(getenv)
	return ok
}

func agentOf(getenv func(string) string) (board, attempt string, ok bool) {
	board = getenv(config.BoardEnv)
	attempt, err := CheckID(config.AttemptEnv, getenv(config.AttemptEnv))
	return board, attempt, err == nil && filepath.IsAbs(board)
}

// Confirm reports whether the process is in the attempt's workspace, according to the project's database. Its
// error is for agents and says what is missing here; then the answer is unknown. It asks the database until
// that has confirmed it.
func (w *Workspace) Confirm(ctx context.Context, db store.Database) (ok bool, err error) {
	switch {
	case w.confirmed.Load():
		return true, nil
	case w.fault != nil:
		return false, w.missing(w.fault.Error())
	case !db.Exists():
		return false, w.missing(db.Where() + " does not exist here")
	}

	if err := db.Open(ctx); err != nil {
		return false, Fault("opening the database of the project", err)
	}
	a, err := db.Board().Attempt(ctx, w.Attempt)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return false, w.missing(db.Where() + " does not have this attempt; it may have been deleted")
	case err != nil:
		return false, Fault("reading the attempt of this workspace", err)
	case w.in(a):
		w.confirmed.Store(true)
		return true, nil
	case w.ByPath:
		return false, w.missing(fmt.Sprintf("there it is in %q", a.Workspace))
	}

	return false, nil
}

// in reports whether the process is in the workspace that the database names. An attempt without repositories
// works in the project itself.
func (w *Workspace) in(a *task.Attempt) bool {
	workspace := a.Workspace
	if len(a.Repos) == 1 { // the workspace may be a folder inside the repository
		workspace = a.Repos[0].Worktree
	}
	dir, err := state.Canonical(workspace)
	if err != nil {
		dir = workspace // perhaps as a container sees it
	}
	rel, err := filepath.Rel(dir, w.root)
	return len(a.Repos) > 0 && err == nil && filepath.IsLocal(rel)
}

// missing says that the project's database cannot be used from here.
func (w *Workspace) missing(what string) error {
	remedy := fmt.Sprintf("the state folder of the project must be reachable here at its own path, and writable; if "+
		"the project has its own store on a server, %s must name it", config.StoreEnv)
	switch {
	case w.apart:
		remedy = fmt.Sprintf("%s, or store in the user's own config, must name the store of the project here",
			config.StoreEnv)
	case !w.ByPath:
		remedy = fmt.Sprintf("%s must name a file that is reachable here, and writable; if the project has its own "+
			"store on a server, %s must name it", config.BoardEnv, config.StoreEnv)
	}
	if !w.ByPath {
		remedy += fmt.Sprintf("; a server that has nothing to do with the attempt must be started without %s",
			config.AttemptEnv)
	}
	return session.NotNow(codes.NoDatabase,
		"This server was started for attempt %s, whose sessions are in the database of its project and nowhere else, "+
			"and that cannot be used: %s. Nothing was done. A person has to correct that: %s.", w.Attempt, what,
		remedy).With("attempt_id", w.Attempt)
}

// The values of an attempt's workflow status, as in the sessions of workflows.
const (
	WorkflowActive    = "active"
	WorkflowCompleted = "completed"
	WorkflowAborted   = "aborted"
)

// A Context is the board for a deepwork that runs inside a workspace: it reads that workspace's attempt (seed
// 004, "Workspace context data"). Its methods may be called from any goroutine.
type Context struct {
	attempt string
	db      store.Database
}

// OpenContext returns the context of an attempt in the database of its project.
func OpenContext(attempt string, db store.Database) (*Context, error) {
	id, err := CheckID("attempt_id", attempt)
	if err != nil {
		return nil, err
	}
	return &Context{attempt: id, db: db}, nil
}

// GetContext returns the project, task and attempt of this workspace (seed 004, get_context).
func (c *Context) GetContext(ctx context.Context) (*ContextReply, error) {
	records := c.db.Board()
	const gone = "It was deleted; what is done here belongs to no task any more."
	at, err := records.AttemptContext(ctx, c.attempt)
	if err != nil {
		return nil, FaultOf("reading the attempt", err, codes.UnknownAttempt, config.AttemptEnv, c.attempt, gone)
	}
	a := at.Attempt
	t := at.Task
	p := at.Project
	r := &ContextReply{
		ProjectID:         p.ID,
		ProjectName:       p.Name,
		TaskID:            t.ID,
		TaskTitle:         t.Title,
		TaskDescription:   t.Description,
		TaskStatus:        string(t.Status),
		AttemptID:         a.ID,
		WorkspaceBranch:   a.Branch,
		WorkspaceRepos:    []ContextRepo{},
		JobName:           t.JobName,
		WorkflowName:      t.WorkflowName,
		Inputs:            InputsOf(&t.Task),
		WorkflowSessionID: a.WorkflowSessionID,
		WorkflowStatus:    a.WorkflowStatus,
		WorkflowStep:      a.WorkflowStep,
	}
	for _, repo := range a.Repos {
		r.WorkspaceRepos = append(r.WorkspaceRepos, ContextRepo{
			RepoID:       repo.RepoID,
			RepoName:     repo.RepoName,
			TargetBranch: repo.TargetBranch,
			WorktreePath: repo.Worktree,
		})
	}
	return r, nil
}
