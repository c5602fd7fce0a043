package page

import (
	"cmp"
	"crypto/hmac"
	"net/http"
	"net/url"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/transport/web"
)

// A loginPage asks for a token.
type loginPage struct {
	Why  string // what is wrong with what was given, "" if nothing
	Next string // the page to go to then
	Out  bool   // after a logout
}

func loginURL(next string) string {
	if next == "/" {
		return "/login"
	}
	return "/login?next=" + url.QueryEscape(next)
}

// loginForm asks for a token, or takes the one-time secret of a URL: GET /login?secret=…
func (s *Site) loginForm(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	p := loginPage{Next: localURL(asked.Get("next"), ""), Out: asked.Has("out")}
	secret := asked.Get("secret")
	if secret == "" || r.Method == http.MethodHead { // a look at where the URL leads
		s.askLogin(w, r, http.StatusOK, p)
		return
	}
	cookie, err := s.Callers.WithSecret(r, secret)
	if err != nil && s.Callers.LoggedIn(r) {
		if _, unknown := s.Callers.Caller(r); unknown == nil { // the same browser again
			http.Redirect(w, r, web.Link(r, "/"), http.StatusSeeOther)
			return
		}
	}
	s.enter(w, r, cookie, err, p)
}

// login takes the token of the form.
func (s *Site) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	cookie, err := s.Callers.WithToken(r, r.PostFormValue("token"))
	s.enter(w, r, cookie, err, loginPage{Next: localURL(r.PostFormValue("next"), "")})
}

func (s *Site) enter(w http.ResponseWriter, r *http.Request, cookie *http.Cookie, err error, p loginPage) {
	if err != nil {
		why := err.Error()
		p.Why = strings.ToUpper(why[:1]) + why[1:]
		s.askLogin(w, r, http.StatusForbidden, p)
		return
	}

	http.SetCookie(w, cookie)
	http.Redirect(w, r, web.Link(r, cmp.Or(p.Next, "/")), http.StatusSeeOther)
}

func (s *Site) askLogin(w http.ResponseWriter, r *http.Request, status int, p loginPage) {
	body, err := s.render(&shown{view: "login", title: "Log in", data: p}, session.Caller{}, 0, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	send(w, r, status, body)
}

// logout ends the login of a browser.
func (s *Site) logout(w http.ResponseWriter, r *http.Request) {
	if err := s.readForm(w, r); err != nil {
		s.fail(w, r, err)
		return
	}
	http.SetCookie(w, s.Callers.Logout(r))
	http.Redirect(w, r, web.Link(r, "/login?out"), http.StatusSeeOther)
}

// readForm reads a form, which must be of the caller's own pages.
func (s *Site) readForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, "The form cannot be read: " + err.Error()}
	}
	for _, values := range r.PostForm {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], "\r\n", "\n") // a browser sends these where no script does
		}
	}

	if !hmac.Equal([]byte(r.PostForm.Get("csrf")), []byte(s.csrf(session.CallerOf(r.Context())))) {
		return &refusal{http.StatusForbidden,
			"This form is of another login or server: reload the page and send it again."}
	}

	return nil
}

// localURL returns a URL if it is one of this site.
func localURL(address, otherwise string) string {
	u, err := url.Parse(address)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") ||
		strings.ContainsAny(u.Path, "\\") {
		return otherwise
	}
	return cmp.Or(u.RequestURI(), otherwise)
}

// maxNotice is how many bytes of what an action says about its result are shown.
const maxNotice = 4000

// withNotice returns the URL of a page that shows a text to the caller, or of the page alone if the text is "". The
// text is in the URL, so that it shows with and without scripts, and signed, so that other links cannot forge one.
func (s *Site) withNotice(who session.Caller, next, text string) string {
	if text == "" {
		return next
	}

	separator := "?"
	if strings.Contains(next, "?") {
		separator = "&"
	}
	text = jsontext.Clip(text, maxNotice)
	return next + separator + "notice=" + s.sign(who, "notice\x00"+text) + url.QueryEscape(text)
}

// notice returns the text that withNotice has put into a query, or "".
func (s *Site) notice(who session.Caller, query url.Values) string {
	given := query.Get("notice")
	text := given[min(2*signature, len(given)):]
	if text == "" || !hmac.Equal([]byte(given[:2*signature]), []byte(s.sign(who, "notice\x00"+text))) {
		return ""
	}
	return text
}
