package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/tool"
)

// bare is a backend without MCP and pages, and with these settings.
func bare(settings *config.HTTP) Backend {
	return Backend{Logger: slog.New(slog.DiscardHandler), Sessions: noSessions{}, InFlight: new(tool.InFlight), Local: session.LocalCaller(""),
		LastSettings: func() config.HTTP { return *settings }, Settings: func(context.Context) config.HTTP { return *settings }}
}

// pagesOf serves pages with these options until the test ends or stop is called.
func pagesOf(t *testing.T, o Options, settings config.HTTP, pages func(*Login) http.Handler) (h *Server, stop func()) {
	t.Helper()
	b := bare(&settings)
	b.Pages = func(l *Login) (http.Handler, error) { return pages(l), nil }
	return served(t, b, o)
}

// served serves a backend until the test ends or stop is called.
func served(t *testing.T, b Backend, o Options) (h *Server, stop func()) {
	t.Helper()
	h, err := Listen(t.Context(), b, o)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	stop = func() {
		cancel()
		testkit.Works(t, <-served)
		served <- nil
	}
	t.Cleanup(stop)
	return h, stop
}

// noSessions are the MCP sessions of a server that has none.
type noSessions struct{ Sessions }

func (noSessions) Len() int                  { return 0 }
func (noSessions) Stop()                     {}
func (noSessions) Close(context.Context) int { return 0 }

func ask(t *testing.T, method, url, body string, headers ...string) (status int, location, text string) {
	t.Helper()
	r := testkit.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))).Must(t)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	over := &http.Transport{DisableKeepAlives: true}
	defer over.CloseIdleConnections()
	res := testkit.Get(over.RoundTrip(r)).Must(t)
	defer res.Body.Close()
	all := testkit.Get(io.ReadAll(res.Body)).Must(t)
	return res.StatusCode, res.Header.Get("Location"), string(all)
}

// A form is bounded as a call is.
func TestFormsOfPagesAreBounded(t *testing.T) {
	h, _ := pagesOf(t, Options{}, config.HTTP{MaxConnections: 10, MaxRequests: 10, MaxBodyBytes: 1000}, func(*Login) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", body, err)
		})
	})
	base := strings.TrimSuffix(h.URL(), "/mcp")
	if status, _, text := ask(t, "POST", base+"/x", "a=b"); status != 200 || text != "a=b <nil>" {
		t.Errorf("%d %s", status, text)
	}
	if status, _, text := ask(t, "POST", base+"/x", strings.Repeat("a", 1001)); status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "http.max_body_bytes") {
		t.Errorf("%d %s", status, text)
	}
}

// Which hosts and origins pages are for, on loopback and off it.
func TestSitesOfPages(t *testing.T) {
	file := t.TempDir() + "/tokens"
	_, line, err := NewToken(config.Token{Name: "ann"})
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(file, []byte(line), 0o600))
	settings := config.HTTP{MaxConnections: 10, MaxRequests: 10, MaxBodyBytes: 1000, AllowedHosts: []string{"deep.example.com"}, AllowedOrigins: []string{"https://app.example.com"}}
	served := func(o Options) (base, port string) {
		h, _ := pagesOf(t, o, settings, func(*Login) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") })
		})
		port = h.sockets.Addr().String()
		port = port[strings.LastIndex(port, ":")+1:]
		return "http://127.0.0.1:" + port, port
	}
	base, port := served(Options{})
	_, free := served(Options{Host: "0.0.0.0", TokenFile: file})
	for _, c := range []struct {
		name, method, port, location string
		status                       int
		headers                      []string
	}{
		{"itself", "GET", port, "", 200, nil},
		{"its own form", "POST", port, "", 200, []string{"Origin: " + base}},
		{"localhost", "GET", port, base + "/x?a=b", 307, []string{"Host: localhost:" + port}},
		{"a form of localhost, which may be another user's", "POST", port, "", 403, []string{"Host: localhost:" + port, "Origin: http://localhost:" + port}},
		{"localhost, forwarded under another number", "GET", port, "", 200, []string{"Host: localhost:1"}},
		{"a proxy", "GET", port, "", 200, []string{"Host: deep.example.com"}},
		{"a form over a proxy", "POST", port, "", 200, []string{"Host: deep.example.com", "Origin: https://deep.example.com"}},
		{"another site over a proxy", "POST", port, "", 403, []string{"Host: deep.example.com", "Origin: https://evil.example.com"}},
		{"a rebound name", "GET", port, "", 403, []string{"Host: evil.example.com:" + port}},
		{"a rebound name with its origin", "POST", port, "", 403, []string{"Host: evil.example.com:" + port, "Origin: http://evil.example.com:" + port}},
		{"no origin that can be named", "POST", port, "", 403, []string{"Origin: null"}},
		{"off loopback", "POST", free, "", 200, []string{"Host: deep.example.com:" + free, "Origin: http://deep.example.com:" + free}},
		{"off loopback, another site", "POST", free, "", 403, []string{"Host: deep.example.com:" + free, "Origin: http://evil.example.com"}},
		{"off loopback, another port", "POST", free, "", 403, []string{"Host: deep.example.com:" + free, "Origin: http://deep.example.com:1"}},
	} {
		status, location, _ := ask(t, c.method, "http://127.0.0.1:"+c.port+"/x?a=b", "", c.headers...)
		testkit.Equal(t, status, c.status, "%s", c.name)
		testkit.Equal(t, location, c.location, "%s", c.name)
	}
}

