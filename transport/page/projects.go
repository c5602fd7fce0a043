package page

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session"
	"deepwork/session/state"
	"deepwork/transport/web"
)

// A Chooser lists projects, and opens the pages of one.
type Chooser struct {
	Here string // the folder that it was started in, which has no state yet; "" if it can have none
	List func() (all []state.Project, gone int, err error)
	Open func(root string, callers *web.Login) (http.Handler, error) // whose options have AmongOthers

	Help    fs.FS  // as in Options
	Version string // as in Options
}

type projectsPage struct {
	Here     string // "" if it is among the projects by now
	Projects []state.Project
	Gone     int
}

// Name returns the name of a project, for people.
func (projectsPage) Name(p state.Project) string { return filepath.Base(p.Root) }

// Path returns the path below which the pages of the project in a folder are.
func (projectsPage) Path(root string) string {
	sum := sha256.Sum256([]byte(root))
	return "/projects/" + hex.EncodeToString(sum[:6])
}

// projects lists the projects to choose from.
func (s *Site) projects(context.Context, session.Caller, *http.Request) (*shown, error) {
	all, gone, err := s.Chooser.List()
	p := &projectsPage{s.Chooser.Here, all, gone}
	if slices.ContainsFunc(all, func(one state.Project) bool { return one.Root == p.Here }) {
		p.Here = ""
	}
	return &shown{view: "projects", title: "Projects", data: p}, err
}

// project serves the pages of a project, which admit their requests themselves.
func (s *Site) project(w http.ResponseWriter, r *http.Request) {
	p := &projectsPage{Here: s.Chooser.Here}
	path := "/projects/" + r.PathValue("id")
	switch strings.TrimPrefix(r.URL.Path, path) {
	case "/projects":
		http.Redirect(w, r, web.Link(r, "/"), http.StatusSeeOther)
		return
	case "/login": // after a logout, for example
		http.Redirect(w, r, web.Link(r, "/login?"+r.URL.RawQuery), http.StatusSeeOther)
		return
	}
	if _, err := s.Callers.Caller(r); err != nil {
		s.toLogin(w, r, err)
		return
	}

	var err error
	root, ok := s.chosen.Load(path)
	if ok {
		info, gone := os.Stat(root.(string))
		ok = gone == nil && info.IsDir()
	} else {
		var all []state.Project
		all, _, err = s.Chooser.List()
		for _, one := range append(all, state.Project{Root: p.Here}) {
			if one.Root != "" && p.Path(one.Root) == path {
				root, ok = one.Root, true
			}
		}
	}

	if err == nil && !ok {
		err = &refusal{http.StatusNotFound, "There is no such project: its folder may have been moved."}
	}

	var pages http.Handler
	if err == nil {
		s.chosen.Store(path, root)
		pages, err = s.Chooser.Open(root.(string), s.Callers)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	web.Below(path, pages).ServeHTTP(w, r)
}
