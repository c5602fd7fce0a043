package board

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// projects synchronizes the board's projects with the config: the project root is one, others are configured.
type projects struct {
	turn sync.Mutex     // one sync at a time; guards the fields below
	seen *config.Config // nil before the first sync
	top  string         // the git repository of the project root; "" if it has none
}

// SyncProjects updates the board's projects. While nothing has changed it costs only a few stat calls. Names
// are shared by a store's machines; paths are those of each machine.
func (b *Board) SyncProjects(ctx context.Context, records store.Board, cfg *config.Config) error {
	p, top := &b.projects, TopLevel(b.o.Root)
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.seen == cfg && p.top == top {
		return nil
	}
	all := ProjectSpecs(b.o.Root, top, cfg)
	if b.Shared != nil {
		all[0].Name = b.Shared.Project // other machines may name the folder differently
		for i := range all[0].Repos {
			all[0].Repos[i].Name = b.Shared.Project
		}
	}
	err := records.SyncProjects(ctx, all, b.Shared != nil)
	if err == nil {
		p.seen, p.top = cfg, top
	}
	return err
}

// ProjectSpecs returns the configured projects and that of the root, whose repository is at top, which may be
// "". A repository's path may be a folder inside it; agents start there.
func ProjectSpecs(root, top string, cfg *config.Config) []task.ProjectSpec {
	own := task.ProjectSpec{Name: filepath.Base(root), Root: true}
	if top != "" {
		own.Repos = []task.RepoSpec{{Name: filepath.Base(top), Path: root}}
	}
	all := []task.ProjectSpec{own}
	for _, c := range cfg.Projects {
		spec := task.ProjectSpec{Name: c.Name}
		for _, r := range c.Repos {
			path := filepath.FromSlash(r.Path)
			if !filepath.IsAbs(path) {
				path = filepath.Join(root, path)
			}
			spec.Repos = append(spec.Repos, task.RepoSpec{Name: RepoName(r), Path: filepath.Clean(path)})
		}
		all = append(all, spec)
	}
	return all
}

// RepoName returns a repository's name, even if the config does not give one.
func RepoName(r config.Repo) string {
	if r.Name != "" {
		return r.Name
	}
	return filepath.Base(filepath.FromSlash(r.Path))
}

// TopLevel returns the folder, dir or one above it, that git takes for a repository, or "". It reads the disk
// instead of running git because every call needs it; git itself checks when a worktree is created.
func TopLevel(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}

		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// ListProjects lists the projects (seed 004, list_projects).
func (b *Board) ListProjects(ctx context.Context, who session.Caller, a ListProjectsArgs) (*ProjectsReply, error) {
	p, err := page(a.Limit, a.Cursor)
	if err != nil {
		return nil, err
	}

	v, _, err := b.View(ctx, who)
	if err != nil {
		return nil, err
	}
	all, total, next, err := v.Projects(ctx, p)
	if err != nil {
		return nil, Fault("listing the projects", cursor(p, err))
	}
	r := &ProjectsReply{
		Projects:   []Project{},
		Count:      len(all),
		Total:      total,
		Filters:    ProjectFilters{Limit: p.Limit},
		NextCursor: OrNull(next),
	}
	for _, v := range all {
		r.Projects = append(r.Projects, Project{
			ProjectID: v.ID,
			Name:      v.Name,
			IsRoot:    v.Root,
			CreatedAt: Stamp(v.CreatedAt),
			UpdatedAt: Stamp(v.UpdatedAt),
		})
	}
	return r, nil
}

// ListRepos lists the repositories of a project (seed 004, list_repos).
func (b *Board) ListRepos(ctx context.Context, who session.Caller, a ListReposArgs) (*ReposReply, error) {
	v, id, p, err := b.viewOfList(ctx, who, "project_id", a.ProjectID, a.Limit, a.Cursor)
	if err != nil {
		return nil, err
	}
	all, total, next, err := v.Repos(ctx, id, p)
	if err != nil {
		return nil, FaultOf("listing the repositories", cursor(p, err), codes.UnknownProject, "project_id", id,
			"list_projects")
	}
	r := &ReposReply{
		Repos:      []Repo{},
		Count:      len(all),
		Total:      total,
		Filters:    RepoFilters{ProjectID: id, Limit: p.Limit},
		NextCursor: OrNull(next),
	}
	for _, v := range all {
		r.Repos = append(r.Repos, Repo{
			RepoID:    v.ID,
			ProjectID: v.ProjectID,
			Name:      v.Name,
			Path:      v.Path,
			CreatedAt: Stamp(v.CreatedAt),
			UpdatedAt: Stamp(v.UpdatedAt),
		})
	}
	return r, nil
}
