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
	"strconv"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/transport/web"
)

// A Chooser shows what needs a person in all projects, lists these, and opens the pages of one.
type Chooser struct {
	Here string // the folder that it was started in, which has no state yet; "" if it can have none
	List func() (all []state.Project, gone int, err error)
	// Watch returns the board of a project, for which nothing is started, or nil while it has no database. It is closed
	// with the process.
	Watch func(root string) (*board.Board, error)
	Open  func(root string, callers *web.Login) (http.Handler, error) // whose options have AmongOthers

	Help    fs.FS  // as in Options
	Version string // as in Options
}

const (
	// inboxTopic is the topic of what needs a person in any project.
	inboxTopic = "inbox"
	// inboxEvery is the time between two looks at what is in no feed of changes, such as a new project.
	inboxEvery = 10 * time.Second
	// maxWatched is how many projects the inbox watches: those that were used last.
	maxWatched = 50
)

type projectsPage struct {
	Needs    nowList
	Projects []projectRow
	Here     string // "" if it is among the projects by now
	Gone     int
	Others   int // projects that are not watched
}

// A projectRow is a project in the list.
type projectRow struct {
	state.Project
	Needs int    // how much needs a person
	Fault string // why that is not known, or ""
}

// Name returns the name of the project in a folder, for people.
func (projectsPage) Name(root string) string { return filepath.Base(root) }

// Path returns the path below which the pages of the project in a folder are.
func (projectsPage) Path(root string) string {
	sum := sha256.Sum256([]byte(root))
	return "/projects/" + hex.EncodeToString(sum[:6])
}

// projects shows what needs the caller in all projects, and lists the projects to choose from.
func (s *Site) projects(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	all, gone, err := s.Chooser.List()
	if err != nil {
		return nil, err
	}

	p := &projectsPage{Here: s.Chooser.Here, Gone: gone, Others: max(len(all)-maxWatched, 0)}
	if slices.ContainsFunc(all, func(one state.Project) bool { return one.Root == p.Here }) {
		p.Here = ""
	}
	p.Projects = make([]projectRow, len(all))
	items := make([][]*item, len(all))
	var reading sync.WaitGroup
	for n, one := range all {
		p.Projects[n].Project = one
		if n < maxWatched {
			reading.Go(func() { items[n] = s.needsIn(ctx, who, &p.Projects[n]) })
		}
	}
	reading.Wait()

	needs := newestFirst(slices.Concat(items...))
	slices.SortStableFunc(needs, byGroup)
	from, _ := strconv.Atoi(r.URL.Query().Get("from")) // else from the first
	p.Needs = nowList{Name: "needs", Title: "Needs you", None: "Nothing waits for you.", Items: needs}
	p.Needs = p.Needs.part("", true, from)
	return &shown{view: "projects", title: titled("Inbox", len(needs)), data: p, topics: []string{inboxTopic}}, nil
}

// needsIn returns what needs the caller in a project, with links from here, and counts it in the project's row.
func (s *Site) needsIn(ctx context.Context, who session.Caller, row *projectRow) []*item {
	needs := &board.AttentionReply{}
	b, err := s.Chooser.Watch(row.Root)
	if b != nil {
		needs, err = b.NeedsAttention(ctx, who)
	}
	if err != nil {
		row.Fault = err.Error()
		return nil
	}

	items, p := needsOf(needs.Items, nil), projectsPage{}
	path := p.Path(row.Root)
	for _, i := range items {
		i.Project, i.Link = p.Name(row.Root), path+i.Link
		if i.Do.Link = path + i.Do.Link; i.Do.Post != "" { // its form is on the page of the project
			i.Do.Label, i.Do.Post = i.Do.Label+"…", ""
		}
	}
	row.Needs = len(items)
	return items
}

// followProjects touches the inbox's topic when a project changes, until release is called, which waits.
func (s *Site) followProjects(ctx context.Context, _ session.Caller, _ []string) (release func()) {
	ctx, stop := context.WithCancel(ctx)
	touch := func() { s.Touch(inboxTopic) }
	var following sync.WaitGroup
	following.Go(func() {
		for known := map[string]bool{}; ctx.Err() == nil; _ = wait.For(ctx, inboxEvery) {
			all, _, _ := s.Chooser.List() // the page has the error
			for _, one := range all[:min(len(all), maxWatched)] {
				b, err := s.Chooser.Watch(one.Root)
				if b == nil || err != nil || known[one.Root] {
					continue
				}
				known[one.Root] = true
				following.Go(func() { newFeed(b.Database.Changes()).follow(ctx, s.Logger, touch) })
			}
			touch()
		}
	})
	return func() {
		stop()
		following.Wait()
	}
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

	all, _, err := s.Chooser.List()
	all = slices.DeleteFunc(append(all, state.Project{Root: p.Here}), func(one state.Project) bool {
		return one.Root == "" || p.Path(one.Root) != path
	})
	gone := len(all) == 0
	if !gone {
		info, missing := os.Stat(all[0].Root)
		gone = missing != nil || !info.IsDir()
	}
	if err == nil && gone {
		err = &refusal{http.StatusNotFound, "There is no such project: its folder may have been moved."}
	}
	var pages http.Handler
	if err == nil {
		pages, err = s.Chooser.Open(all[0].Root, s.Callers)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	web.Below(path, pages).ServeHTTP(w, r)
}
