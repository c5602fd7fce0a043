package page

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
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
var errReadOnly = errors.New("these pages are read-only: the server was started with --read-only")

// post registers an action.
func (s *Site) post(pattern string, do action) {
	s.mux.HandleFunc("POST "+pattern, s.known(func(w http.ResponseWriter, r *http.Request) {
		who := session.CallerOf(r.Context())
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		err := r.ParseForm()
		status := http.StatusConflict
		var next string
		switch {
		case err != nil:
			status = http.StatusBadRequest
		case s.ReadOnly:
			status, err = http.StatusForbidden, errReadOnly
		case !hmac.Equal([]byte(r.PostForm.Get("csrf")), []byte(s.csrf(who))):
			status, err = http.StatusForbidden, errors.New("this form is of another login or server: reload the page and send it again")
		default:
			next, err = do(r.Context(), who, r)
		}
		switch {
		case err == nil && r.Header.Get("HX-Request") != "" && elsewhere(r, next):
			w.Header().Set("HX-Redirect", next) // it follows other changes
		case err == nil:
			http.Redirect(w, r, next, http.StatusSeeOther)
		case r.Header.Get("HX-Request") != "":
			s.alert(w, status, s.titled(r.Context(), who, forPeople(err)))
		default:
			why := s.titled(r.Context(), who, forPeople(err))
			body, rerr := s.render(&shown{view: "error", title: "Refused", data: why}, who, 0, r)
			if rerr != nil {
				http.Error(w, why, status)
				return
			}
			body.status = status
			body.serve(w, r)
		}
	}))
}

var taskID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// titled returns a message with the titles of tasks in place of their ids, as far as the caller sees them.
func (s *Site) titled(ctx context.Context, who session.Caller, message string) string {
	if s.Board == nil {
		return message
	}
	return taskID.ReplaceAllStringFunc(message, func(id string) string {
		t, err := s.Board.GetTask(ctx, who, attempt.TaskArgs{TaskID: id})
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
	w.Header().Set("Cache-Control", "no-store")
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

// optional returns a field of a form, nil if it is blank.
func optional(r *http.Request, name string) *string {
	if v := strings.TrimSpace(r.PostForm.Get(name)); v != "" {
		return &v
	}
	return nil
}
