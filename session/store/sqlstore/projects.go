package sqlstore

import (
	"context"
	"slices"
	"time"

	"deepwork/catalog/task"

	"github.com/google/uuid"
)

// newest completes the query of a list, newest first, from the position of a task.Listing. It reads one row
// more than the page, to find out whether there is a next page.
const newest = ` AND created_at <= ? AND (created_at < ? OR id > ?) ORDER BY created_at DESC, id LIMIT ?`

func position(l task.Listing, before ...any) []any {
	return append(before, l.CreatedAt, l.CreatedAt, l.ID, l.Limit+1)
}

const (
	projectColumns = `SELECT id, name, root, created_at, updated_at FROM projects `
	repoColumns    = `SELECT id, project_id, name, path, created_at, updated_at FROM repos `
)

// listPage reads a page of the list that scope names, with its filters, unless check fails, and the number of
// rows of all pages. next is the cursor for more.
func listPage[T any](
	ctx context.Context, v viewer, p task.Page, scope []string, at func(T) (time.Time, string), check func(Tx), count,
	query string, args ...any,
) (rows []T, total int, next string, err error) {
	l, err := p.Listing(scope...)
	if err != nil {
		return nil, 0, "", err
	}
	rows, err = read(ctx, v, "listing "+scope[0], func(t Tx) []T {
		check(t)
		total = t.count(count, args...)
		return List[T](t, query, position(l, args...)...)
	})
	if err != nil {
		return nil, 0, "", err
	}
	rows, next = task.Cut(l, rows, at)
	return rows, total, next, nil
}

func (b board) Projects(ctx context.Context, p task.Page) ([]task.Project, int, string, error) {
	return listPage(ctx, b, p, []string{"projects"}, func(p task.Project) (time.Time, string) {
		return p.CreatedAt, p.ID
	},
		func(Tx) {},
		`SELECT count(*) FROM projects WHERE listed`, projectColumns+`WHERE listed`+newest)
}

func (b board) Project(ctx context.Context, id string) (*task.Project, error) {
	return read(ctx, b, "reading a project", func(t Tx) *task.Project { return t.project(id) })
}

func (t Tx) project(id string) *task.Project {
	return mustFirstRow[task.Project](t, "project", id, projectColumns+`WHERE id = ?`, id)
}

// inProject returns a function that fails with ErrNotFound if there is no such project.
func inProject(id string) func(t Tx) {
	return func(t Tx) {
		if !t.has(`FROM projects WHERE id = ?`, id) {
			t.Fail(task.Missing("project", id))
		}
	}
}

func (b board) Repos(ctx context.Context, projectID string, p task.Page) ([]task.Repo, int, string, error) {
	all, total, next, err := listPage(ctx, b, p, []string{"repos", projectID}, func(r task.Repo) (time.Time, string) {
		return r.CreatedAt, r.ID
	},
		inProject(projectID),
		`SELECT count(*) FROM repos WHERE project_id = ? AND listed`,
		repoColumns+`WHERE project_id = ? AND listed`+newest, projectID)
	for i := range all {
		b.locate(&all[i])
	}
	return all, total, next, err
}

func (b board) Repo(ctx context.Context, id string) (*task.Repo, error) {
	return read(ctx, b, "reading a repo", func(t Tx) *task.Repo {
		r := mustFirstRow[task.Repo](t, "repo", id, repoColumns+`WHERE id = ? AND listed`, id)
		b.locate(r)
		return r
	})
}

// locate sets the path of a repository on this machine, if several machines share the database. It is "" if
// this machine's config does not have the repository, or SyncProjects did not get it.
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
	sync := func(write bool) func(t Tx) *syncing {
		return func(t Tx) *syncing {
			s := &syncing{
				t:      t,
				write:  write,
				add:    add,
				shared: b.o.Shared,
				last:   b.Synced(),
				paths:  make(map[string]string),
			}

			s.projects(all)
			return s
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
	add         bool // only add: keep what the config lacks
	shared      bool // no path is stored
	changes     int
	last, paths map[string]string // paths of repositories by their ids, from the last time and now
}

func (s *syncing) change(query string, args ...any) {
	s.changes++
	if s.write {
		s.t.Exec(query, args...)
	}
}

// A knownRow is a row of projects or repos, or its counterpart in the config.
type knownRow struct {
	ID, Name, Path string
	Root, Listed   bool
}

func (s *syncing) projects(all []task.ProjectSpec) {
	var want []knownRow
	for _, p := range all {
		want = append(want, knownRow{Name: p.Name, Root: p.Root})
	}
	gone := s.reconcile("projects", List[knownRow](s.t, `SELECT id, name, '' AS path, root, listed FROM projects`),
		want, func(k knownRow) {
			s.change(`INSERT INTO projects (id, name, root, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`, k.ID,
				k.Name, k.Root, s.t.Now, s.t.Now)
		})
	for i := range all {
		s.repos(want[i].ID, all[i].Repos)
	}
	for _, k := range gone {
		s.repos(k.ID, nil)
	}
}

func (s *syncing) repos(projectID string, all []task.RepoSpec) {
	var want []knownRow
	for _, r := range all {
		want = append(want, knownRow{Name: r.Name, Path: r.Path})
	}

	rows := List[knownRow](s.t, `SELECT id, name, path, FALSE AS root, listed FROM repos WHERE project_id = ?`,
		projectID)
	s.reconcile("repos", rows, want, func(k knownRow) {
		s.change(`INSERT INTO repos (id, project_id, name, path, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
			k.ID, projectID, k.Name, s.stored(k.Path), s.t.Now, s.t.Now)
	})
	for _, k := range want {
		s.paths[k.ID] = k.Path
	}
}

// stored returns a path as the database has it.
func (s *syncing) stored(path string) string {
	if s.shared {
		return ""
	}
	return path
}

// reconcile updates the rows of a table to want, sets the ids in want, and returns the rows that are no
// longer listed.
func (s *syncing) reconcile(table string, rows, want []knownRow, insert func(knownRow)) (gone []knownRow) {
	for i := range want {
		w := &want[i]
		at := slices.IndexFunc(rows, func(k knownRow) bool { return k.Root == w.Root && (w.Root || k.Name == w.Name) })
		if at < 0 {
			w.ID = uuid.NewString()
			insert(*w)
			continue
		}
		row := rows[at]
		rows = slices.Delete(rows, at, at+1)
		if path, known := s.last[row.ID]; s.shared && known {
			row.Path = path
		} else if s.shared {
			row.Path = w.Path
		}
		w.ID = row.ID
		if !row.Listed || row.Name != w.Name && !s.add {
			s.change(`UPDATE `+table+` SET name = ?, listed = TRUE, updated_at = ? WHERE id = ?`, w.Name, s.t.Now, w.ID)
		}
		if row.Path != w.Path {
			s.change(`UPDATE `+table+` SET path = ?, updated_at = ? WHERE id = ?`, s.stored(w.Path), s.t.Now, w.ID)
		}
	}
	for _, k := range rows {
		if k.Listed && !s.add {
			gone = append(gone, k)
			s.change(`UPDATE `+table+` SET listed = FALSE, updated_at = ? WHERE id = ?`, s.t.Now, k.ID)
		}
	}
	return gone
}
