package task

import (
	"context"
	"fmt"
	"time"
)

// AttemptState is where an attempt, or one execution of it, is.
type AttemptState string

// The values of AttemptState.
const (
	Waiting     AttemptState = "waiting" // for a slot
	Starting    AttemptState = "starting"
	Running     AttemptState = "running"
	Completed   AttemptState = "completed"
	Failed      AttemptState = "failed"
	Stopped     AttemptState = "stopped"
	Interrupted AttemptState = "interrupted" // cut short, with a server or otherwise
)

// Open tells whether it has not ended.
func (s AttemptState) Open() bool { return s == Waiting || s == Starting || s == Running }

// ended tells whether it is one of the ways to end.
func (s AttemptState) ended() bool {
	return s == Completed || s == Failed || s == Stopped || s == Interrupted
}

// An Attempt is one try at a task, in a workspace of its own. Its state is that
// of its newest execution.
type Attempt struct {
	ID                string
	TaskID            string
	Executor          string
	Variant           *string
	Prompt            *string // what is added to the task's title and description
	Branch            string
	Workspace         string // the folder the agent works in, absolute
	State             AttemptState
	Error             *string // why its last execution failed, where that is known
	WorkflowSessionID *string
	WorkflowStatus    *string
	WorkflowStep      *string
	Repos             []AttemptRepo
	LatestSessionID   *string
	LatestExecutor    *string // of that session
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// An AttemptRepo is a worktree of an attempt.
type AttemptRepo struct {
	RepoID, RepoName, RepoPath string
	TargetBranch               string
	BaseCommit                 *string // nil until the worktree is made
	Worktree                   string  // absolute
}

const attemptRows = `SELECT a.id, a.task_id, a.executor, a.variant, a.prompt, a.branch, a.workspace, a.state, a.error,
	a.workflow_session_id, a.workflow_status, a.workflow_step, a.created_at, a.updated_at, s.id, s.executor
FROM attempts a
LEFT JOIN sessions s ON s.id = (SELECT id FROM sessions WHERE attempt_id = a.id ORDER BY created_at DESC, id LIMIT 1)
`

func scanAttempt(scan scanner) (a Attempt, err error) {
	err = scan(&a.ID, &a.TaskID, &a.Executor, &a.Variant, &a.Prompt, &a.Branch, &a.Workspace, &a.State, &a.Error,
		&a.WorkflowSessionID, &a.WorkflowStatus, &a.WorkflowStep, moment{&a.CreatedAt}, moment{&a.UpdatedAt},
		&a.LatestSessionID, &a.LatestExecutor)
	return a, err
}

func scanAttemptRepo(scan scanner) (r AttemptRepo, err error) {
	err = scan(&r.RepoID, &r.RepoName, &r.RepoPath, &r.TargetBranch, &r.BaseCommit, &r.Worktree)
	return r, err
}

// attempts reads attempts with their repos.
func (t tx) attempts(where string, args ...any) ([]Attempt, error) {
	var all []Attempt
	if err := t.each(attemptRows+where, args, collect(&all, scanAttempt)); err != nil {
		return nil, err
	}
	for i := range all {
		err := t.each(`SELECT repo_id, repo_name, repo_path, target_branch, base_commit, worktree
			FROM attempt_repos WHERE attempt_id = ? ORDER BY position`, []any{all[i].ID}, collect(&all[i].Repos, scanAttemptRepo))
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (t tx) attempt(id string) (*Attempt, error) {
	all, err := t.attempts(`WHERE a.id = ?`, id)
	return only(all, err, "attempt", id)
}

// CreateAttempt makes an attempt (its ID, Branch, Workspace and Repos are the
// caller's; an empty ID is made) with its first execution (its Prompt and
// Variant are the caller's, and its ID, if it is not empty), both waiting, and
// puts the task inprogress; or finds the one that the same request made before.
// ErrNotFound: there is no such task; ErrDeleted as well: the attempt that the
// request made was deleted; ErrDeleting: it is being deleted; ErrReused: the request was another.
func (b *Board) CreateAttempt(ctx context.Context, a Attempt, first Execution, r Request) (made *Attempt, err error) {
	now := b.stamp()
	err = b.write(ctx, "creating an attempt", func(t tx) error {
		id, err := b.makeOnce(t, r, func() (string, error) { return t.createAttempt(a, first, now) })
		if err != nil {
			return err
		}
		made, err = t.attempt(id)
		return deletedSince(err, r)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (t tx) createAttempt(a Attempt, e Execution, now string) (id string, err error) {
	if a.ID == "" {
		if a.ID, err = newID(); err != nil {
			return "", err
		}
	}
	if err := t.staying(a.TaskID); err != nil {
		return "", err
	}
	if _, err := t.exec(`INSERT INTO attempts (id, task_id, executor, variant, prompt, branch, workspace, state, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		a.ID, a.TaskID, a.Executor, a.Variant, a.Prompt, a.Branch, a.Workspace, Waiting, now, now); err != nil {
		return "", err
	}
	for i, r := range a.Repos {
		if _, err := t.exec(`INSERT INTO attempt_repos (attempt_id, position, repo_id, repo_name, repo_path, target_branch, base_commit, worktree)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			a.ID, i, r.RepoID, r.RepoName, r.RepoPath, r.TargetBranch, r.BaseCommit, r.Worktree); err != nil {
			return "", err
		}
	}
	if _, err := t.addExecution(Execution{ID: e.ID, AttemptID: a.ID, Prompt: e.Prompt, Variant: e.Variant}, now); err != nil {
		return "", err
	}
	return a.ID, t.setTask(a.TaskID, InProgress, now)
}

// setTask changes the status of a task, if it has another.
func (t tx) setTask(id string, status Status, now string) error {
	_, err := t.exec(`UPDATE tasks SET status = ?1, updated_at = ?2 WHERE id = ?3 AND status <> ?1`, status, now, id)
	return err
}

// Attempt returns one with its repos, or ErrNotFound.
func (b *Board) Attempt(ctx context.Context, id string) (a *Attempt, err error) {
	err = b.read(ctx, "reading an attempt", func(t tx) error {
		a, err = t.attempt(id)
		return err
	})
	return a, err
}

// AttemptIDs returns the ids of all attempts of the board, in no order.
func (b *Board) AttemptIDs(ctx context.Context) (ids []string, err error) {
	err = b.read(ctx, "listing all attempts", func(t tx) error {
		ids, err = t.strings(`SELECT id FROM attempts`)
		return err
	})
	return ids, err
}

// TaskAttemptIDs returns the ids of all attempts of a task, newest first, or
// ErrNotFound.
func (b *Board) TaskAttemptIDs(ctx context.Context, taskID string) (ids []string, err error) {
	err = b.read(ctx, "listing a task's attempts", func(t tx) error {
		if err := t.exists("tasks", "task", taskID); err != nil {
			return err
		}
		ids, err = t.strings(`SELECT id FROM attempts WHERE task_id = ? ORDER BY created_at DESC, id`, taskID)
		return err
	})
	return ids, err
}

// SetWorkspace records the base commits of an attempt's worktrees, by the id of
// their repo, or returns ErrNotFound.
func (b *Board) SetWorkspace(ctx context.Context, attemptID string, base map[string]string) error {
	now := b.stamp()
	return b.write(ctx, "recording a workspace", func(t tx) error {
		if err := t.touch(attemptID, now); err != nil {
			return err
		}
		for repo, commit := range base {
			n, err := t.exec(`UPDATE attempt_repos SET base_commit = ? WHERE attempt_id = ? AND repo_id = ?`, commit, attemptID, repo)
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("attempt %q: %w", attemptID, missing("repo", repo))
			}
		}
		return nil
	})
}

// A WorkflowNews is what the deepwork inside a workspace tells of its workflow.
// An empty field is not known.
type WorkflowNews struct{ SessionID, Status, Step string }

// SetWorkflow records where the workflow of an attempt is, or returns
// ErrNotFound (issue "With workflows").
func (b *Board) SetWorkflow(ctx context.Context, attemptID string, n WorkflowNews) error {
	now := b.stamp()
	return b.write(ctx, "recording an attempt's workflow", func(t tx) error {
		if err := t.touch(attemptID, now); err != nil {
			return err
		}
		_, err := t.exec(`UPDATE attempts SET workflow_session_id = ?, workflow_status = ?, workflow_step = ? WHERE id = ?`,
			none(&n.SessionID), none(&n.Status), none(&n.Step), attemptID)
		return err
	})
}

// Touch sets the time at which an attempt was changed last to now, or returns
// ErrNotFound.
func (b *Board) Touch(ctx context.Context, attemptID string) error {
	now := b.stamp()
	return b.write(ctx, "touching an attempt", func(t tx) error { return t.touch(attemptID, now) })
}

func (t tx) touch(attemptID, now string) error {
	n, err := t.exec(`UPDATE attempts SET updated_at = ? WHERE id = ?`, now, attemptID)
	if err == nil && n == 0 {
		err = missing("attempt", attemptID)
	}
	return err
}
