package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"deepwork/catalog/task"
)

// Relocate replaces each path of a repository, worktree or workspace by what to returns for it.
func (d *DB) Relocate(ctx context.Context, to func(path string) string) error {
	return change(ctx, d, "correcting the paths on the task board", func(t tx) error { return t.relocate(to) })
}

func (t tx) relocate(to func(path string) string) error {
	for _, at := range [][2]string{{"repos", "path"}, {"attempt_repos", "repo_path"}, {"attempt_repos", "worktree"}, {"attempts", "workspace"}} {
		table, column := at[0], at[1]
		rows, err := list[struct {
			Rowid int64
			Path  string
		}](t, fmt.Sprintf(`SELECT rowid, %s AS path FROM %s`, column, table))
		if err != nil {
			return err
		}
		for _, row := range rows {
			if now := to(row.Path); now != row.Path {
				if _, err := t.exec(fmt.Sprintf(`UPDATE %s SET %s = ? WHERE rowid = ?`, table, column), now, row.Rowid); err != nil {
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
var imported = []string{"projects", "repos", "tasks", "attempts", "attempt_repos", "sessions", "executions", "workflow_executions"}

// ErrOccupied reports that a board has tasks of its own, so that no other can be imported.
var ErrOccupied = errors.New("it has tasks already")

// Import copies the rows of the board in a file into this one, which must have no tasks, in one
// transaction: rows alone, so that no trigger or view in the file has an effect. What waits or runs
// becomes interrupted, with why, and queued follow-ups and deletions are dropped. to is that of
// Relocate. It does nothing if it finds a task of the file here: others have been
// deleted since an earlier import. The file must have the current version, and nobody may write to
// it. Errors: ErrOccupied; task.ErrDamaged for rows that a board cannot have.
func (d *DB) Import(ctx context.Context, file, why string, to func(path string) string) error {
	_, err := transact(ctx, context.WithoutCancel(ctx), d, "importing a task board", single, func(t tx) (none struct{}, err error) {
		if _, err := t.exec("PRAGMA trusted_schema = OFF"); err != nil {
			return none, err
		}
		if _, err := t.exec("ATTACH ? AS earlier", source(file, "ro")); err != nil {
			return none, err
		}
		if _, err = t.exec("BEGIN IMMEDIATE"); err == nil {
			if err = t.importRows(why, to); err == nil {
				_, err = t.exec("COMMIT")
			}
			if err != nil {
				t.exec("ROLLBACK")
			}
		}
		_, detached := t.exec("DETACH earlier")
		return none, errors.Join(err, detached)
	})
	return err
}

func (t tx) importRows(why string, to func(path string) string) error {
	var here, there, same int
	if _, err := t.first(`SELECT (SELECT count(*) FROM main.tasks), (SELECT count(*) FROM earlier.tasks),
		(SELECT count(*) FROM earlier.tasks WHERE id IN (SELECT id FROM main.tasks))`, nil, &here, &there, &same); err != nil {
		return err
	}
	switch {
	case there == 0, same > 0:
		return nil
	case here > 0:
		return ErrOccupied
	}
	if _, err := t.exec(`DELETE FROM main.projects`); err != nil {
		return err
	}
	for _, table := range imported {
		columns, err := list[string](t, `SELECT name FROM pragma_table_info(?, 'main')`, table)
		if err != nil {
			return err
		}
		names := strings.Join(columns, ", ")
		copied := fmt.Sprintf(`INTO main.%s (%s) SELECT %s FROM earlier.%s`, table, names, names, table)
		if table == "workflow_executions" { // those of this board stay
			_, err = t.exec(`INSERT OR IGNORE ` + copied + ` WHERE ended_at IS NOT NULL`)
		} else {
			_, err = t.exec(`INSERT ` + copied)
		}
		if err != nil {
			return err
		}
		if columns[0] != "id" || table == "workflow_executions" {
			continue
		}
		// Ids become parts of paths and arguments of agents.
		if n, err := t.count(fmt.Sprintf(`SELECT count(*) FROM main.%s WHERE length(id) <> 36 OR id GLOB '*[^0-9a-f-]*' OR id GLOB '-*'`, table)); err != nil || n > 0 {
			return errors.Join(err, fmt.Errorf("%w: %d ids in %s are not what deepwork makes", task.ErrDamaged, n, table))
		}
	}
	if n, err := t.count(`SELECT count(*) FROM main.attempt_repos WHERE base_commit GLOB '*[^0-9a-f]*'`); err != nil || n > 0 {
		return errors.Join(err, fmt.Errorf("%w: %d attempts began at what is no commit", task.ErrDamaged, n))
	}
	const open = ` WHERE state IN ('waiting', 'starting', 'running')`
	for _, u := range []struct {
		query string
		args  []any
	}{
		{`UPDATE executions SET state = 'interrupted', owner = NULL, ended_at = max(?, created_at)` + open, []any{t.now}},
		{`UPDATE attempts SET state = 'interrupted', error = ?, updated_at = max(?, updated_at)` + open, []any{why, t.now}},
		{`UPDATE executions SET pid = NULL`, nil},
		{`UPDATE sessions SET queued_prompt = NULL, queued_variant = NULL, queued_at = NULL`, nil},
		{`UPDATE tasks SET deleting_at = NULL`, nil},
	} {
		if _, err := t.exec(u.query, u.args...); err != nil {
			return err
		}
	}
	if err := t.relocate(to); err != nil {
		return err
	}
	found, err := t.flaws(flaws)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: %s", task.ErrDamaged, found[0].What)
	}
	return err
}
