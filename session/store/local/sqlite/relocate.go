package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/store/sqlstore"
)

// Relocate replaces each path of a repository, worktree or workspace by what to returns for it.
func (d *DB) Relocate(ctx context.Context, to func(path string) string) error {
	err := d.Transact(ctx, sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error { return relocate(d.Tx(ctx, q), to) })
	return wrap("correcting the paths on the task board", err)
}

func relocate(t sqlstore.Tx, to func(path string) string) error {
	for _, at := range [][2]string{{"repos", "path"}, {"attempt_repos", "repo_path"}, {"attempt_repos", "worktree"}, {"attempts", "workspace"}} {
		table, column := at[0], at[1]
		rows, err := sqlstore.List[struct {
			Rowid int64
			Path  string
		}](t, fmt.Sprintf(`SELECT rowid, %s AS path FROM %s`, column, table))
		if err != nil {
			return err
		}
		for _, row := range rows {
			if now := to(row.Path); now != row.Path {
				if _, err := t.Exec(fmt.Sprintf(`UPDATE %s SET %s = ? WHERE rowid = ?`, table, column), now, row.Rowid); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// imported are the tables that Import copies, in an order in which rows come after those that they
// name. Requests are not copied, nor executions elsewhere that have not ended: anybody may have
// written them, and servers would go on with them.
var imported = []string{"projects", "repos", "tasks", "task_dependencies", "attempts", "attempt_repos", "sessions", "executions", "usages", "workflow_executions"}

// ErrOccupied reports that a board has tasks of its own, so that no other can be imported.
var ErrOccupied = errors.New("it has tasks already")

// Import copies the rows of the board in a file into this one, which must have no tasks, in one
// transaction: rows alone, so that no trigger or view in the file has an effect. What waits or runs
// becomes interrupted, with why, and queued follow-ups and deletions are dropped. to is that of
// Relocate. It does nothing if it finds a task of the file here: others have been
// deleted since an earlier import. The file must have the current version, and nobody may write to
// it. Errors: ErrOccupied; task.ErrDamaged for rows that a board cannot have.
func (d *DB) Import(ctx context.Context, file, why string, to func(path string) string) error {
	within := context.WithoutCancel(ctx)
	// A database cannot be attached within a transaction.
	err := d.write(ctx, member{synced: true, alone: true, change: func(q sqlstore.Querier) error {
		t := d.Tx(within, q)
		if _, err := t.Exec("PRAGMA trusted_schema = OFF"); err != nil {
			return err
		}
		if _, err := t.Exec("ATTACH ? AS earlier", Source(file, "ro")); err != nil {
			return err
		}
		_, err := t.Exec("BEGIN IMMEDIATE")
		if err == nil {
			if err = d.importRows(t, why, to); err == nil {
				_, err = t.Exec("COMMIT")
			}
			if err != nil {
				t.Exec("ROLLBACK")
			}
		}
		_, detached := t.Exec("DETACH earlier")
		return errors.Join(err, detached)
	}})
	return wrap("importing a task board", err)
}

func (d *DB) importRows(t sqlstore.Tx, why string, to func(path string) string) error {
	var here, there, same int
	if _, err := t.First(`SELECT (SELECT count(*) FROM main.tasks), (SELECT count(*) FROM earlier.tasks),
		(SELECT count(*) FROM earlier.tasks WHERE id IN (SELECT id FROM main.tasks))`, nil, &here, &there, &same); err != nil {
		return err
	}
	switch {
	case there == 0, same > 0:
		return nil
	case here > 0:
		return ErrOccupied
	}
	if _, err := t.Exec(`DELETE FROM main.projects`); err != nil {
		return err
	}
	for _, table := range imported {
		columns, err := sqlstore.List[string](t, `SELECT name FROM pragma_table_info(?1, 'main') WHERE NOT (?1 = 'usages' AND name = 'seq')`, table)
		if err != nil {
			return err
		}
		names := strings.Join(columns, ", ")
		copied := fmt.Sprintf(`INTO main.%s (%s) SELECT %s FROM earlier.%s`, table, names, names, table)
		if table == "workflow_executions" { // those of this board stay
			_, err = t.Exec(`INSERT OR IGNORE ` + copied + ` WHERE ended_at IS NOT NULL`)
		} else {
			_, err = t.Exec(`INSERT ` + copied)
		}
		if err != nil {
			return err
		}
		if columns[0] != "id" || table == "workflow_executions" {
			continue
		}
		// Ids become parts of paths and arguments of agents.
		if n, err := t.Count(fmt.Sprintf(`SELECT count(*) FROM main.%s WHERE length(id) <> 36 OR id GLOB '*[^0-9a-f-]*' OR id GLOB '-*'`, table)); err != nil || n > 0 {
			return errors.Join(err, fmt.Errorf("%w: %d ids in %s are not what deepwork makes", task.ErrDamaged, n, table))
		}
	}
	if n, err := t.Count(`SELECT count(*) FROM main.attempt_repos WHERE base_commit GLOB '*[^0-9a-f]*'`); err != nil || n > 0 {
		return errors.Join(err, fmt.Errorf("%w: %d attempts began at what is no commit", task.ErrDamaged, n))
	}
	const open = ` WHERE state IN ('waiting', 'starting', 'running')`
	for _, u := range []struct {
		query string
		args  []any
	}{
		{`INSERT INTO usages (execution_id, attempt_id, executor, ended_at) SELECT e.id, a.id, a.executor, max(?, e.started_at)
			FROM executions e JOIN attempts a ON a.id = e.attempt_id WHERE e.ended_at IS NULL AND e.started_at IS NOT NULL`, []any{t.Now}},
		{`UPDATE executions SET state = 'interrupted', owner = NULL, ended_at = max(?, created_at)` + open, []any{t.Now}},
		{`UPDATE attempts SET state = 'interrupted', error = ?, updated_at = max(?, updated_at)` + open, []any{why, t.Now}},
		{`UPDATE attempts SET run = NULL`, nil},
		{`UPDATE executions SET pid = NULL`, nil},
		{`UPDATE sessions SET queued_prompt = NULL, queued_variant = NULL, queued_at = NULL`, nil},
		{`UPDATE tasks SET deleting_at = NULL, auto_start = FALSE`, nil},
	} {
		if _, err := t.Exec(u.query, u.args...); err != nil {
			return err
		}
	}
	if err := relocate(t, to); err != nil {
		return err
	}
	found, err := d.Damage(t)
	if err == nil && len(found) == 0 {
		found, err = t.Flaws()
	}
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: %s", task.ErrDamaged, found[0].What)
	}
	return err
}
