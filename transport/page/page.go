// Package page is the web UI of a project: pages that show what runs and act on it.
//
// Pages are rendered by html/template for each request, follow the change feed of the project's stores
// over one event stream each, and work without a build step: everything they load is embedded. A page
// that was told of a change sends its ETag, and gets its content only if that has changed.
package page

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/schedule"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/transport/tools/remote"
	"deepwork/transport/web"
)

//go:embed static templates
var embedded embed.FS

// Options configure a Site. Board is nil if the task board is not served.
type Options struct {
	Project string // its name, for people
	Root    string // its folder
	Board   *attempt.Engine
	// Engine moves sessions for a person.
	Engine   *workflow.Engine
	Jobs     func(context.Context) *catalog.Snapshot
	Config   func(context.Context) (*config.Config, error)
	Approves func(trust.Entry) bool // whether the user has approved a check; nil means that nothing is asked
	Changes  store.Changes
	Sources  *remote.Tools // nil if workflows of other systems are not served
	ReadOnly bool          // no page changes anything
	Help     fs.FS         // the documentation, in Markdown, with README.md as its index; nil means no page Help
	Version  string        // of the program
	// AmongOthers says that the path /projects leads to a list of projects.
	AmongOthers bool
	// Callers authenticates requests.
	Callers *web.Login
	// Key signs what pages send back with their forms. It is the same after a restart.
	Key    []byte
	Logger *slog.Logger
	// Chooser is for a server of several projects: then no other page is served, and only Callers, Key and Logger are
	// needed.
	Chooser *Chooser
}

// A Site serves the pages. Its methods may be called from any goroutine.
type Site struct {
	Options
	mux           *http.ServeMux
	sites         http.CrossOriginProtection
	feed          *feed
	views         *views
	index         index
	reader        reader
	edits         edits
	changes       *changes
	workflowCache sync.Map // workflows by the hash of their definitions: *job.Workflow
}

// New returns the pages of a project. Run must be called for them to follow changes.
func New(o Options) (*Site, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	views, err := parseViews()
	if err != nil {
		return nil, err
	}
	s := &Site{Options: o, mux: http.NewServeMux(), feed: newFeed(o.Changes), views: views}
	s.changes = newChanges(s.feed)
	s.reader = reader{o.Engine, s.feed}
	static, err := fs.Sub(embedded, "static")
	if err != nil {
		return nil, err
	}
	files := http.StripPrefix("/static/", http.FileServerFS(static))
	s.mux.HandleFunc("GET /static/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // the URL has the version of the program
		files.ServeHTTP(w, r)
	})

	s.mux.HandleFunc("GET /login", s.loginForm)
	s.mux.HandleFunc("POST /login", s.login)
	s.mux.HandleFunc("POST /logout", s.authenticated(s.logout))
	s.pages()
	return s, nil
}

// pages registers each page and each action.
func (s *Site) pages() {
	if s.Help != nil {
		s.page("GET /help/{file}", s.help)
		s.page("GET /help/{folder}/{file}", s.help)
	}

	if s.Chooser != nil {
		s.page("GET /{$}", s.projects)
		s.mux.HandleFunc("GET /events", s.authenticated(s.events))
		s.mux.HandleFunc("/projects/{id}", s.project)
		s.mux.HandleFunc("/projects/{id}/{page...}", s.project)
		return
	}

	s.mux.HandleFunc("GET /events", s.authenticated(s.events))
	s.page("GET /{$}", s.now)
	s.page("GET /history", s.history)
	s.page("GET /sessions/{id}", s.session)
	s.post("/sessions/{id}/abort", s.onSession(s.abortSession))
	s.post("/sessions/{id}/go-to", s.onSession(s.goToStep))
	s.post("/sessions/{id}/override", s.onSession(s.overrideStep))
	s.post("/sessions/{id}/review", s.onSession(s.answer))
	s.page("GET /sessions/{id}/output", s.output)
	s.mux.HandleFunc("GET /sessions/{id}/image", s.authenticated(s.image))
	s.page("GET /jobs", s.jobs)
	s.page("GET /jobs/{name}", s.job)
	s.page("GET /trust", s.trust)

	if s.Sources == nil {
		s.missing(errNoSources, "/sources", "/sources/")
	} else {
		s.page("GET /sources", s.sources)
		s.page("GET /sources/executions/{id}", s.execution)
		s.post("/sources/refresh", s.refreshSources)
		s.post("/sources/executions/{id}/cancel", s.cancelExecution)
	}

	if s.Board == nil {
		s.missing(errNoBoard, "/board", "/tasks", "/tasks/", "/attempts/", "/runs", "/schedules", "/schedules/")
		return
	}

	s.page("GET /board", s.board)
	s.page("GET /tasks/{task_id}", s.task)
	s.page("GET /attempts/{attempt_id}", s.attempt)
	s.post("/tasks", s.addTask)
	s.post("/tasks/{task_id}", call(s.Board.UpdateTask, changesOfTask,
		func(_ session.Caller, r *http.Request, t *board.Task) string {
			return back(r, "/tasks/"+t.TaskID)
		}))
	s.post("/tasks/{task_id}/delete", s.deleteTask)
	s.post("/tasks/{task_id}/start",
		call(s.Board.StartTaskAttempt, executorAndRepos,
			func(who session.Caller, _ *http.Request, a *attempt.AttemptReply) string {
				return s.withNotice(who, "/attempts/"+a.AttemptID, a.Unseen)
			}))
	s.post("/runs", call(s.Board.RunWorkflow, workflowAndTime,
		func(who session.Caller, _ *http.Request, run *board.RunReply) string {
			return s.withNotice(who, "/attempts/"+run.RunID, run.Unseen)
		}))
	s.page("GET /schedules", s.schedules)
	s.page("GET /schedules/{name}", s.schedule)
	s.post("/schedules/{name}/pause", s.onSchedule((*schedule.Engine).Pause))
	s.post("/schedules/{name}/resume", s.onSchedule((*schedule.Engine).Resume))
	s.post("/schedules/{name}/run", s.runSchedule)
	s.post("/attempts/{attempt_id}/resume", s.resumeRun)
	s.post("/attempts/{attempt_id}/stop", call(s.Board.StopAttempt, nil, s.stopped))
	s.post("/attempts/{attempt_id}/follow-up", call(s.Board.FollowUp, nil, s.followedUp))
	s.post("/attempts/{attempt_id}/comments", s.comment)
	s.post("/attempts/{attempt_id}/comments/remove", s.removeComment)
	s.post("/attempts/{attempt_id}/comments/send", s.sendComments)
	s.post("/attempts/{attempt_id}/git/merge", integrate(s, merge.Merge))
	s.post("/attempts/{attempt_id}/git/rebase", integrate(s, merge.Rebase))
	s.post("/attempts/{attempt_id}/git/abort", integrate(s, merge.Abort))
	s.post("/attempts/{attempt_id}/git/take", integrate(s, merge.Take))
	s.post("/attempts/{attempt_id}/git/untake", integrate(s, merge.Untake))
	s.post("/attempts/{attempt_id}/git/conclude", integrate(s, merge.Conclude))
	s.post("/attempts/{attempt_id}/git/push", integrate(s, merge.Push))
	s.post("/attempts/{attempt_id}/git/target", integrate(s, merge.ChangeTarget))
}

