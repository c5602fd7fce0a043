package page

import (
	"net/http"
)

// loginForm asks for a token, or takes the one-time secret of a URL: GET /login?secret=…
func (s *Site) loginForm(w http.ResponseWriter, r *http.Request) {
	if secret := r.URL.Query().Get("secret"); secret != "" {
		s.enter(w, r, secret)
		return
	}
	s.askLogin(w, r, http.StatusOK, "")
}

// login takes the token of the form.
func (s *Site) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	s.enter(w, r, r.PostFormValue("token"))
}

func (s *Site) enter(w http.ResponseWriter, r *http.Request, secret string) {
	cookie, err := s.Callers.Login(r, secret)
	if err != nil {
		s.askLogin(w, r, http.StatusForbidden, err.Error())
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Site) askLogin(w http.ResponseWriter, r *http.Request, status int, why string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := s.views.of["login"].Execute(w, frame{Title: "Log in", Project: s.Project, Assets: s.views.assets, Data: why}); err != nil {
		s.Logger.Error("the login cannot be shown", "error", err)
	}
}
