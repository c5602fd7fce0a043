package page

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/transport/web"
)

// A refusal is an error of a request itself.
type refusal struct {
	status  int
	message string
}

func (e *refusal) Error() string { return e.message }

// An errorPage says what is wrong, and what to do next.
type errorPage struct{ What, Next string }

// titles and remedies are those of error pages, by their status.
var (
	titles = map[int]string{
		http.StatusBadRequest:          "Not understood",
		http.StatusUnauthorized:        "Not logged in",
		http.StatusForbidden:           "Not allowed",
		http.StatusNotFound:            "Not found",
		http.StatusMethodNotAllowed:    "Not a page",
		http.StatusConflict:            "Not possible",
		http.StatusServiceUnavailable:  "Not available",
		http.StatusInternalServerError: "Something went wrong",
	}
	remedies = map[int]string{
		http.StatusBadRequest:   "Go back, correct the form and send it again.",
		http.StatusUnauthorized: "Nothing was changed.",
		http.StatusForbidden:    "Nothing was changed.",
		http.StatusNotFound: "It was mistyped or deleted, or belongs to another caller. Look for it on Now, on the " +
			"board or among the jobs.",
		http.StatusMethodNotAllowed:   "Forms send to this address. Open the page that has the form.",
		http.StatusConflict:           "Go back and reload the page: it shows what is possible now.",
		http.StatusServiceUnavailable: "Try again in a moment.",
		http.StatusInternalServerError: "Try again. The log of the server has the cause; report it if it happens " +
			"again.",
	}
)

// statusOf returns the status of a reply with an error.
func statusOf(r *http.Request, err error) int {
	if e, ok := errors.AsType[*refusal](err); ok {
		return e.status
	}

	e, ok := errors.AsType[*session.Error](err)
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return http.StatusServiceUnavailable
	case !ok:
		return http.StatusInternalServerError
	case e.Code == codes.RightNeeded:
		return http.StatusForbidden
	case e.Kind == session.StateError:
		return http.StatusConflict
	case r.Method == http.MethodPost && !strings.HasPrefix(e.Code, "unknown_"):
		return http.StatusBadRequest
	}

	return http.StatusNotFound // what the URL names is not there
}

// fail answers a request with an error: as a page, or as a message on the page that has sent a form.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(r, err)
	who := session.CallerOf(r.Context())
	what := err.Error()
	if refused, ok := errors.AsType[*session.Error](err); ok {
		what = refused.For(s.audience(r.Context(), who))
		argument, _ := refused.Details["argument"].(string)
		if refused.Code == codes.MalformedID && status == http.StatusNotFound {
			what = fmt.Sprintf("There is no such %s.", strings.TrimSuffix(argument, "_id"))
		}
	}
	switch {
	case status == http.StatusServiceUnavailable:
		what = "The store of the sessions and the board does not answer. The log of the server says why."
	case status == http.StatusInternalServerError:
		if r.Context().Err() == nil { // else the browser has left the page
			s.Logger.Error("a page could not be made", "path", r.URL.Path, "error", err)
		}
		if !who.Owner {
			what = "The server could not do this."
		}
	}
	if r.Method != http.MethodGet && r.Header.Get("HX-Request") != "" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if field := fieldOf(r, err); field != "" {
			w.Header().Set("X-Field", field) // which the page marks
		}
		w.WriteHeader(status)
		_ = s.views.templates["error"].ExecuteTemplate(w, "alert", what) // the page shows it beside what it has
		return
	}
	body, rerr := s.render(&shown{view: "error", title: titles[status], data: errorPage{what, remedies[status]}},
		who, 0, r)
	if rerr != nil {
		http.Error(w, what, status)
		return
	}
	send(w, r, status, body)
}

// fieldOf returns the name of the form's field that an error is about, or "": that of the argument that the error
// names, or of a missing text.
func fieldOf(r *http.Request, err error) string {
	e, ok := errors.AsType[*session.Error](err)
	if !ok {
		return ""
	}

	name, _ := e.Details["argument"].(string)
	if input, _ := e.Details["input"].(string); input != "" {
		name = input
	}
	names := []string{name, textField + name, pathsField + name}
	switch {
	case name == "job_name" || name == "workflow_name":
		names = []string{"workflow"}
	case name == "max_seconds":
		names = []string{"max_minutes"}
	case e.Code == codes.ReasonNeeded:
		names = []string{"reason", "feedback"}
	}
	for _, name := range names {
		if _, sent := r.PostForm[name]; sent {
			return name
		}
	}

	return ""
}

// notFound answers requests for unknown paths: browsers get an error page, MCP clients, which look for metadata at such
// paths, the answer of a server without pages.
func (s *Site) notFound(w http.ResponseWriter, r *http.Request, plain http.Handler) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		plain.ServeHTTP(w, r)
		return
	}
	if who, err := s.Callers.Caller(r); err == nil {
		r = r.WithContext(session.WithCaller(r.Context(), who))
	}
	is := &headerOnly{head: w.Header()}
	plain.ServeHTTP(is, r)
	why := &refusal{is.status, fmt.Sprintf("There is no page %q.", r.URL.Path)}
	if is.status == http.StatusMethodNotAllowed {
		why.message = fmt.Sprintf("%q takes %s, and no %s.", r.URL.Path, w.Header().Get("Allow"), r.Method)
	}
	s.fail(w, r, why)
}

// A headerOnly is the head of a reply whose body is not sent.
type headerOnly struct {
	head   http.Header
	status int
}

func (h *headerOnly) Header() http.Header         { return h.head }
func (h *headerOnly) WriteHeader(status int)      { h.status = status }
func (h *headerOnly) Write(p []byte) (int, error) { return len(p), nil }

// toLogin redirects an unknown caller to the login, and from there to the page that it asked for. An open page stays,
// with what was typed, and says that its caller is logged out.
func (s *Site) toLogin(w http.ResponseWriter, r *http.Request, why error) {
	switch {
	case r.Method != http.MethodGet:
		s.fail(w, r, &refusal{http.StatusUnauthorized,
			"You are not logged in, or no longer: the login was ended, or your token withdrawn. Log in in another " +
				"tab, then send this again."})
	case r.Header.Get("HX-Request") != "":
		http.Error(w, why.Error(), http.StatusUnauthorized)
	default:
		http.Redirect(w, r, web.Link(r, loginURL(r.URL.RequestURI())), http.StatusSeeOther)
	}
}
