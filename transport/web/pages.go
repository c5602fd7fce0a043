package web

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"deepwork/catalog/config"
	"deepwork/session"
)

// A Login knows who looks at the pages of a Server: without a login, the user, where the owner of a connection is
// known; else the caller whose token, or the person whose one-time secret, the browser gave. A browser keeps neither.
// Its cookie is random for the person; for a token it is a signed hash, which opens only pages, until the token is
// withdrawn.
type Login struct {
	Key    []byte // signs cookies; set before the first request
	server *Server
	secret string // the hash of the one in the URL that deepwork ui prints; "" without it
	file   string // keeps the person's login: see Options.LoginFile

	mu     sync.Mutex
	used   map[string]bool // the hashes of the secrets that were given
	person string          // the hash of the cookie for the last one; "" before it and after a logout
	kept   bool            // the login is of an earlier server
}

// cookieName is the name of the cookie. Browsers send cookies to all ports of a host: each server has its
// own, so that several projects can be open.
func (l *Login) cookieName() string {
	u, _ := url.Parse(l.server.url) // made by Listen
	name := "deepwork-" + u.Port()
	if l.secure() {
		name = "__Host-" + name // no other host of the domain can set it
	}
	return name
}

func (l *Login) secure() bool { return l.server.http.TLSConfig != nil }

func (l *Login) cookie(r *http.Request, value string) *http.Cookie {
	path := "/"
	if !l.secure() {
		path = cmp.Or(Link(r, ""), path) // other servers may be behind the same proxy
	}
	return &http.Cookie{
		Name:     l.cookieName(),
		Value:    value,
		Path:     path,
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   l.secure(),
	}
}

// Caller returns the caller of a request, or an error that says why the browser must log in.
func (l *Login) Caller(r *http.Request) (who session.Caller, err error) {
	settings := l.server.Settings(r.Context())
	defer func() { who.Channel = session.ChannelPage }()
	if cookie, err := r.Cookie(l.cookieName()); err == nil {
		if is, kept := l.isPerson(cookie.Value); is {
			who = l.server.access.local
			who.Rights |= session.RightPerson
			if kept { // other users could wait at the port for the cookie while no server ran
				return who, notOwner(r)
			}
			return who, foreign(r)
		}
		if hash, _, _ := strings.Cut(cookie.Value, "."); hmac.Equal([]byte(cookie.Value), []byte(l.sign(hash))) {
			return l.server.access.holder(hash, settings)
		}
	}
	who, given, err := l.server.access.caller(r, settings)
	if err == nil && !given && l.secret != "" {
		return session.Caller{}, errors.New("open the URL that deepwork ui printed")
	}
	return who, err
}

// foreign returns an error if a request is known to be another user's, or came through a proxy, which hides whose it
// is: browsers send cookies to all ports of a host, and other users can see the URLs that programs are started with.
func foreign(r *http.Request) error {
	err := notOwner(r)
	if _, ok := errors.AsType[errForeign](err); ok {
		return err
	}
	return nil
}

// sign returns the cookie of the holder of the token with a hash.
func (l *Login) sign(hash string) string {
	m := hmac.New(sha256.New, l.Key)
	m.Write([]byte("login\x00" + hash))
	return hash + "." + hex.EncodeToString(m.Sum(nil))
}

// isPerson reports whether a cookie is the person's, and whether an earlier server has given it.
func (l *Login) isPerson(cookie string) (is, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return subtle.ConstantTimeCompare([]byte(hashOf(cookie)), []byte(l.person)) == 1, l.kept
}

// WithToken returns the cookie of a browser that gave a token, or an error for the person there.
func (l *Login) WithToken(r *http.Request, token string) (*http.Cookie, error) {
	hash := hashOf(strings.TrimSpace(token))
	if _, err := l.server.access.holder(hash, l.server.Settings(r.Context())); err != nil {
		return nil,
			l.refused(r, "this token is not known here: it was mistyped or withdrawn; ask the person who runs the "+
				"server for another")
	}
	return l.cookie(r, l.sign(hash)), nil
}

// WithSecret returns the cookie of the browser that gave a one-time secret first, or an error for the
// person there. It ends the login of another browser.
func (l *Login) WithSecret(r *http.Request, secret string) (*http.Cookie, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hash, added := hashOf(secret), l.added()
	if hash != l.secret && hash != added && !l.used[hash] {
		return nil, l.refused(r, "this URL is not of the deepwork ui that runs here: open the one that it printed last")
	}
	if err := foreign(r); err != nil {
		return nil,
			l.refused(r, "this request is not of the user who runs deepwork ui, or came through a proxy: open the URL "+
				"on this machine, or forward its port with ssh -L")
	}

	if l.used[hash] {
		return nil, l.refused(r, "this URL was opened before, and works once: run deepwork ui again")
	}
	if hash == added {
		_ = os.Remove(l.file + addedSecret) // this server knows that it was used, and the next one removes it
	}
	cookie := rand.Text()
	l.used[hash] = true
	l.person = hashOf(cookie)
	l.kept = false
	l.keep()
	return l.cookie(r, cookie), nil
}

func (l *Login) refused(r *http.Request, why string) error {
	l.server.countRefused(r, http.StatusForbidden, refusedToken)
	return errors.New(why)
}

// LoggedIn reports whether a request has a cookie to end.
func (l *Login) LoggedIn(r *http.Request) bool {
	_, err := r.Cookie(l.cookieName())
	return err == nil
}

// Logout returns the cookie that replaces a request's. It ends the login of the person who started deepwork ui.
func (l *Login) Logout(r *http.Request) *http.Cookie {
	if cookie, err := r.Cookie(l.cookieName()); err == nil {
		if is, _ := l.isPerson(cookie.Value); is {
			l.mu.Lock()
			l.person = ""
			l.keep()
			l.mu.Unlock()
		}
	}
	gone := l.cookie(r, "")
	gone.MaxAge = -1
	return gone
}

// Admit counts a request for a page, whose context has the caller, until release is called. It refuses an excess
// request and reports false.
func (l *Login) Admit(w http.ResponseWriter, r *http.Request, stream bool) (release func(), ok bool) {
	return l.server.enter(w, r, stream)
}

// guardPages refuses requests for other hosts and from other sites, as guard does, but lets no other site
// read pages. On loopback it leads a browser from other names of this machine, such as localhost, to the
// address that is listened on: another user's server may have those.
func (h *Server) guardPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		settings := h.Settings(r.Context())
		named := slices.Contains(settings.AllowedHosts, hostOf(r.Host))
		own := func(origin string, settings config.HTTP) bool {
			u, err := url.Parse(origin)
			return h.sites.takesOrigin(origin, settings) ||
				(named || !h.sites.loopback) && err == nil && u.Host == r.Host
		}
		if h.refusesSite(w, r, settings, own) {
			return
		}
		here, _ := url.Parse(h.sites.origin) // made by Listen
		_, port, _ := net.SplitHostPort(r.Host)
		if h.sites.loopback && !named && r.Method == http.MethodGet && r.Host != here.Host && port == here.Port() {
			http.Redirect(w, r, h.sites.origin+r.URL.RequestURI(), http.StatusTemporaryRedirect)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// endPages ends what lasts of the pages when the server ends.
func (h *Server) endPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(h.ending, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
