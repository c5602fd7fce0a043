package web

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/tool"
)

// logins returns the logins of a server with these options.
func logins(t *testing.T, o Options, settings *config.HTTP, local session.Caller) *Login {
	t.Helper()
	var login *Login
	h, err := Listen(t.Context(), Backend{Logger: slog.New(slog.DiscardHandler), Sessions: struct{ Sessions }{}, InFlight: new(tool.InFlight), Local: local,
		LastSettings: func() config.HTTP { return *settings }, Settings: func(context.Context) config.HTTP { return *settings },
		Pages: func(l *Login) (http.Handler, error) {
			login = l
			l.Key = []byte("key")
			return http.NotFoundHandler(), nil
		}}, o)
	testkit.Must(t, err)
	t.Cleanup(func() { h.Close() })
	return login
}

// with returns a request with a cookie.
func with(cookie *http.Cookie) *http.Request {
	r := httptest.NewRequest("GET", "http://127.0.0.1/", nil)
	if cookie != nil {
		r.AddCookie(cookie)
	}
	return r
}

// proxied returns a request as a proxy forwards it.
func proxied(r *http.Request) *http.Request {
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	return r
}

func TestLoginWithToken(t *testing.T) {
	token, line, err := NewToken(config.Token{Name: "ann", Group: "web", Rights: config.RightMerge})
	testkit.Must(t, err)
	file := t.TempDir() + "/tokens"
	testkit.Must(t, os.WriteFile(file, []byte(line), 0o600))
	l := logins(t, Options{TokenFile: file}, new(config.HTTP), session.LocalCaller(""))
	for _, wrong := range []string{"", "x", token + "x", token[1:], token + ";", line} {
		if c, err := l.WithToken(with(nil), wrong); err == nil || c != nil {
			t.Errorf("%q lets in", wrong)
		}
	}
	if c, err := l.WithSecret(with(nil), token); err == nil || c != nil {
		t.Error("a token is taken for the secret of a URL")
	}
	c, err := l.WithToken(with(nil), " "+token+"\n")
	testkit.Must(t, err)
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.Secure || strings.Contains(c.Value, token) {
		t.Errorf("the cookie is %+v", c)
	}
	want := session.Caller{Identity: "ann", Group: "web", Rights: config.RightMerge, Channel: session.ChannelPage}
	for _, r := range []*http.Request{with(c), proxied(with(c))} {
		if who, err := l.Caller(r); err != nil || who != want {
			t.Errorf("%+v %v", who, err)
		}
	}
	for name, cookie := range map[string]*http.Cookie{"none": nil, "the token": {Name: c.Name, Value: token}, "its hash": {Name: c.Name, Value: hashOf(token)},
		"a signature of nothing": {Name: c.Name, Value: "." + strings.Split(c.Value, ".")[1]}, "one with more": {Name: c.Name, Value: c.Value + "0"}, "another port's": {Name: "deepwork-1", Value: c.Value}} {
		if who, err := l.Caller(with(cookie)); err == nil {
			t.Errorf("%s is the cookie of %+v", name, who)
		}
	}
	other := &Login{server: l.server, Key: []byte("another project's")}
	if who, err := other.Caller(with(c)); err == nil {
		t.Errorf("the cookie of another project's server is that of %+v", who)
	}
	if gone := l.Logout(with(c)); !l.LoggedIn(with(c)) || gone.Name != c.Name || gone.MaxAge >= 0 || gone.Value != "" || gone.Path != "/" || !gone.HttpOnly {
		t.Errorf("the logout: %+v", gone)
	}
	testkit.Must(t, os.WriteFile(file, []byte("# withdrawn"), 0o600))
	if who, err := l.Caller(with(c)); err == nil || !strings.Contains(err.Error(), "withdrawn") {
		t.Errorf("the token was withdrawn: %+v %v", who, err)
	}
}

// Over TLS, browsers send the cookie over nothing else.
func TestLoginCookieOverTLS(t *testing.T) {
	l := logins(t, Options{Secret: "s"}, new(config.HTTP), session.LocalCaller(""))
	l.server.http.TLSConfig = new(tls.Config)
	if c, err := l.WithSecret(with(nil), "s"); err != nil || !c.Secure || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("%+v %v", c, err)
	}
}

func TestLoginWithSecret(t *testing.T) {
	l := logins(t, Options{Secret: "once"}, new(config.HTTP), session.LocalCaller(""))
	// The connection is the user's, which lets nobody in here: another program of the user may be an agent.
	of := func(user int, r *http.Request) *http.Request {
		return r.WithContext(context.WithValue(r.Context(), socketKey{}, &socket{peer: peer{user: uint32(user)}}))
	}
	users := func(r *http.Request) *http.Request { return of(os.Geteuid(), r) }
	for _, wrong := range []string{"", "x", "once2"} {
		if c, err := l.WithSecret(users(with(nil)), wrong); err == nil || c != nil {
			t.Errorf("%q lets in", wrong)
		}
		if who, err := l.Caller(users(with(&http.Cookie{Name: l.cookieName(), Value: wrong}))); err == nil {
			t.Errorf("the cookie %q is that of %+v", wrong, who)
		}
	}
	if who, err := l.Caller(users(with(nil))); err == nil || !strings.Contains(err.Error(), "deepwork ui") {
		t.Errorf("without a cookie: %+v %v", who, err)
	}
	// Another user has seen the URL among the arguments of the program that opens it, and is faster.
	if c, err := l.WithSecret(of(os.Geteuid()+1, with(nil)), "once"); err == nil || c != nil {
		t.Error("another user of the machine is let in")
	}
	if c, err := l.WithSecret(users(proxied(with(nil))), "once"); err == nil || c != nil || !strings.Contains(err.Error(), "ssh -L") {
		t.Errorf("somebody behind a proxy is let in: %v", err)
	}
	c, err := l.WithSecret(users(with(nil)), "once")
	if err != nil || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Value == "once" {
		t.Fatalf("%+v %v", c, err)
	}
	if who, err := l.Caller(of(os.Geteuid()+1, with(c))); err == nil {
		t.Errorf("another user has got the cookie, and is %+v", who)
	}
	if who, err := l.Caller(users(proxied(with(c)))); err == nil {
		t.Errorf("somebody behind a proxy has got the cookie, and is %+v", who)
	}
	who, err := l.Caller(users(with(c)))
	if err != nil || !who.Owner || !who.Has(session.RightAgents|session.RightMerge|session.RightPerson) || who.Channel != session.ChannelPage {
		t.Errorf("%+v %v", who, err)
	}
	if c, err := l.WithSecret(users(with(nil)), "once"); err == nil || c != nil || !strings.Contains(err.Error(), "run deepwork ui again") {
		t.Errorf("the secret works twice: %v", err)
	}
	if _, err := l.Caller(users(with(c))); err != nil {
		t.Errorf("the first browser is out: %v", err)
	}
	l.Logout(users(with(&http.Cookie{Name: c.Name, Value: "x"})))
	if _, err := l.Caller(users(with(c))); err != nil {
		t.Errorf("a logout of nobody has ended the login: %v", err)
	}
	l.Logout(users(with(c)))
	if who, err := l.Caller(users(with(c))); err == nil {
		t.Errorf("after the logout, the cookie is that of %+v", who)
	}
}
