package task

import (
	"context"
	"fmt"
	"path/filepath"
)

// SyncProjects makes the board's projects what the config says: known ones keep
// their ids, by name (the root by being it); those that are no longer there are
// not listed any more, and are again, with their tasks, when they come back. A
// repository keeps its id by project and name. Where nothing differs nothing is
// written. ErrInvalid: a name is empty or given twice, there are two roots, or a
// path is not absolute.
func (b *Board) SyncProjects(ctx context.Context, all []ProjectSpec) error {
	const doing = "updating the projects of the board"
	if err := checkSpecs(all); err != nil {
		return wrap(doing, err)
	}
	now, same := b.stamp(), true
	err := b.read(ctx, doing, func(t tx) error {
		s := syncing{t: t, now: now}
		err := s.projects(all)
		same = s.changes == 0
		return err
	})
	if err != nil || same {
		return err
	}
	return b.write(ctx, doing, func(t tx) error {
		s := syncing{t: t, now: now, write: true}
		return s.projects(all)
	})
}

func checkSpecs(all []ProjectSpec) error {
	roots, names := 0, make(map[string]bool)
	for _, p := range all {
		switch {
		case p.Name == "":
			return fmt.Errorf("%w: a project has no name", ErrInvalid)
		case p.Root:
			roots++
		case names[p.Name]:
			return fmt.Errorf("%w: two projects are named %q", ErrInvalid, p.Name)
		default:
			names[p.Name] = true
		}
		repos := make(map[string]bool)
		for _, r := range p.Repos {
			switch {
			case r.Name == "":
				return fmt.Errorf("%w: a repo of project %q has no name", ErrInvalid, p.Name)
			case repos[r.Name]:
				return fmt.Errorf("%w: two repos of project %q are named %q", ErrInvalid, p.Name, r.Name)
			case !filepath.IsAbs(r.Path):
				return fmt.Errorf("%w: the path %q of repo %q of project %q is not absolute", ErrInvalid, r.Path, r.Name, p.Name)
			}
			repos[r.Name] = true
		}
	}
	if roots > 1 {
		return fmt.Errorf("%w: %d projects are the root", ErrInvalid, roots)
	}
	return nil
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

// A known is a row as it is, a project's or a repo's.
type known struct {
	id, name, path string
	root, listed   bool
}

func (s *syncing) projects(all []ProjectSpec) error {
	var rows []known
	err := s.t.each(`SELECT id, name, root, listed FROM projects`, nil, collect(&rows, func(scan scanner) (k known, err error) {
		err = scan(&k.id, &k.name, &k.root, &k.listed)
		return k, err
	}))
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

func (s *syncing) repos(projectID string, all []RepoSpec) error {
	var rows []known
	err := s.t.each(`SELECT id, name, path, listed FROM repos WHERE project_id = ?`, []any{projectID}, collect(&rows, func(scan scanner) (k known, err error) {
		err = scan(&k.id, &k.name, &k.path, &k.listed)
		return k, err
	}))
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
