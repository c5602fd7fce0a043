package task

import (
	"context"
	"fmt"
)

const projectColumns = `id, name, root, created_at, updated_at`

func scanProject(scan scanner) (p Project, err error) {
	err = scan(&p.ID, &p.Name, &p.Root, moment{&p.CreatedAt}, moment{&p.UpdatedAt})
	return p, err
}

const repoColumns = `id, project_id, name, path, created_at, updated_at`

func scanRepo(scan scanner) (r Repo, err error) {
	err = scan(&r.ID, &r.ProjectID, &r.Name, &r.Path, moment{&r.CreatedAt}, moment{&r.UpdatedAt})
	return r, err
}

// Projects lists the projects, newest first, and how many there are in all; next
// is the cursor for more, "" where there is no more (seed 004, "MCP task tool
// set"). ErrCursor refuses a cursor of another list.
func (b *Board) Projects(ctx context.Context, p Page) (list []Project, total int, next string, err error) {
	l, err := p.listing("projects")
	if err != nil {
		return nil, 0, "", err
	}
	err = b.read(ctx, "listing projects", func(t tx) error {
		list, total = nil, 0
		if _, err := t.one(`SELECT count(*) FROM projects WHERE listed = 1`, nil, &total); err != nil {
			return err
		}
		return t.each(`SELECT `+projectColumns+` FROM projects
			WHERE listed = 1 AND created_at <= ? AND (created_at < ? OR id > ?)
			ORDER BY created_at DESC, id LIMIT ?`, l.args(), collect(&list, scanProject))
	})
	if err != nil {
		return nil, 0, "", err
	}
	list, next = cut(l, list, func(p Project) position { return position{format(p.CreatedAt), p.ID} })
	return list, total, next, nil
}

// Project returns one, or ErrNotFound. One that is no longer in the config is
// found too: its tasks are still there.
func (b *Board) Project(ctx context.Context, id string) (p *Project, err error) {
	err = b.read(ctx, "reading a project", func(t tx) error {
		p, err = t.project(id)
		return err
	})
	return p, err
}

func (t tx) project(id string) (*Project, error) {
	var all []Project
	err := t.each(`SELECT `+projectColumns+` FROM projects WHERE id = ?`, []any{id}, collect(&all, scanProject))
	return only(all, err, "project", id)
}

// Repos lists a project's repositories, newest first, or ErrNotFound; total and
// next are as Projects gives them.
func (b *Board) Repos(ctx context.Context, projectID string, p Page) (list []Repo, total int, next string, err error) {
	l, err := p.listing("repos", projectID)
	if err != nil {
		return nil, 0, "", err
	}
	err = b.read(ctx, "listing repos", func(t tx) error {
		list, total = nil, 0
		if err := t.exists("projects", "project", projectID); err != nil {
			return err
		}
		if _, err := t.one(`SELECT count(*) FROM repos WHERE project_id = ? AND listed = 1`, []any{projectID}, &total); err != nil {
			return err
		}
		return t.each(`SELECT `+repoColumns+` FROM repos
			WHERE project_id = ? AND listed = 1 AND created_at <= ? AND (created_at < ? OR id > ?)
			ORDER BY created_at DESC, id LIMIT ?`, l.args(projectID), collect(&list, scanRepo))
	})
	if err != nil {
		return nil, 0, "", err
	}
	list, next = cut(l, list, func(r Repo) position { return position{format(r.CreatedAt), r.ID} })
	return list, total, next, nil
}

// Repo returns one that is in the config, or ErrNotFound.
func (b *Board) Repo(ctx context.Context, id string) (*Repo, error) {
	var all []Repo
	err := b.read(ctx, "reading a repo", func(t tx) error {
		all = nil
		return t.each(`SELECT `+repoColumns+` FROM repos WHERE id = ? AND listed = 1`, []any{id}, collect(&all, scanRepo))
	})
	return only(all, err, "repo", id)
}

// collect appends the rows of a query to a list.
func collect[T any](to *[]T, row func(scan scanner) (T, error)) func(scan scanner) error {
	return func(scan scanner) error {
		v, err := row(scan)
		*to = append(*to, v)
		return err
	}
}

// only is the one row that was read, or ErrNotFound.
func only[T any](all []T, err error, what, id string) (*T, error) {
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, missing(what, id)
	}
	return &all[0], nil
}

func missing(what, id string) error { return fmt.Errorf("%s %q: %w", what, clip(id), ErrNotFound) }

// exists returns ErrNotFound where a table has no such row.
func (t tx) exists(table, what, id string) error {
	var one int
	found, err := t.one(`SELECT 1 FROM `+table+` WHERE id = ?`, []any{id}, &one)
	if err == nil && !found {
		err = missing(what, id)
	}
	return err
}
