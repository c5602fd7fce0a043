package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/google/uuid"
)

const attemptRows = `SELECT a.id, a.task_id, a.executor, a.variant, a.prompt, a.branch, a.workspace, a.state, a.error,
	a.machine_id, a.machine_name, a.root, a.workflow_session_id, a.workflow_status, a.workflow_step, a.push_error, a.run, a.created_at, a.updated_at,
	s.id AS latest_session_id, s.executor AS latest_executor
FROM attempts a
LEFT JOIN sessions s ON s.id = (SELECT id FROM sessions WHERE attempt_id = a.id ORDER BY created_at DESC, id LIMIT 1)
`

const attemptIDs = `SELECT id FROM attempts WHERE task_id = ? ORDER BY created_at DESC, id`

// attempts reads attempts with their repos.
func (t Tx) attempts(where string, args ...any) ([]task.Attempt, error) {
	all, err := List[task.Attempt](t, attemptRows+where, args...)
	if err != nil {
		return nil, err
	}
	repos, err := List[struct {
		AttemptID string
		Position  int
		task.AttemptRepo
	}](t, `SELECT attempt_id, position, repo_id, repo_name, repo_path, target_branch, base_commit, worktree FROM attempt_repos
		WHERE attempt_id IN (SELECT a.id FROM attempts a `+where+`)`, args...)
	sort.Slice(repos, func(i, j int) bool { return repos[i].Position < repos[j].Position })
	of := make(map[string][]task.AttemptRepo, len(all))
	for _, r := range repos {
		of[r.AttemptID] = append(of[r.AttemptID], r.AttemptRepo)
	}
	for i := range all {
		all[i].Repos = of[all[i].ID]
	}
	return all, err
}

