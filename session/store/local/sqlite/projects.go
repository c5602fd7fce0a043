package sqlite

import (
	"context"
	"slices"
	"time"

	"deepwork/catalog/task"
)

// A board is a DB as the task board; store.Board documents its methods.
type board struct{ *DB }

// newest completes the query of a list, newest first, from the position of a
// task.Listing: one row more than the page has tells whether there is a next one.
const newest = ` AND created_at <= ? AND (created_at < ? OR id > ?) ORDER BY created_at DESC, id LIMIT ?`

func position(l task.Listing, before ...any) []any {
	return append(before, l.CreatedAt, l.CreatedAt, l.ID, l.Limit+1)
}

const (
	projectColumns = `SELECT id, name, root, created_at, updated_at FROM projects `
	repoColumns    = `SELECT id, project_id, name, path, created_at, updated_at FROM repos `
)

func scanProject(scan scanner) (p task.Project, err error) {
	err = scan(&p.ID, &p.Name, &p.Root, moment{&p.CreatedAt}, moment{&p.UpdatedAt})
	return p, err
}

func scanRepo(scan scanner) (r task.Repo, err error) {
	err = scan(&r.ID, &r.ProjectID, &r.Name, &r.Path, moment{&r.CreatedAt}, moment{&r.UpdatedAt})
	return r, err
}

// A page is what a list method returns, before it is cut.
type page[T any] struct {
	rows  []T
	total int
}

func (b board) Projects(ctx context.Context, p task.Page) ([]task.Project, int, string, error) {
	l, err := p.Listing("projects")
	if err != nil {
		return nil, 0, "", err
	}
	got, err := read(ctx, b.DB, "listing projects", func(t tx) (r page[task.Project], err error) {
		if r.total, err = t.count(`SELECT count(*) FROM projects WHERE listed = 1`); err == nil {
			r.rows, err = list(t, scanProject, projectColumns+`WHERE listed = 1`+newest, position(l)...)
		}
		return r, err
	})
	rows, next := task.Cut(l, got.rows, func(p task.Project) (time.Time, string) { return p.CreatedAt, p.ID })
	return rows, got.total, next, err
}

func (b board) Project(ctx context.Context, id string) (*task.Project, error) {
	return read(ctx, b.DB, "reading a project", func(t tx) (*task.Project, error) { return t.project(id) })
}

func (t tx) project(id string) (*task.Project, error) {
	return only(t, "project", id, scanProject, projectColumns+`WHERE id = ?`, id)
}

func (b board) Repos(ctx context.Context, projectID string, p task.Page) ([]task.Repo, int, string, error) {
	l, err := p.Listing("repos", projectID)
	if err != nil {
		return nil, 0, "", err
	}
	got, err := read(ctx, b.DB, "listing repos", func(t tx) (r page[task.Repo], err error) {
		if err = t.exists("projects", "project", projectID); err != nil {
			return r, err
		}
		if r.total, err = t.count(`SELECT count(*) FROM repos WHERE project_id = ? AND listed = 1`, projectID); err == nil {
			r.rows, err = list(t, scanRepo, repoColumns+`WHERE project_id = ? AND listed = 1`+newest, position(l, projectID)...)
		}
		return r, err
	})
	rows, next := task.Cut(l, got.rows, func(r task.Repo) (time.Time, string) { return r.CreatedAt, r.ID })
	return rows, got.total, next, err
}

func (b board) Repo(ctx context.Context, id string) (*task.Repo, error) {
	return read(ctx, b.DB, "reading a repo", func(t tx) (*task.Repo, error) {
		return only(t, "repo", id, scanRepo, repoColumns+`WHERE id = ? AND listed = 1`, id)
	})
}

func (b board) SyncProjects(ctx context.Context, all []task.ProjectSpec) error {
	const doing = "updating the projects of the board"
	if err := task.CheckProjects(all); err != nil {
		return wrap(doing, err)
	}
	now := b.stamp()
	changes, err := read(ctx, b.DB, doing, func(t tx) (int, error) {
		s := syncing{t: t, now: now}
		err := s.projects(all)
		return s.changes, err
	})
	if err != nil || changes == 0 {
		return err
	}
	return change(ctx, b.DB, doing, func(t tx) error {
		s := syncing{t: t, now: now, write: true}
		return s.projects(all)
	})
}

// A syncing compares the board with the config, and changes what differs if it
// is to write.
type syncing struct {
	t       tx
	now     string
	write   bool
	changes int
}

func (s *syncing) change(query string, args ...any) error {
	s.changes++
	if !s.write {
		return nil
	}
	_, err := s.t.exec(query, args...)
	return err
}

// A known is a row of projects or repos, or what the config has in its place.
type known struct {
	id, name, path string
	root, listed   bool
}

func scanKnown(scan scanner) (k known, err error) {
	err = scan(&k.id, &k.name, &k.path, &k.root, &k.listed)
	return k, err
}

func (s *syncing) projects(all []task.ProjectSpec) error {
	var want []known
	for _, p := range all {
		want = append(want, known{name: p.Name, root: p.Root})
	}
	gone, err := s.reconcile("projects", `SELECT id, name, '', root, listed FROM projects`, nil, want, func(k known) error {
		return s.change(`INSERT INTO projects (id, name, root, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`, k.id, k.name, k.root, s.now, s.now)
	})
	for i := range all {
		if err == nil {
			err = s.repos(want[i].id, all[i].Repos)
		}
	}
	for _, k := range gone {
		if err == nil {
			err = s.repos(k.id, nil)
		}
	}
	return err
}

func (s *syncing) repos(projectID string, all []task.RepoSpec) error {
	var want []known
	for _, r := range all {
		want = append(want, known{name: r.Name, path: r.Path})
	}
	_, err := s.reconcile("repos", `SELECT id, name, path, 0, listed FROM repos WHERE project_id = ?`, []any{projectID}, want, func(k known) error {
		return s.change(`INSERT INTO repos (id, project_id, name, path, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
			k.id, projectID, k.name, k.path, s.now, s.now)
	})
	return err
}

// reconcile makes the rows of a table what is wanted, sets the ids of that, and returns
// the rows that are not listed any more.
func (s *syncing) reconcile(table, query string, args []any, want []known, insert func(known) error) (gone []known, err error) {
	rows, err := list(s.t, scanKnown, query, args...)
	for i := range want {
		w := &want[i]
		at := slices.IndexFunc(rows, func(k known) bool { return k.root == w.root && (w.root || k.name == w.name) })
		switch {
		case err != nil:
		case at < 0:
			if w.id, err = newID(); err == nil {
				err = insert(*w)
			}
		default:
			row := rows[at]
			rows = slices.Delete(rows, at, at+1)
			if w.id = row.id; !row.listed || row.name != w.name {
				err = s.change(`UPDATE `+table+` SET name = ?, listed = 1, updated_at = ? WHERE id = ?`, w.name, s.now, w.id)
			}
			if row.path != w.path && err == nil {
				err = s.change(`UPDATE `+table+` SET path = ?, updated_at = ? WHERE id = ?`, w.path, s.now, w.id)
			}
		}
	}
	for _, k := range rows {
		if k.listed && err == nil {
			gone = append(gone, k)
			err = s.change(`UPDATE `+table+` SET listed = 0, updated_at = ? WHERE id = ?`, s.now, k.id)
		}
	}
	return gone, err
}
