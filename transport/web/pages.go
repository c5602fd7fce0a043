package web

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"deepwork/session"
)

// cookieName is the name of the cookie that holds what a browser has logged in with. Browsers send
// cookies to all ports of a host: each server has its own, so that several projects can be open.
func (l *Login) cookieName() string {
	u, _ := url.Parse(l.server.url) // made by Listen
	return "deepwork-" + u.Port()
}

// A Login says who looks at the pages of a Server: the user, without a login, where connections tell
// whose they are; else the caller whose token, or the person whose one-time secret, the browser has.
type Login struct {
	server *Server
	secret string // of the person who started deepwork ui; "" if there is none

	mu     sync.Mutex
	used   bool   // the secret was given
	person string // the cookie for it
}

// Caller returns the caller of a request, or an error that says why the browser must log in.
func (l *Login) Caller(r *http.Request) (session.Caller, error) {
	settings := l.server.Settings(r.Context())
	cookie, err := r.Cookie(l.cookieName())
	if err == nil {
		if l.isPerson(cookie.Value) {
			who := l.server.access.local
			who.Channel, who.Rights = session.ChannelPage, who.Rights|session.RightPerson
			return who, nil
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+cookie.Value)
	}
	who, given, err := l.server.access.caller(r, settings)
	if err == nil && !given && l.secret != "" {
		return session.Caller{}, errors.New("open the URL that deepwork ui printed")
	}
	who.Channel = session.ChannelPage
	return who, err
}

func (l *Login) isPerson(cookie string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.person != "" && subtle.ConstantTimeCompare([]byte(cookie), []byte(l.person)) == 1
}

// Login returns the cookie of a browser that gave a token or the one-time secret.
func (l *Login) Login(r *http.Request, secret string) (*http.Cookie, error) {
	secret = strings.TrimSpace(secret)
	value := secret
	if l.secret != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(l.secret)) == 1 {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.used {
			return nil, errors.New("this URL was opened before, and works once: run deepwork ui again")
		}
		l.used, l.person = true, rand.Text()
		value = l.person
	} else {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+secret)
		if _, given, err := l.server.access.caller(r, l.server.Settings(r.Context())); err != nil || !given && l.secret != "" || strings.ContainsAny(secret, " ;,\\\"") {
			return nil, errors.New("this token is not known here: it was mistyped or withdrawn; ask the person who runs the server for another")
		}
	}
	return &http.Cookie{Name: l.cookieName(), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: l.server.http.TLSConfig != nil}, nil
}