// Requests for pages are bounded as calls are, a caller with a token by its quota, and those that last end
// with the server.
func TestPagesAreAdmitted(t *testing.T) {
	who := session.Caller{Identity: "ann"}
	entered, leave := make(chan bool), make(chan bool)
	h, stop := pagesOf(t, Options{}, config.HTTP{MaxConnections: 10, MaxRequests: 2, MaxBodyBytes: 1000, Quotas: config.Quotas{Requests: 1}}, func(l *Login) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("token") {
				r = r.WithContext(session.WithCaller(r.Context(), who))
			} else {
				r = r.WithContext(session.WithCaller(r.Context(), session.LocalCaller("")))
			}
			release, ok := l.Admit(w, r, r.URL.Path == "/events")
			if !ok {
				return
			}
			defer release()
			entered <- true
			if r.URL.Path == "/events" {
				<-r.Context().Done()
			} else {
				<-leave
			}
		})
	})
	base := strings.TrimSuffix(h.URL(), "/mcp")
	begin := func(path string) chan int {
		done := make(chan int, 1)
		go func() {
			status, _, _ := ask(t, "GET", base+path, "")
			done <- status
		}()
		<-entered
		return done
	}
	refused := func(path, why string) {
		t.Helper()
		if status, _, text := ask(t, "GET", base+path, ""); status != http.StatusTooManyRequests || !strings.Contains(text, why) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	stream, page := begin("/events?token"), begin("/x?token")
	refused("/x?token", "ann has 1 requests in flight")
	own := begin("/x")
	refused("/x", "http.max_requests")
	close(leave)
	if a, b := <-own, <-page; a != 200 || b != 200 {
		t.Error(a, b)
	}
	began := time.Now()
	stop()
	<-stream
	if took := time.Since(began); took > grace {
		t.Errorf("an open stream delays the end by %v", took)
	}
	if s := h.Stats(); s.Requests != 0 || s.Streams != 0 {
		t.Errorf("%+v", s)
	}
}

// logins returns the logins of a server with these options.
func logins(t *testing.T, o Options, settings *config.HTTP, local session.Caller) *Login {
	t.Helper()
	var login *Login
	b := bare(settings)
	b.Local = local
	b.Pages = func(l *Login) (http.Handler, error) {
		login = l
		l.Key = []byte("key")
		return http.NotFoundHandler(), nil
	}
	h, err := Listen(t.Context(), b, o)
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
	c := testkit.Get(l.WithToken(with(nil), " "+token+"\n")).Must(t)
	testkit.True(t, c.HttpOnly && c.SameSite == http.SameSiteStrictMode && c.Path == "/" && c.Domain == "" && !c.Secure && !strings.Contains(c.Value, token), "the cookie is %+v", c)
	want := session.Caller{Identity: "ann", Group: "web", Rights: config.RightMerge, Channel: session.ChannelPage}
	for _, r := range []*http.Request{with(c), proxied(with(c))} {
		testkit.Equal(t, testkit.Get(l.Caller(r)).Must(t), want)
	}
	for name, cookie := range map[string]*http.Cookie{"none": nil, "the token": {Name: c.Name, Value: token}, "its hash": {Name: c.Name, Value: hashOf(token)},
		"a signature of nothing": {Name: c.Name, Value: "." + strings.Split(c.Value, ".")[1]}, "another's signature": {Name: c.Name, Value: hashOf(token) + "." + strings.Split(l.sign("x"), ".")[1]}, "one with more": {Name: c.Name, Value: c.Value + "0"}, "another port's": {Name: "deepwork-1", Value: c.Value}} {
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
	testkit.Need(t, err == nil && c.HttpOnly && c.SameSite == http.SameSiteStrictMode && c.Value != "once", "%+v %v", c, err)
	if who, err := l.Caller(of(os.Geteuid()+1, with(c))); err == nil {
		t.Errorf("another user has got the cookie, and is %+v", who)
	}
	if who, err := l.Caller(users(proxied(with(c)))); err == nil {
		t.Errorf("somebody behind a proxy has got the cookie, and is %+v", who)
	}
	who, err := l.Caller(users(with(c)))
	testkit.True(t, err == nil && who.Owner && who.Has(session.RightAgents|session.RightMerge|session.RightPerson) && who.Channel == session.ChannelPage, "%+v %v", who, err)
	if c, err := l.WithSecret(users(with(nil)), "once"); err == nil || c != nil || !strings.Contains(err.Error(), "run deepwork ui again") {
		t.Errorf("the secret works twice: %v", err)
	}
	testkit.Works(t, testkit.Get(l.Caller(users(with(c)))).Err(), "the first browser is out")
	l.Logout(users(with(&http.Cookie{Name: c.Name, Value: "x"})))
	testkit.Works(t, testkit.Get(l.Caller(users(with(c)))).Err(), "a logout of nobody has ended the login")
	l.Logout(users(with(c)))
	if who, err := l.Caller(users(with(c))); err == nil {
		t.Errorf("after the logout, the cookie is that of %+v", who)
	}
}