// missing refuses requests for a part of the server that is not served.
func (s *Site) missing(why error, patterns ...string) {
	for _, p := range patterns {
		s.mux.HandleFunc(p, s.authenticated(func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, why) }))
	}
}

// Run follows the changes of the project until ctx ends.
func (s *Site) Run(ctx context.Context) {
	var others sync.WaitGroup
	others.Go(func() {
		for wait.For(ctx, lookEvery) == nil {
			if s.edits.streams.Load() > 0 {
				s.look(ctx)
			}
		}
	})
	others.Go(func() { s.changes.count(ctx, s) })
	s.feed.follow(ctx, s.Logger, func() { s.readSessions(ctx) })
	others.Wait()
}

// security are the headers of every reply. Only this server's scripts and styles are allowed.
var security = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":     "nosniff",
	"Cache-Control":              "no-store",    // nothing stays in a browser after the logout
	"Referrer-Policy":            "same-origin", // with no-referrer, browsers send forms with Origin: null
	"Cross-Origin-Opener-Policy": "same-origin",
}

// ServeHTTP implements http.Handler.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range security {
		w.Header().Set(name, value)
	}
	defer func() {
		if p := recover(); p != nil {
			s.fail(w, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if s.sites.Check(r) != nil {
		s.fail(w, r, &refusal{http.StatusForbidden,
			"This form is of another site: open the page here and use its form."})
		return
	}
	if h, pattern := s.mux.Handler(r); pattern == "" {
		s.notFound(w, r, h)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// authenticated calls a handler with the caller in the context, and sends others to the login.
func (s *Site) authenticated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.Callers.Caller(r)
		if err != nil {
			s.toLogin(w, r, err)
			return
		}
		r = r.WithContext(session.WithCaller(r.Context(), who))
		release, ok := s.Callers.Admit(w, r, r.URL.Path == "/events")
		if !ok {
			return
		}
		defer release()
		next(w, r)
	}
}

// A shown is what a page shows, and which changes it follows.
type shown struct {
	view   string // the template
	title  string
	data   any
	topics []string // topics: the kinds of changes, each alone or with an id as kind:id
	to     string   // the page that shows it instead, or ""
}

// A maker makes what a page shows to a caller.
type maker func(context.Context, session.Caller, *http.Request) (*shown, error)

// page registers a page.
func (s *Site) page(pattern string, make maker) {
	s.mux.HandleFunc(pattern, s.authenticated(func(w http.ResponseWriter, r *http.Request) {
		who, had := session.CallerOf(r.Context()), r.Header.Get("If-None-Match")
		if had == "" && s.Chooser == nil { // else the feed has told it, and has read them
			s.look(r.Context())
			_ = s.feed.catchUp(r.Context()) // follow logs it
		}

		at, began := s.feed.position(), time.Now()
		page, err := make(r.Context(), who, r)
		var body []byte
		if err == nil && page.to == "" {
			body, err = s.render(page, who, at, r)
		}

		s.feed.worked(time.Since(began) + requestTime)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if page.to != "" {
			http.Redirect(w, r, web.Link(r, page.to), http.StatusSeeOther)
			return
		}

		head := w.Header()
		head.Set("ETag", etag(body))
		head.Set("Vary", "Cookie, Accept-Encoding")
		if head.Get("ETag") == had {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		send(w, r, http.StatusOK, body)
	}))
}

// stamp formats times for pages, where a script makes them relative.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
