package sqlite

import (
	"context"
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

// A known is a row of projects or repos.
type known struct {
	id, name, path string
	root, listed   bool
}

func scanKnown(scan scanner) (k known, err error) {
	err = scan(&k.id, &k.name, &k.path, &k.root, &k.listed)
	return k, err
}

func (s *syncing) projects(all []task.ProjectSpec) error {
	rows, err := list(s.t, scanKnown, `SELECT id, name, '', root, listed FROM projects`)
	if err != nil {
		return err
	}
	kept := make(map[string]bool)
	for _, spec := range all {
		var row known
		for _, k := range rows {
			if k.root == spec.Root && (spec.Root || k.name == spec.Name) {
				row = k
			}
		}
		switch {
		case row.id == "":
			if row.id, err = newID(); err != nil {
				return err
			}
			err = s.change(`INSERT INTO projects (id, name, root, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`,
				row.id, spec.Name, spec.Root, s.now, s.now)
		case !row.listed || row.name != spec.Name:
			err = s.change(`UPDATE projects SET name = ?, listed = 1, updated_at = ? WHERE id = ?`, spec.Name, s.now, row.id)
		}
		if err == nil {
			err = s.repos(row.id, spec.Repos)
		}
		if err != nil {
			return err
		}
		kept[row.id] = true
	}
	for _, k := range rows {
		if k.listed && !kept[k.id] {
			if err := s.change(`UPDATE projects SET listed = 0, updated_at = ? WHERE id = ?`, s.now, k.id); err != nil {
				return err
			}
			if err := s.repos(k.id, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *syncing) repos(projectID string, all []task.RepoSpec) error {
	rows, err := list(s.t, scanKnown, `SELECT id, name, path, 0, listed FROM repos WHERE project_id = ?`, projectID)
	if err != nil {
		return err
	}
	kept := make(map[string]bool)
	for _, spec := range all {
		var row known
		for _, k := range rows {
			if k.name == spec.Name {
				row = k
			}
		}
		switch {
		case row.id == "":
			if row.id, err = newID(); err != nil {
				return err
			}
			err = s.change(`INSERT INTO repos (id, project_id, name, path, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
				row.id, projectID, spec.Name, spec.Path, s.now, s.now)
		case !row.listed || row.path != spec.Path:
			err = s.change(`UPDATE repos SET path = ?, listed = 1, updated_at = ? WHERE id = ?`, spec.Path, s.now, row.id)
		}
		if err != nil {
			return err
		}
		kept[row.id] = true
	}
	for _, k := range rows {
		if k.listed && !kept[k.id] {
			if err := s.change(`UPDATE repos SET listed = 0, updated_at = ? WHERE id = ?`, s.now, k.id); err != nil {
				return err
			}
		}
	}
	return nil
}
