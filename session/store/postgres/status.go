package postgres

import (
	"context"
	"database/sql"
)

// A Status describes the database and the project in it for people.
type Status struct {
	Version    int    // of the schema; 0 means that the schema does not exist
	Latest     int    // the version that this program knows
	Repository string // to which the name of the project is bound; "" means none yet
	Refusal    error  // why this folder may not use the name; nil if it may

	Sessions, Active, Tasks, Attempts, Executions int // Executions are those of workflows elsewhere

	Places []Place // where the project is used
}

// Status returns what is there, and changes nothing. If the schema has another version than this
// program's, or the name of the project is unknown, the rest is zero.
func (s *Store) Status(ctx context.Context) (st Status, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if st.Version, st.Latest, err = s.SchemaVersion(ctx); err != nil || st.Version != st.Latest {
		return st, err
	}
	var scope int64
	var bound Repository
	found, err := s.first(ctx, `SELECT id, remote, root_commit FROM @scopes WHERE name = $1`, []any{s.o.Project}, &scope, &bound.Remote, &bound.RootCommit)
	if err != nil || !found {
		return st, s.explain(err)
	}
	st.Repository = bound.String()
	st.Refusal = s.refusal(bound)
	_, err = s.first(ctx, `SELECT (SELECT count(*) FROM @workflow_sessions_all WHERE scope = $1),
		(SELECT count(*) FROM @workflow_sessions_all WHERE scope = $1 AND status = 'active'), (SELECT count(*) FROM @tasks_all WHERE scope = $1),
		(SELECT count(*) FROM @attempts_all WHERE scope = $1), (SELECT count(*) FROM @workflow_executions_all WHERE scope = $1)`,
		[]any{scope}, &st.Sessions, &st.Active, &st.Tasks, &st.Attempts, &st.Executions)
	if err == nil {
		st.Places, err = list(ctx, s, func(rows *sql.Rows, p *Place) error { return rows.Scan(&p.Machine, &p.Host, &p.Root) },
			`SELECT machine, host, root FROM @places WHERE scope = $1 AND until > clock_timestamp() ORDER BY host, root, machine`, scope)
	}
	return st, s.explain(err)
}
