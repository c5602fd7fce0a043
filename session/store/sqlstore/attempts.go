package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// situation has the columns of a task.Situation of an attempt, as a; they are empty for a missing attempt.
const situation = `coalesce(a.machine_id, '') AS machine_id, coalesce(a.machine_name, '') AS machine_name, ` +
	`coalesce(a.root, '') AS root,
	coalesce(a.state, '') AS state, coalesce(a.landed, '') AS landed, a.run,
	coalesce((SELECT owner FROM executions WHERE attempt_id = a.id AND step_id IS NULL ORDER BY seq DESC LIMIT 1), ` +
	`'') AS leader,
	(SELECT count(*) FROM executions WHERE attempt_id = a.id AND step_id IS NOT NULL AND ended_at IS NULL) > 0 AS busy`

const attemptRows = `SELECT a.id, a.task_id, a.executor, a.variant, a.prompt, a.branch, a.workspace, a.error, ` +
	`a.trace, ` + situation + `,
	a.workflow_session_id, a.workflow_status, a.workflow_step, a.push_error, a.created_at, a.updated_at,
	s.id AS latest_session_id, s.executor AS latest_executor
FROM attempts a
LEFT JOIN sessions s ON s.id = (SELECT id FROM sessions WHERE attempt_id = a.id ORDER BY created_at DESC, id LIMIT 1)
`

const attemptIDs = `SELECT id FROM attempts WHERE task_id = ? ORDER BY created_at DESC, id`

// attempts reads attempts with their repos.
func (t Tx) attempts(where string, args ...any) []task.Attempt {
	all := List[task.Attempt](t, attemptRows+where, args...)
	repos := List[struct {
		AttemptID string
		Position  int
		task.AttemptRepo
	}](t,
		`SELECT attempt_id, position, repo_id, repo_name, repo_path, target_branch, base_commit, worktree FROM `+
			`attempt_repos
		WHERE attempt_id IN (SELECT a.id FROM attempts a `+where+`)`, args...)
	sort.Slice(repos, func(i, j int) bool { return repos[i].Position < repos[j].Position })
	of := make(map[string][]task.AttemptRepo, len(all))
	for _, r := range repos {
		of[r.AttemptID] = append(of[r.AttemptID], r.AttemptRepo)
	}
	for i := range all {
		all[i].Repos = of[all[i].ID]
	}

	return all
}

// findAttempt is like attempt but returns nil if there is none.
func (t Tx) findAttempt(id string) *task.Attempt {
	if !t.sees("attempt", id) {
		return nil
	}
	if all := t.attempts(`WHERE a.id = ?`, id); len(all) > 0 {
		return &all[0]
	}
	return nil
}

func (t Tx) attempt(id string) *task.Attempt {
	a := t.findAttempt(id)
	if a == nil {
		t.Fail(task.Missing("attempt", id))
	}
	return a
}

func (b board) CreateAttempt(
	ctx context.Context, a task.Attempt, first task.Execution, r task.Request,
) (*task.Attempt, error) {
	return b.makeAttempt(ctx, r, func(t Tx) string { return t.createAttempt(a, first) })
}

func (b board) CreateRun(
	ctx context.Context, n task.NewTask, a task.Attempt, first task.Execution, r task.Request,
) (*task.Attempt, error) {
	return b.makeAttempt(ctx, r, func(t Tx) string {
		a.TaskID = t.createTask(n)
		return t.createAttempt(a, first)
	})
}

// makeAttempt returns the attempt that create makes, or that the same request made earlier.
func (b board) makeAttempt(ctx context.Context, r task.Request, create func(Tx) string) (*task.Attempt, error) {
	return write(ctx, b, "creating an attempt", func(t Tx) *task.Attempt {
		id := b.makeOnce(t, r, func() string { return create(t) })
		made := t.findAttempt(id)
		if made == nil {
			t.Fail(deletedSince(task.Missing("attempt", id), r))
		}
		return made
	})
}

