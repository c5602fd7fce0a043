package page

import (
	"context"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"

	"deepwork/session"
	"deepwork/session/state"
)

// A Chooser lists projects, and opens the pages of one.
type Chooser struct {
	Here string // the folder that it was started in, which has no state yet
	List func() (all []state.Project, gone int, err error)
	Open func(ctx context.Context, root string) (url string, err error)

	Help    fs.FS  // as in Options
	Version string // as in Options
}

type projectsPage struct {
	Here     string
	Projects []state.Project
	Gone     int
}

// Name returns the name of a project, for people.
func (projectsPage) Name(p state.Project) string { return filepath.Base(p.Root) }

// projects lists the projects to choose from.
func (s *Site) projects(context.Context, session.Caller, *http.Request) (*shown, error) {
	all, gone, err := s.Chooser.List()
	return &shown{view: "projects", title: "Projects", data: &projectsPage{s.Chooser.Here, all, gone}}, err
}

// open leads to the pages of a project. It is a link, not a form: pages may not send forms to another port.
func (s *Site) open(w http.ResponseWriter, r *http.Request) {
	root := r.URL.Query().Get("project")
	all, _, err := s.Chooser.List()
	if err == nil && root != s.Chooser.Here && !slices.ContainsFunc(all, func(p state.Project) bool { return p.Root == root }) {
		err = &refusal{http.StatusNotFound, "There is no such project: its folder may have been moved."}
	}
	var url string
	if err == nil {
		url, err = s.Chooser.Open(r.Context(), root)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, url, http.StatusSeeOther)
}