func (t Tx) attempt(id string) (*task.Attempt, error) {
	if err := t.own("attempt", id); err != nil {
		return nil, err
	}
	all, err := t.attempts(`WHERE a.id = ?`, id)
	if err == nil && len(all) == 0 {
		err = task.Missing("attempt", id)
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

func (b board) CreateAttempt(ctx context.Context, a task.Attempt, first task.Execution, r task.Request) (*task.Attempt, error) {
	return write(ctx, b, "creating an attempt", func(t Tx) (*task.Attempt, error) {
		id, err := b.makeOnce(t, r, func() (string, error) { return t.createAttempt(a, first) })
		if err != nil {
			return nil, err
		}
		made, err := t.attempt(id)
		return made, deletedSince(err, r)
	})
}

func (t Tx) createAttempt(a task.Attempt, e task.Execution) (id string, err error) {
	if a.ID == "" {
		a.ID = uuid.NewString()
	}
	if err := t.staying(a.TaskID); err != nil {
		return "", err
	}
	if err := t.unblocked(a.TaskID); err != nil {
		return "", err
	}
	var identity, group *string // nil: those of the task, so that its text leads no agent to what only the owner sees
	if limited(t.who) {
		identity, group = &t.who.Identity, &t.who.Group
	}
	if _, err := t.Exec(`INSERT INTO attempts (id, task_id, executor, variant, prompt, branch, workspace, state, run, created_at, updated_at, identity, caller_group)
		SELECT ?, id, ?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, identity), coalesce(?, caller_group) FROM tasks WHERE id = ?`,
		a.ID, a.Executor, a.Variant, a.Prompt, a.Branch, a.Workspace, task.Waiting, textOf(a.Run), t.Now, t.Now, identity, group, a.TaskID); err != nil {
		return "", err
	}
	for i, r := range a.Repos {
		if _, err := t.Exec(`INSERT INTO attempt_repos (attempt_id, position, repo_id, repo_name, repo_path, target_branch, base_commit, worktree)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			a.ID, i, r.RepoID, r.RepoName, r.RepoPath, r.TargetBranch, r.BaseCommit, r.Worktree); err != nil {
			return "", err
		}
	}
	if _, err := t.addExecution(task.Execution{ID: e.ID, AttemptID: a.ID, Prompt: e.Prompt, Variant: e.Variant}); err != nil {
		return "", err
	}
	return a.ID, t.setTask(a.TaskID, task.InProgress)
}

func (b board) Attempt(ctx context.Context, id string) (*task.Attempt, error) {
	return read(ctx, b, "reading an attempt", func(t Tx) (*task.Attempt, error) { return t.attempt(id) })
}

func (b board) AllAttempts(ctx context.Context) ([]task.Attempt, error) {
	return read(ctx, b, "reading all attempts", func(t Tx) ([]task.Attempt, error) { return t.attempts(`ORDER BY a.id`) })
}

func (b board) AttemptDetails(ctx context.Context, id string) (*task.AttemptDetails, error) {
	return read(ctx, b, "reading an attempt", func(t Tx) (now *task.AttemptDetails, err error) {
		now = &task.AttemptDetails{}
		if now.Attempt, err = t.attempt(id); err != nil {
			return nil, err
		}
		if now.Execution, err = t.latest(id); err != nil {
			return nil, err
		}
		if now.Executions, err = List[task.Execution](t, briefRows+`WHERE attempt_id = ? AND step_id IS NULL ORDER BY seq DESC LIMIT ?`, id, task.ShownExecutions); err != nil {
			return nil, err
		}
		if s := now.Attempt.LatestSessionID; s != nil {
			if now.Session, err = t.session(*s); err != nil {
				return nil, err
			}
		}
		if now.Execution.State != task.Waiting {
			return now, nil
		}
		if now.Open, err = t.Count(openExecutions("")); err == nil {
			now.Ahead, err = t.Count(`SELECT count(*) FROM executions e JOIN executions o ON o.state = 'waiting' AND o.step_id IS NULL AND o.seq < e.seq
				WHERE e.id = ? AND e.state = 'waiting'`, now.Execution.ID)
		}
		return now, err
	})
}

func (b board) TaskAttempts(ctx context.Context, taskID string, p task.Page) (*task.AttemptList, error) {
	l, err := p.Listing("attempts", taskID)
	if err != nil {
		return nil, err
	}
	return read(ctx, b, "listing attempts", func(t Tx) (r *task.AttemptList, err error) {
		r = &task.AttemptList{}
		if r.Task, err = t.task(taskID); err != nil {
			return nil, err
		}
		if r.Total, err = t.Count(`SELECT count(*) FROM attempts WHERE task_id = ?`, taskID); err != nil {
			return nil, err
		}
		r.Attempts, err = t.attempts(`WHERE a.task_id = ? AND a.created_at <= ? AND (a.created_at < ? OR a.id > ?)
			ORDER BY a.created_at DESC, a.id LIMIT ?`, position(l, taskID)...)
		r.Attempts, r.Next = task.Cut(l, r.Attempts, func(a task.Attempt) (time.Time, string) { return a.CreatedAt, a.ID })
		return r, err
	})
}

func (b board) AttemptContext(ctx context.Context, attemptID string) (*task.AttemptContext, error) {
	return read(ctx, b, "reading what an attempt belongs to", func(t Tx) (p *task.AttemptContext, err error) {
		p = &task.AttemptContext{}
		if p.Attempt, err = t.attempt(attemptID); err != nil {
			return nil, err
		}
		if p.Task, err = t.task(p.Attempt.TaskID); err != nil {
			return nil, err
		}
		p.Project, err = t.project(p.Task.ProjectID)
		return p, err
	})
}

func (b board) SetWorkspace(ctx context.Context, attemptID string, base map[string]string) error {
	return change(ctx, b, "recording a workspace", func(t Tx) error {
		if err := t.touch(attemptID); err != nil {
			return err
		}
		return t.setRepos(attemptID, "base_commit", base)
	})
}

func (b board) SetTargets(ctx context.Context, attemptID string, targets map[string]string) error {
	return change(ctx, b, "changing the target of an attempt", func(t Tx) error {
		if err := t.own("attempt", attemptID); err != nil {
			return err
		}
		if err := t.touch(attemptID); err != nil {
			return err
		}
		if open, err := t.open(attemptID); err != nil {
			return err
		} else if open {
			return fmt.Errorf("attempt %q: %w", attemptID, task.ErrRunning)
		}
		return t.setRepos(attemptID, "target_branch", targets)
	})
}

// setRepos sets a column of an attempt's repositories, by their ids.
func (t Tx) setRepos(attemptID, column string, values map[string]string) error {
	for repo, value := range values {
		n, err := t.Exec(`UPDATE attempt_repos SET `+column+` = ? WHERE attempt_id = ? AND repo_id = ?`, value, attemptID, repo)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("attempt %q: %w", attemptID, task.Missing("repo", repo))
		}
	}
	return nil
}

func (b board) SetWorkflow(ctx context.Context, attemptID string, n task.WorkflowProgress) error {
	return change(ctx, b, "recording an attempt's workflow", func(t Tx) error {
		if err := t.touch(attemptID); err != nil {
			return err
		}
		_, err := t.Exec(`UPDATE attempts SET workflow_session_id = ?, workflow_status = ?, workflow_step = ? WHERE id = ?`,
			task.NonEmpty(&n.SessionID), task.NonEmpty(&n.Status), task.NonEmpty(&n.Step), attemptID)
		return err
	})
}

func (b board) SetPushError(ctx context.Context, attemptID string, why *string) error {
	return change(ctx, b, "recording a push", func(t Tx) error {
		if err := t.touch(attemptID); err != nil {
			return err
		}
		_, err := t.Exec(`UPDATE attempts SET push_error = ? WHERE id = ?`, why, attemptID)
		return err
	})
}

func (t Tx) touch(attemptID string) error {
	t.changed(store.AttemptChanged, attemptID)
	n, err := t.Exec(`UPDATE attempts SET updated_at = ? WHERE id = ?`, t.Now, attemptID)
	if err == nil && n == 0 {
		err = task.Missing("attempt", attemptID)
	}
	return err
}

func (b board) BranchTaken(ctx context.Context, branch string) (bool, error) {
	return read(ctx, b, "looking for a branch", func(t Tx) (bool, error) {
		return t.First(`SELECT 1 FROM attempts WHERE branch = ?`, []any{branch}, new(int))
	})
}

func (b board) SetBranch(ctx context.Context, attemptID, branch string) error {
	return change(ctx, b, "renaming the branch of an attempt", func(t Tx) error {
		if err := t.touch(attemptID); err != nil {
			return err
		}
		made, err := t.First(`SELECT 1 FROM attempt_repos WHERE attempt_id = ? AND base_commit IS NOT NULL`, []any{attemptID}, new(int))
		if err != nil {
			return err
		}
		if made {
			return fmt.Errorf("%w: attempt %q has its worktrees already", task.ErrInvalid, attemptID)
		}
		_, err = t.Exec(`UPDATE attempts SET branch = ? WHERE id = ?`, branch, attemptID)
		return err
	})
}

func (b board) WorktreeFolders(ctx context.Context, here task.Place) ([]string, error) {
	return read(ctx, b, "listing the folders of worktrees", func(t Tx) ([]string, error) {
		// <folder>/<attempt>/<repo>
		return List[string](t, `SELECT DISTINCT substr(worktree, 1, instr(worktree, attempt_id) - 2) FROM attempt_repos
			WHERE instr(worktree, attempt_id) > 2 AND attempt_id IN (SELECT id FROM attempts WHERE machine_id = ? AND root = ?)`, here.MachineID, here.Root)
	})
}

func (b board) RepoPaths(ctx context.Context, here task.Place) ([]string, error) {
	return read(ctx, b, "reading the paths of repositories", func(t Tx) ([]string, error) {
		all, err := List[string](t, `SELECT path FROM repos UNION SELECT repo_path FROM attempt_repos
			WHERE attempt_id IN (SELECT id FROM attempts WHERE machine_id = ? AND root = ?) ORDER BY 1`, here.MachineID, here.Root)
		if b.o.Shared {
			all = slices.AppendSeq(slices.DeleteFunc(all, func(path string) bool { return path == "" }), maps.Values(b.Synced()))
			slices.Sort(all)
			all = slices.Compact(all)
		}
		return all, err
	})
}
