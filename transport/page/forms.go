package page

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/board"
)

// maxForm bounds the body of a form.
const maxForm = 1 << 20

// csrf returns what every form of a caller's pages sends back.
func (s *Site) csrf(who session.Caller) string {
	m := hmac.New(sha256.New, s.Key)
	m.Write([]byte("csrf\x00" + who.Identity + "\x00" + who.Group))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// An action does what a form asks for, and returns the URL of the page to show next.
type action func(ctx context.Context, who session.Caller, r *http.Request) (next string, err error)

// errReadOnly refuses every change.
var errReadOnly = &refusal{http.StatusForbidden, "These pages are read-only: the server was started with --read-only. Start it without, or use a terminal."}

// post registers an action.
func (s *Site) post(pattern string, do action) {
	s.mux.HandleFunc("POST "+pattern, s.known(func(w http.ResponseWriter, r *http.Request) {
		next, err := s.act(w, r, do)
		switch {
		case err != nil:
			s.fail(w, r, err)
		case r.Header.Get("HX-Request") != "" && elsewhere(r, next):
			w.Header().Set("HX-Redirect", next) // it follows other changes
		default:
			http.Redirect(w, r, next, http.StatusSeeOther)
		}
	}))
}

func (s *Site) act(w http.ResponseWriter, r *http.Request, do action) (next string, err error) {
	if s.ReadOnly {
		return "", errReadOnly
	}
	if err := s.readForm(w, r); err != nil {
		return "", err
	}
	return do(r.Context(), session.CallerOf(r.Context()), r)
}

var taskID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// titled returns a message with the titles of tasks in place of their ids, as far as the caller sees them.
func (s *Site) titled(ctx context.Context, who session.Caller, message string) string {
	if s.Board == nil {
		return message
	}
	return taskID.ReplaceAllStringFunc(message, func(id string) string {
		t, err := s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: id})
		if err != nil {
			return id
		}
		return `"` + jsontext.Clip(t.Title, 80) + `"`
	})
}

// elsewhere reports whether a URL is of another page than the one that a request was sent from.
func elsewhere(r *http.Request, next string) bool {
	from, err := url.Parse(r.Header.Get("HX-Current-URL"))
	to, terr := url.Parse(next)
	return err != nil || terr != nil || from.Path != to.Path
}

// alert answers with a message that the page shows beside what it has.
func (s *Site) alert(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = s.views.of["error"].ExecuteTemplate(w, "alert", message)
}

// assetsVersion returns a hash of what is in static, which is part of the URLs of scripts and styles.
func assetsVersion() string {
	sum := sha256.New()
	_ = fs.WalkDir(embedded, "static", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			data, _ := embedded.ReadFile(path)
			sum.Write(data)
		}
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6])
}
