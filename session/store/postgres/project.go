package postgres

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"deepwork/catalog/task"
)

// A Repository identifies a project's repository on all machines. Either field may be empty.
type Repository struct {
	Remote     string // its URL
	RootCommit string // the hash of its first commit
}

func (r Repository) String() string {
	switch {
	case r == Repository{}:
		return "no repository"
	case r.Remote == "":
		return "the repository with the root commit " + r.RootCommit
	}
	return r.Remote
}

// normalized returns r with a remote, host/path, that is the same for all ways to reach it and has no
// credentials. A remote that is a folder is dropped: other machines have it elsewhere, or have another one
// there.
func (r Repository) normalized() Repository {
	host, path := "", ""
	if u, err := url.Parse(r.Remote); err == nil && u.Scheme != "" && u.Host != "" {
		host, path = u.Hostname(), u.Path
	} else if before, after, found := strings.Cut(r.Remote, ":"); found && len(before) > 1 &&
		!strings.ContainsAny(before, `/\`) && !strings.HasPrefix(after, "//") {
		// user@host:path
		host, path = before[strings.LastIndex(before, "@")+1:], after
	}
	r.Remote = ""
	path = strings.Trim(strings.TrimSuffix(strings.TrimSuffix(path, "/"), ".git"), "/")
	if host != "" && path != "" {
		r.Remote = strings.ToLower(host) + "/" + path
	}
	return r
}

// same reports whether both may be the same repository: they share a remote or a root commit.
func (r Repository) same(o Repository) bool {
	return r.Remote != "" && r.Remote == o.Remote || r.RootCommit != "" && r.RootCommit == o.RootCommit
}

// bind returns the scope of the project's name. The first use binds the name to the repository.
func (s *Store) bind(ctx context.Context) (scope int64, err error) {
	mine, first := s.o.Repository.normalized(), false
	if mine != (Repository{}) && !s.o.ReadOnly {
		n, err := s.exec(ctx,
			`INSERT INTO @scopes (name, remote, root_commit) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING`,
			s.o.Project, mine.Remote, mine.RootCommit)
		if err != nil {
			return 0, err
		}
		first = n > 0
	}

	var bound Repository
	found, err := s.first(ctx, `SELECT id, remote, root_commit FROM @scopes WHERE name = $1`, []any{s.o.Project},
		&scope, &bound.Remote, &bound.RootCommit)
	switch {
	case err != nil:
		return 0, err
	case !found && s.o.ReadOnly && mine != (Repository{}):
		return 0,
			fmt.Errorf("%w: it has no project %q yet, whose name the first server binds to this repository: start "+
				"one, or pass the --project that the other machines use", task.ErrNotFound, s.o.Project)
	case !found:
		return 0,
			fmt.Errorf("%w: it has no project %q, and the name cannot be bound here, since %s is %s: start in a "+
				"repository that has one", task.ErrNotFound, s.o.Project, s.o.Root, unidentified)
	}

	if err := s.refusal(bound); err != nil || s.o.Admit == nil {
		return scope, err
	}
	return scope, s.o.Admit(ctx, first)
}

// unidentified describes a folder whose Repository is zero.
const unidentified = "in no repository, or in one with neither its first commit nor a remote on another machine"

// refusal returns why this folder may not use the project's name, which is bound to a repository, or nil.
func (s *Store) refusal(bound Repository) error {
	switch mine := s.o.Repository.normalized(); {
	case mine.same(bound):
		return nil
	case mine == Repository{}:
		return fmt.Errorf("%w: the project %q there belongs to %v, and %s is %s: use a clone of that repository",
			task.ErrInvalid, s.o.Project, bound, s.o.Root, unidentified)
	default:
		return fmt.Errorf("%w: the project %q there belongs to %v, and this is %v: give this one another name by "+
			"--project, or in worker.projects for a worker", task.ErrInvalid, s.o.Project, bound, mine)
	}
}

// A Status describes the database and the project in it, for people.
type Status struct {
	Version    int    // of the schema; 0 means that it does not exist
	Latest     int    // the version that this program knows
	Repository string // to which the name of the project is bound; "" means none yet
	Refusal    error  // why this program cannot use the schema, or this folder the name; or nil

	Sessions, Active, Tasks, Attempts, Executions int // Executions are those of workflows elsewhere

	Places []Place // where the project is used
}

// Status describes the database and changes nothing. If the schema has another version than this program's,
// or the project's name is unknown, the rest is zero.
func (s *Store) Status(ctx context.Context) (st Status, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	st.Version, st.Latest, err = s.SchemaVersion(ctx)
	if err != nil || st.Version != st.Latest {
		st.Refusal = checkVersion(st.Version)
		return st, err
	}

	var scope int64
	var bound Repository
	found, err := s.first(ctx, `SELECT id, remote, root_commit FROM @scopes WHERE name = $1`, []any{s.o.Project},
		&scope, &bound.Remote, &bound.RootCommit)
	if err != nil || !found {
		return st, s.explain(err)
	}
	st.Repository = bound.String()
	st.Refusal = s.refusal(bound)
	_, err = s.first(ctx, `SELECT (SELECT count(*) FROM @workflow_sessions_all WHERE scope = $1),
		(SELECT count(*) FROM @workflow_sessions_all WHERE scope = $1 AND status = 'active'), (SELECT count(*) `+
		`FROM @tasks_all WHERE scope = $1),
		(SELECT count(*) FROM @attempts_all WHERE scope = $1), (SELECT count(*) FROM @workflow_executions_all `+
		`WHERE scope = $1)`,
		[]any{scope}, &st.Sessions, &st.Active, &st.Tasks, &st.Attempts, &st.Executions)
	if err == nil {
		st.Places, err = s.places(ctx, scope)
	}
	return st, s.explain(err)
}

// places returns the places where the project is used.
func (s *Store) places(ctx context.Context, scope int64) (all []Place, err error) {
	rows, err := s.pool.QueryContext(ctx,
		s.text(`SELECT machine, host, root FROM @places WHERE scope = $1 AND until > clock_timestamp() ORDER BY `+
			`host, root, machine`), scope)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p Place
		if err := rows.Scan(&p.Machine, &p.Host, &p.Root); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, rows.Err()
}
