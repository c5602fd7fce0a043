package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

// unplace removes an attempt without worktrees from its place, so that another machine can run it.
func (t Tx) unplace(attemptID string) {
	if t.hasWorktree(attemptID) {
		return
	}
	t.Exec(`UPDATE attempts SET machine_id = '', machine_name = '', root = '', workspace = '' WHERE id = ?`, attemptID)
	t.Exec(`UPDATE attempt_repos SET repo_path = '', worktree = '' WHERE attempt_id = ?`, attemptID)
	t.Exec(`UPDATE executions SET machine_id = '', machine_name = '', root = '' WHERE attempt_id = ? AND state = `+
		`'waiting'`, attemptID)
}

func (b board) SetPaths(ctx context.Context, a *task.Attempt) error {
	return change(ctx, b, "placing an attempt", func(t Tx) {
		t.hold(a)
		t.mustChange(fmt.Errorf("%w: attempt %q has a workspace already", task.ErrInvalid, a.ID),
			`UPDATE attempts SET workspace = ? WHERE id = ? AND workspace = ''`, a.Workspace, a.ID)
		for _, r := range a.Repos {
			t.Exec(`UPDATE attempt_repos SET repo_path = ?, worktree = ? WHERE attempt_id = ? AND repo_id = ?`,
				r.RepoPath, r.Worktree, a.ID, r.RepoID)
		}
	})
}

func (b board) OpenElsewhere(ctx context.Context, here task.Place) ([]task.Execution, error) {
	return read(ctx, b, "listing the executions of other machines", func(t Tx) []task.Execution {
		// A waiting execution has the place of its attempt.
		return List[task.Execution](t,
			`SELECT e.id, e.attempt_id, e.session_id, e.follow_up, e.prompt, e.executor, e.variant, e.state, `+
				`coalesce(e.owner, '') AS owner,
			e.exit_code, e.final_message, e.created_at, e.started_at, e.ended_at, a.machine_id, a.machine_name, `+
				`a.root, a.run IS NOT NULL AS lead
			FROM executions e JOIN attempts a ON a.id = e.attempt_id
			WHERE e.state IN ('waiting', 'starting', 'running') AND e.step_id IS NULL AND a.machine_id <> '' AND `+
				`NOT (a.machine_id = ? AND a.root = ?) ORDER BY e.seq`, here.MachineID, here.Root)
	})
}

func (b board) SaveOutput(ctx context.Context, attemptID string, entries json.RawMessage) error {
	return b.saveReport(ctx, "saving the output of an attempt", `output`, attemptID, entries)
}

func (b board) SaveDiff(ctx context.Context, attemptID string, diff json.RawMessage) error {
	return b.saveReport(ctx, "saving the changes of an attempt", `diff`, attemptID, diff)
}

// saveReport sets a column of a report and its time, unless the attempt was deleted.
func (b board) saveReport(ctx context.Context, doing, column, attemptID string, value json.RawMessage) error {
	return change(ctx, b, doing, func(t Tx) {
		if t.Exec(`UPDATE attempt_reports SET `+column+` = ?, `+column+`_at = ? WHERE attempt_id = ?`, string(value),
			t.Now, attemptID) == 0 {
			t.Exec(`INSERT INTO attempt_reports (attempt_id, `+column+`, `+column+
				`_at) SELECT id, ?, ? FROM attempts WHERE id = ?`, string(value), t.Now, attemptID)
		}
	})
}

func (b board) Report(ctx context.Context, attemptID string) (*task.Report, error) {
	return read(ctx, b, "reading the report of an attempt", func(t Tx) *task.Report {
		t.mustSee("attempt", attemptID)
		r := firstRow[task.Report](t,
			`SELECT output, output_at, diff, diff_at FROM attempt_reports WHERE attempt_id = ?`, attemptID)
		if r != nil {
			return r
		}
		return &task.Report{}
	})
}

func (b board) AskRemoval(ctx context.Context, attemptID string) error {
	return change(ctx, b, "asking for a removal", func(t Tx) {
		t.mustSee("attempt", attemptID)
		a := mustFirstRow[task.Place](t, "attempt", attemptID,
			`SELECT machine_id, machine_name, root FROM attempts WHERE id = ?`, attemptID)
		if t.has(`FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE a.id = ? AND t.deleting_at IS NOT NULL`,
			attemptID) {
			t.putWork(&store.WorkRow{Kind: store.RemovalWork, Key: attemptID, Place: a.Key()})
		}
	})
}

// dropRemovals removes the requests of AskRemoval for a task.
func (t Tx) dropRemovals(taskID string) {
	t.Exec(`DELETE FROM work WHERE kind = '`+store.RemovalWork+`' AND key IN
		(SELECT id FROM attempts WHERE task_id = ?)`, taskID)
}

func (b board) Removal(ctx context.Context, attemptID string) (json.RawMessage, error) {
	return read(ctx, b, "looking for a removal", func(t Tx) json.RawMessage {
		t.mustSee("attempt", attemptID)
		result := *mustFirstRow[*string](t, "attempt", attemptID, `SELECT w.result FROM attempts a LEFT JOIN work w `+
			`ON w.kind = '`+store.RemovalWork+`' AND w.key = a.id WHERE a.id = ?`, attemptID)
		if result == nil {
			return nil
		}
		return json.RawMessage(*result)
	})
}
