package sqlite

import (
	"context"
	"fmt"

	"deepwork/session/store/sqlstore"
)

// Relocate replaces each path of a repository, worktree, workspace or session by what to returns for it.
func (d *DB) Relocate(ctx context.Context, to func(path string) string) error {
	err := d.Transact(ctx, sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error { return relocate(d.Tx(ctx, q), to) })
	return wrap("correcting the paths on the task board", err)
}

func relocate(t sqlstore.Tx, to func(path string) string) error {
	for _, at := range [][2]string{{"repos", "path"}, {"attempt_repos", "repo_path"}, {"attempt_repos", "worktree"}, {"attempts", "workspace"}, {"workflow_sessions", "root"}} {
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
