package board

import (
	"context"

	"deepwork/catalog/config"
	"deepwork/session/store"
)

// The values of an attempt's workflow status, as in the sessions of workflows.
const (
	WorkflowActive    = "active"
	WorkflowCompleted = "completed"
	WorkflowAborted   = "aborted"
)

// A Context is the board as seen by a deepwork inside a workspace: it reads the attempt of that
// workspace (seed 004, "Workspace context data"). Its methods may be called from any goroutine.
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
	b := c.db.Board()
	const gone = "It was deleted; what is done here belongs to no task any more."
	at, err := b.AttemptContext(ctx, c.attempt)
	if err != nil {
		return nil, FaultOf("reading the attempt", err, "attempt", config.AttemptEnv, c.attempt, gone)
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
