package postgres

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"deepwork/catalog/task"
)

// A Repository identifies a project's repository on all machines. Either may be empty.
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

// normalized returns r with a remote that is the same for all ways to reach it, host/path, and has no
// credentials. A remote that is a folder is dropped: other machines have it elsewhere, or another one.
func (r Repository) normalized() Repository {
	host, path := "", ""
	if u, err := url.Parse(r.Remote); err == nil && u.Scheme != "" && u.Host != "" {
		host, path = u.Hostname(), u.Path
	} else if before, after, found := strings.Cut(r.Remote, ":"); found && len(before) > 1 && !strings.ContainsAny(before, `/\`) && !strings.HasPrefix(after, "//") { // user@host:path
		host, path = before[strings.LastIndex(before, "@")+1:], after
	}
	r.Remote = ""
	if path = strings.Trim(strings.TrimSuffix(strings.TrimSuffix(path, "/"), ".git"), "/"); host != "" && path != "" {
		r.Remote = strings.ToLower(host) + "/" + path
	}
	return r
}

// same reports whether both may be the same repository: they have a remote or a root commit in common.
func (r Repository) same(o Repository) bool {
	return r.Remote != "" && r.Remote == o.Remote || r.RootCommit != "" && r.RootCommit == o.RootCommit
}

// bind returns the scope of the project's name, which the first use binds to the repository.
func (s *Store) bind(ctx context.Context) (scope int64, err error) {
	mine := s.o.Repository.normalized()
	if mine != (Repository{}) && !s.o.ReadOnly {
		_, err := s.exec(ctx, `INSERT INTO @scopes (name, remote, root_commit) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING`, s.o.Project, mine.Remote, mine.RootCommit)
		if err != nil {
			return 0, err
		}
	}
	var bound Repository
	found, err := s.first(ctx, `SELECT id, remote, root_commit FROM @scopes WHERE name = $1`, []any{s.o.Project}, &scope, &bound.Remote, &bound.RootCommit)
	switch {
	case err != nil:
		return 0, err
	case !found && s.o.ReadOnly && mine != (Repository{}):
		return 0, fmt.Errorf("%w: it has no project %q yet, whose name the first server binds to this repository: start one, or pass the --project that the other machines use", task.ErrNotFound, s.o.Project)
	case !found:
		return 0, fmt.Errorf("%w: it has no project %q, and the name cannot be bound here, since %s is %s: start in a repository that has one", task.ErrNotFound, s.o.Project, s.o.Root, unidentified)
	}
	return scope, s.refusal(bound)
}

// unidentified describes a folder whose Repository is zero.
const unidentified = "in no repository, or in one with neither its first commit nor a remote on another machine"

// refusal returns why this folder may not use the project's name, which is bound to a repository; nil if
// it may.
func (s *Store) refusal(bound Repository) error {
	switch mine := s.o.Repository.normalized(); {
	case mine.same(bound):
		return nil
	case mine == Repository{}:
		return fmt.Errorf("%w: the project %q there belongs to %v, and %s is %s: use a clone of that repository", task.ErrInvalid, s.o.Project, bound, s.o.Root, unidentified)
	default:
		return fmt.Errorf("%w: the project %q there belongs to %v, and this is %v: give this one another name by --project, or in worker.projects for a worker", task.ErrInvalid, s.o.Project, bound, mine)
	}
}