func (t Tx) createAttempt(a task.Attempt, e task.Execution) (id string) {
	if a.ID == "" {
		a.ID = uuid.NewString()
	}
	t.staying(a.TaskID)
	t.unblocked(a.TaskID)

	var identity, group *string // nil: the task's, so that its text cannot lead an agent to what only the owner sees
	if limited(t.who) {
		identity, group = &t.who.Identity, &t.who.Group
	}
	t.Exec(`INSERT INTO attempts (id, task_id, executor, variant, prompt, branch, workspace, state, run, trace, `+
		`created_at, updated_at, identity, caller_group)
		SELECT ?, id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, identity), coalesce(?, caller_group) FROM tasks `+
		`WHERE id = ?`,
		a.ID, a.Executor, a.Variant, a.Prompt, a.Branch, a.Workspace, task.Waiting, textOf(a.Run), a.Trace,
		t.later("attempts", "task_id", a.TaskID), t.Now, identity, group, a.TaskID)

	for i, r := range a.Repos {
		t.Exec(`INSERT INTO attempt_repos (attempt_id, position, repo_id, repo_name, repo_path, target_branch, `+
			`base_commit, worktree)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			a.ID, i, r.RepoID, r.RepoName, r.RepoPath, r.TargetBranch, r.BaseCommit, r.Worktree)
	}
	t.addExecution(task.Execution{ID: e.ID, AttemptID: a.ID, Prompt: e.Prompt, Variant: e.Variant})
	t.setTask(a.TaskID, task.InProgress)
	return a.ID
}

// later returns the current time or, if the clock was set back, a moment after the newest row of a table with
// this id. The order matters: a task stands for its newest attempt, and a run counts the agents since its
// newest leader.
func (t Tx) later(table, column, id string) string {
	var after time.Time
	t.First(`SELECT max(created_at) FROM `+table+` WHERE `+column+` = ? AND created_at > ?`, []any{id, t.Now},
		scanTime(func(last *time.Time) {
			if last != nil {
				after = last.Add(time.Microsecond)
			}
		}))
	return t.clampTime(after, time.Time{})
}

func (b board) Attempt(ctx context.Context, id string) (*task.Attempt, error) {
	return read(ctx, b, "reading an attempt", func(t Tx) *task.Attempt { return t.attempt(id) })
}

func (b board) AllAttempts(ctx context.Context) ([]task.Attempt, error) {
	return read(ctx, b, "reading all attempts", func(t Tx) []task.Attempt { return t.attempts(`ORDER BY a.id`) })
}

func (b board) AttemptDetails(ctx context.Context, id string) (*task.AttemptDetails, error) {
	return read(ctx, b, "reading an attempt", func(t Tx) *task.AttemptDetails {
		now := &task.AttemptDetails{Attempt: t.attempt(id), Execution: t.latest(id)}
		now.Executions = List[task.Execution](t,
			briefRows+`WHERE attempt_id = ? AND step_id IS NULL ORDER BY seq DESC LIMIT ?`, id, task.ShownExecutions)
		if s := now.Attempt.LatestSessionID; s != nil {
			now.Session = t.session(*s)
		}
		if now.Execution.State == task.Waiting {
			now.Open = t.count(openExecutions(""))
			now.Ahead = t.count(`SELECT count(*) FROM executions e JOIN executions o ON o.state = 'waiting' AND `+
				`o.step_id IS NULL AND o.seq < e.seq
				WHERE e.id = ? AND e.state = 'waiting'`, now.Execution.ID)
		}
		return now
	})
}

func (b board) TaskAttempts(ctx context.Context, taskID string, p task.Page) (*task.AttemptList, error) {
	l, err := p.Listing("attempts", taskID)
	if err != nil {
		return nil, err
	}
	return read(ctx, b, "listing attempts", func(t Tx) *task.AttemptList {
		r := &task.AttemptList{
			Task:  t.task(taskID),
			Total: t.count(`SELECT count(*) FROM attempts WHERE task_id = ?`, taskID),
		}
		r.Attempts = t.attempts(`WHERE a.task_id = ? AND a.created_at <= ? AND (a.created_at < ? OR a.id > ?)
			ORDER BY a.created_at DESC, a.id LIMIT ?`, position(l, taskID)...)
		r.Attempts, r.Next = task.Cut(l, r.Attempts, func(a task.Attempt) (time.Time, string) {
			return a.CreatedAt, a.ID
		})
		return r
	})
}

func (b board) AttemptContext(ctx context.Context, attemptID string) (*task.AttemptContext, error) {
	return read(ctx, b, "reading what an attempt belongs to", func(t Tx) *task.AttemptContext {
		p := &task.AttemptContext{Attempt: t.attempt(attemptID)}
		p.Task = t.task(p.Attempt.TaskID)
		p.Project = t.project(p.Task.ProjectID)
		return p
	})
}

// touch changes columns of an attempt, and the time of its last change.
func (t Tx) touch(attemptID, columns string, args ...any) {
	t.changed(store.AttemptChanged, attemptID)
	t.mustChange(task.Missing("attempt", attemptID), `UPDATE attempts SET `+columns+`updated_at = ? WHERE id = ?`,
		append(args, t.Now, attemptID)...)
}

func (b board) SetWorkspace(ctx context.Context, a *task.Attempt, base map[string]string) error {
	return change(ctx, b, "recording a workspace", func(t Tx) {
		t.hold(a)
		if !t.has(`FROM attempts WHERE id = ? AND workspace = ?`, a.ID, a.Workspace) {
			t.Fail(fmt.Errorf("attempt %q is not in %s any more: %w", a.ID, a.Workspace, task.ErrEnded))
		}
		t.setRepos(a.ID, "base_commit", base)
	})
}

// hold keeps others from changing an attempt. It fails with ErrEnded if the attempt's place differs from that
// of a.
func (t Tx) hold(a *task.Attempt) {
	t.touch(a.ID, ``)
	if !t.has(`FROM attempts WHERE id = ? AND machine_id = ? AND root = ?`, a.ID, a.MachineID, a.Root) {
		t.Fail(fmt.Errorf("attempt %q is not on this machine any more: %w", a.ID, task.ErrEnded))
	}
}

func (b board) SetTargets(ctx context.Context, attemptID string, targets map[string]string) error {
	return change(ctx, b, "changing the target of an attempt", func(t Tx) {
		t.mustSee("attempt", attemptID)
		t.touch(attemptID, resetLanded)
		if t.open(attemptID) {
			t.Fail(fmt.Errorf("attempt %q: %w", attemptID, task.ErrRunning))
		}
		t.setRepos(attemptID, "target_branch", targets)
	})
}

// setRepos sets a column of an attempt's repositories, by their ids.
func (t Tx) setRepos(attemptID, column string, values map[string]string) {
	for repo, value := range values {
		t.mustChange(fmt.Errorf("attempt %q: %w", attemptID, task.Missing("repo", repo)),
			`UPDATE attempt_repos SET `+column+` = ? WHERE attempt_id = ? AND repo_id = ?`, value, attemptID, repo)
	}
}

func (b board) SetWorkflow(ctx context.Context, attemptID string, n task.WorkflowProgress) error {
	return change(ctx, b, "recording an attempt's workflow", func(t Tx) {
		t.touch(attemptID, `workflow_session_id = ?, workflow_status = ?, workflow_step = ?, `,
			task.NonEmpty(&n.SessionID), task.NonEmpty(&n.Status), task.NonEmpty(&n.Step))
	})
}

func (b board) SetPushError(ctx context.Context, attemptID string, why *string) error {
	return change(ctx, b, "recording a push", func(t Tx) { t.touch(attemptID, `push_error = ?, `, why) })
}

func (b board) SetLanded(ctx context.Context, attemptID, landed string, done bool) (taskDone bool, err error) {
	return write(ctx, b, "recording what became of a branch", func(t Tx) bool {
		t.mustSee("attempt", attemptID)
		t.touch(attemptID, ``)
		if landed != task.LandedConflicts && t.open(attemptID) { // a follow-up has begun since
			return false
		}
		t.touch(attemptID, `landed = ?, `, landed)
		of := t.taskOf(attemptID)
		if !done ||
			t.Exec(`UPDATE tasks SET status = 'done', updated_at = ? WHERE id = ? AND status NOT IN ('done', `+
				`'cancelled')`, t.Now, of) == 0 {
			return false
		}
		t.changed(store.TaskChanged, of)
		t.changedDependents(of)
		return true
	})
}

func (b board) SetRun(ctx context.Context, attemptID string, run json.RawMessage) error {
	return change(ctx, b, "recording a run", func(t Tx) {
		t.touch(attemptID, `run = CASE WHEN run IS NOT NULL THEN ? END, `, string(run))
	})
}

func (b board) BranchTaken(ctx context.Context, branch string) (bool, error) {
	return read(ctx, b, "looking for a branch", func(t Tx) bool {
		return t.has(`FROM attempts WHERE branch = ?`, branch)
	})
}

func (b board) SetBranch(ctx context.Context, attemptID, branch string) error {
	return change(ctx, b, "renaming the branch of an attempt", func(t Tx) {
		t.touch(attemptID, `branch = ?, `, branch)
		if t.hasWorktree(attemptID) {
			t.Fail(fmt.Errorf("%w: attempt %q has its worktrees already", task.ErrInvalid, attemptID))
		}
	})
}

// hasWorktree reports whether an attempt has a worktree.
func (t Tx) hasWorktree(attemptID string) bool {
	return t.has(`FROM attempt_repos WHERE attempt_id = ? AND base_commit IS NOT NULL`, attemptID)
}

func (b board) WorktreeFolders(ctx context.Context, here task.Place) ([]string, error) {
	return read(ctx, b, "listing the folders of worktrees", func(t Tx) []string {
		all := List[string](t, `SELECT DISTINCT worktree FROM attempt_repos
			WHERE worktree <> '' AND attempt_id IN (SELECT id FROM attempts WHERE machine_id = ? AND root = ?)`,
			here.MachineID, here.Root)
		for i, path := range all { // <folder>/<attempt>/<repo>
			all[i] = filepath.Dir(filepath.Dir(path))
		}

		slices.Sort(all)
		return slices.Compact(all)
	})
}

func (b board) RepoPaths(ctx context.Context, here task.Place) ([]string, error) {
	return read(ctx, b, "reading the paths of repositories", func(t Tx) []string {
		all := List[string](t, `SELECT path FROM repos UNION SELECT repo_path FROM attempt_repos
			WHERE attempt_id IN (SELECT id FROM attempts WHERE machine_id = ? AND root = ?) ORDER BY 1`, here.MachineID,
			here.Root)
		if b.o.Shared {
			all = slices.AppendSeq(slices.DeleteFunc(all, func(path string) bool { return path == "" }),
				maps.Values(b.Synced()))
			slices.Sort(all)
			all = slices.Compact(all)
		}
		return all
	})
}
