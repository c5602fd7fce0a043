package sqlstore

import (
	"context"
	"slices"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// A board is a Store as the task board, for one caller or, if who is nil, for everybody; store.Board
// documents its methods.
type board struct {
	*Store
	who *session.Caller
}

func (b board) view() (*Store, *session.Caller) { return b.Store, b.who }

func (b board) For(who session.Caller) store.View { return board{b.Store, &who} }

// newest completes the query of a list, newest first, from the position of a task.Listing: one row
// more than the page shows whether there is a next page.
const newest = ` AND created_at <= ? AND (created_at < ? OR id > ?) ORDER BY created_at DESC, id LIMIT ?`

func position(l task.Listing, before ...any) []any {
	return append(before, l.CreatedAt, l.CreatedAt, l.ID, l.Limit+1)
}

const (
	projectColumns = `SELECT id, name, root, created_at, updated_at FROM projects `
	repoColumns    = `SELECT id, project_id, name, path, created_at, updated_at FROM repos `
)

// listPage reads a page of the list that scope names, with its filters, if check finds no fault,
// and the number of rows of all pages; next is the cursor for more.
func listPage[T any](ctx context.Context, v viewer, p task.Page, scope []string, at func(T) (time.Time, string), check func(Tx) error, count, query string, args ...any) (rows []T, total int, next string, err error) {
	l, err := p.Listing(scope...)
	if err != nil {
		return nil, 0, "", err
	}
	rows, err = read(ctx, v, "listing "+scope[0], func(t Tx) (rows []T, err error) {
		if err = check(t); err != nil {
			return nil, err
		}
		if total, err = t.Count(count, args...); err != nil {
			return nil, err
		}
		return List[T](t, query, position(l, args...)...)
	})
	if err != nil {
		return nil, 0, "", err
	}
	rows, next = task.Cut(l, rows, at)
	return rows, total, next, nil
}

func (b board) Projects(ctx context.Context, p task.Page) ([]task.Project, int, string, error) {
	return listPage(ctx, b, p, []string{"projects"}, func(p task.Project) (time.Time, string) { return p.CreatedAt, p.ID },
		func(Tx) error { return nil },
		`SELECT count(*) FROM projects WHERE listed`, projectColumns+`WHERE listed`+newest)
}

func (b board) Project(ctx context.Context, id string) (*task.Project, error) {
	return read(ctx, b, "reading a project", func(t Tx) (*task.Project, error) { return t.project(id) })
}

func (t Tx) project(id string) (*task.Project, error) {
	return only[task.Project](t, "project", id, projectColumns+`WHERE id = ?`, id)
}

func (b board) Repos(ctx context.Context, projectID string, p task.Page) ([]task.Repo, int, string, error) {
	all, total, next, err := listPage(ctx, b, p, []string{"repos", projectID}, func(r task.Repo) (time.Time, string) { return r.CreatedAt, r.ID },
		func(t Tx) error { return t.exists("projects", "project", projectID) },
		`SELECT count(*) FROM repos WHERE project_id = ? AND listed`, repoColumns+`WHERE project_id = ? AND listed`+newest, projectID)
	for i := range all {
		b.locate(&all[i])
	}
	return all, total, next, err
}

func (b board) Repo(ctx context.Context, id string) (*task.Repo, error) {
	return read(ctx, b, "reading a repo", func(t Tx) (*task.Repo, error) {
		r, err := only[task.Repo](t, "repo", id, repoColumns+`WHERE id = ? AND listed`, id)
		if err == nil {
			b.locate(r)
		}
		return r, err
	})
}

// locate sets the path of a repository on this machine, if the database is of several: "" if the
// config of this machine does not have it, or was not given to SyncProjects.
func (s *Store) locate(r *task.Repo) {
	if s.o.Shared {
		r.Path = s.Synced()[r.ID]
	}
}

// Synced implements store.Board.
func (s *Store) Synced() map[string]string {
	if paths := s.paths.Load(); paths != nil {
		return *paths
	}
	return nil
}

func (b board) SyncProjects(ctx context.Context, all []task.ProjectSpec, add bool) error {
	const doing = "updating the projects of the board"
	sync := func(write bool) func(t Tx) (*syncing, error) {
		return func(t Tx) (*syncing, error) {
			s := &syncing{t: t, write: write, add: add, shared: b.o.Shared, last: b.Synced(), paths: make(map[string]string)}
			return s, s.projects(all)
		}
	}
	s, err := read(ctx, b, doing, sync(false))
	if err == nil && s.changes > 0 {
		s, err = write(ctx, b, doing, sync(true))
	}
	if err == nil {
		b.paths.Store(&s.paths)
	}
	return err
}

// A syncing compares the board with the config, and applies the differences if it may write.
type syncing struct {
	t           Tx
	write       bool
	add         bool // only: what the config lacks stays, and other names do
	shared      bool // no path is stored
	changes     int
	last, paths map[string]string // of repos, by their ids: those of the last time, and now
}

func (s *syncing) change(query string, args ...any) error {
	s.changes++
	if !s.write {
		return nil
	}
	_, err := s.t.Exec(query, args...)
	return err
}

// A known is a row of projects or repos, or its counterpart in the config.
type known struct {
	ID, Name, Path string
	Root, Listed   bool
}

func (s *syncing) projects(all []task.ProjectSpec) error {
	var want []known
	for _, p := range all {
		want = append(want, known{Name: p.Name, Root: p.Root})
	}
	gone, err := s.reconcile("projects", `SELECT id, name, '' AS path, root, listed FROM projects`, nil, want, func(k known) error {
		return s.change(`INSERT INTO projects (id, name, root, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`, k.ID, k.Name, k.Root, s.t.Now, s.t.Now)
	})
	for i := range all {
		if err == nil {
			err = s.repos(want[i].ID, all[i].Repos)
		}
	}
	for _, k := range gone {
		if err == nil {
			err = s.repos(k.ID, nil)
		}
	}
	return err
}

func (s *syncing) repos(projectID string, all []task.RepoSpec) error {
	var want []known
	for _, r := range all {
		want = append(want, known{Name: r.Name, Path: r.Path})
	}
	_, err := s.reconcile("repos", `SELECT id, name, path, FALSE AS root, listed FROM repos WHERE project_id = ?`, []any{projectID}, want, func(k known) error {
		return s.change(`INSERT INTO repos (id, project_id, name, path, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
			k.ID, projectID, k.Name, s.stored(k.Path), s.t.Now, s.t.Now)
	})
	for _, k := range want {
		s.paths[k.ID] = k.Path
	}
	return err
}

// stored returns what the database has of a path.
func (s *syncing) stored(path string) string {
	if s.shared {
		return ""
	}
	return path
}

// reconcile updates the rows of a table to wanted, sets the ids of wanted, and returns the rows
// that are no longer listed.
func (s *syncing) reconcile(table, query string, args []any, want []known, insert func(known) error) (gone []known, err error) {
	rows, err := List[known](s.t, query, args...)
	for i := range want {
		w := &want[i]
		at := slices.IndexFunc(rows, func(k known) bool { return k.Root == w.Root && (w.Root || k.Name == w.Name) })
		switch {
		case err != nil:
		case at < 0:
			w.ID = uuid.NewString()
			err = insert(*w)
		default:
			row := rows[at]
			if path, known := s.last[row.ID]; s.shared && known {
				row.Path = path
			} else if s.shared {
				row.Path = w.Path
			}
			rows = slices.Delete(rows, at, at+1)
			if w.ID = row.ID; !row.Listed || row.Name != w.Name && !s.add {
				err = s.change(`UPDATE `+table+` SET name = ?, listed = TRUE, updated_at = ? WHERE id = ?`, w.Name, s.t.Now, w.ID)
			}
			if row.Path != w.Path && err == nil {
				err = s.change(`UPDATE `+table+` SET path = ?, updated_at = ? WHERE id = ?`, s.stored(w.Path), s.t.Now, w.ID)
			}
		}
	}
	for _, k := range rows {
		if k.Listed && !s.add && err == nil {
			gone = append(gone, k)
			err = s.change(`UPDATE `+table+` SET listed = FALSE, updated_at = ? WHERE id = ?`, s.t.Now, k.ID)
		}
	}
	return gone, err
}
