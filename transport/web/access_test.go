package web

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
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
	return Backend{
		Logger:       slog.New(slog.DiscardHandler),
		Sessions:     someSessions{stop: func() {}},
		InFlight:     new(tool.InFlight),
		Local:        session.LocalCaller(""),
		LastSettings: func() config.HTTP { return *settings },
		Settings:     func(context.Context) config.HTTP { return *settings },
	}
}

// pagesOf serves pages with these options until the test ends or stop is called. It returns their URL, too.
func pagesOf(
	t *testing.T, o Options, settings config.HTTP, pages func(l *Login, w http.ResponseWriter, r *http.Request),
) (h *Server, base string, stop func()) {
	t.Helper()
	b := bare(&settings)
	b.Pages = func(l *Login) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pages(l, w, r) }), nil
	}
	h, stop = served(t, b, o)
	return h, strings.TrimSuffix(h.URL(), "/mcp"), stop
}

func served(t *testing.T, b Backend, o Options) (h *Server, stop func()) {
	t.Helper()
	h = testkit.Get(Listen(t.Context(), b, o)).Must(t)
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

type someSessions struct {
	Sessions
	n, stubborn int // that there are, and that do not end
	stop        func()
}

func (s someSessions) Len() int                  { return s.n }
func (s someSessions) Stop()                     { s.stop() }
func (s someSessions) Close(context.Context) int { return s.stubborn }

func ask(t *testing.T, method, url, body string, headers ...string) (status int, location, text string) {
	t.Helper()
	r := testkit.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))).Must(t)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	r.Host = r.Header.Get("Host")
	res := testkit.Get((&http.Transport{DisableKeepAlives: true}).RoundTrip(r)).Must(t)
	defer res.Body.Close()
	return res.StatusCode, res.Header.Get("Location"), string(testkit.Get(io.ReadAll(res.Body)).Must(t))
}

// A form is bounded as a call is. Of a caller that the pages do not know, it is not read.
func TestFormsOfPagesAreBounded(t *testing.T) {
	h, base, _ := pagesOf(t, Options{BodyTimeout: time.Second},
		config.HTTP{MaxConnections: 10, MaxRequests: 10, MaxBodyBytes: 1000, Quotas: config.Quotas{Requests: 9}}, func(
			l *Login, w http.ResponseWriter, r *http.Request,
		) {
			if r.URL.Path == "/unknown" {
				return
			}
			_, _ = l.Admit(w, r, false)
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %v", len(body), err)
		})
	testkit.Contains(t, raw(t, h, "POST /unknown HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: "+
		"100-continue\r\n\r\n"), "HTTP/1.1 200")
	for size, want := range map[int]string{3: "200 3 <nil>", 1000: "200 1000 <nil>", 1001: "413 "} {
		status, _, text := ask(t, "POST", base+"/x", strings.Repeat("a", size))
		testkit.Contains(t, fmt.Sprint(status, " ", text), want)
		testkit.Equal(t, strings.Contains(text, "http.max_body_bytes"), size == 1001, "%s", text)
	}
}

// Which hosts and origins pages are for, on loopback and off it.
func TestSitesOfPages(t *testing.T) {
	file, _ := writeToken(t, config.Token{Name: "ann"})
	settings := config.HTTP{
		MaxConnections: 10,
		MaxRequests:    10,
		MaxBodyBytes:   1000,
		AllowedHosts:   []string{"deep.example.com"},
		AllowedOrigins: []string{"https://app.example.com"},
	}
	serving := func(o Options) (base, port string) {
		h, _, _ := pagesOf(t, o, settings, func(_ *Login, w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "page")
		})
		_, port, _ = net.SplitHostPort(h.sockets.Addr().String())
		return "http://127.0.0.1:" + port, port
	}
	base, port := serving(Options{})
	_, free := serving(Options{Host: "0.0.0.0", TokenFile: file})
	for _, c := range []struct {
		name, method, port, location string
		status                       int
		headers                      []string
	}{
		{"itself", "GET", port, "", 200, nil},
		{"its own form", "POST", port, "", 200, []string{"Origin: " + base}},
		{"localhost", "GET", port, base + "/x?a=b", 307, []string{"Host: localhost:" + port}},
		{"a form of localhost, which may be another user's", "POST", port, "", 403,
			[]string{"Host: localhost:" + port, "Origin: http://localhost:" + port}},
		{"localhost, forwarded under another number", "GET", port, "", 200, []string{"Host: localhost:1"}},
		{"a proxy", "GET", port, "", 200, []string{"Host: deep.example.com"}},
		{"a form over a proxy", "POST", port, "", 200,
			[]string{"Host: deep.example.com", "Origin: https://deep.example.com"}},
		{"another site over a proxy", "POST", port, "", 403,
			[]string{"Host: deep.example.com", "Origin: https://evil.example.com"}},
		{"a rebound name", "GET", port, "", 403, []string{"Host: evil.example.com:" + port}},
		{"a rebound name with its origin", "POST", port, "", 403,
			[]string{"Host: evil.example.com:" + port, "Origin: http://evil.example.com:" + port}},
		{"no origin that can be named", "POST", port, "", 403, []string{"Origin: null"}},
		{"off loopback", "POST", free, "", 200,
			[]string{"Host: deep.example.com:" + free, "Origin: http://deep.example.com:" + free}},
		{"off loopback, another site", "POST", free, "", 403,
			[]string{"Host: deep.example.com:" + free, "Origin: http://evil.example.com"}},
		{"off loopback, another port", "POST", free, "", 403,
			[]string{"Host: deep.example.com:" + free, "Origin: http://deep.example.com:1"}},
	} {
		status, location, _ := ask(t, c.method, "http://127.0.0.1:"+c.port+"/x?a=b", "", c.headers...)
		testkit.Equal(t, status, c.status, "%s", c.name)
		testkit.Equal(t, location, c.location, "%s", c.name)
	}
}

// Requests for pages are bounded as calls are, a caller with a token by its quota, and those that last end
// with the server.
func TestPagesAreAdmitted(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	h, base, stop := pagesOf(t, Options{},
		config.HTTP{MaxConnections: 10, MaxRequests: 2, MaxBodyBytes: 1000, Quotas: config.Quotas{Requests: 1}}, func(
			l *Login, w http.ResponseWriter, r *http.Request,
		) {
			caller := session.LocalCaller("")
			if r.URL.Query().Has("token") {
				caller = session.Caller{Identity: "ann"}
			}
			r = r.WithContext(session.WithCaller(r.Context(), caller))
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
		status, _, text := ask(t, "GET", base+path, "")
		testkit.True(t, status == http.StatusTooManyRequests && strings.Contains(text, why), "%s: %d %s", path,
			status, text)
	}
	stream, page := begin("/events?token"), begin("/x?token")
	refused("/x?token", "ann has 1 requests in flight")
	own := begin("/x")
	refused("/x", "http.max_requests")
	close(leave)
	testkit.Equal(t, fmt.Sprint(<-own, <-page), "200 200")

	began := time.Now()
	stop()
	<-stream
	testkit.True(t, time.Since(began) <= grace, "an open stream delays the end by %v", time.Since(began))
	testkit.True(t, h.Stats().Requests == 0 && h.Stats().Streams == 0, "%+v", h.Stats())
}

// logins returns the logins of a server of the user with these options.
func logins(t *testing.T, o Options) *Login {
	t.Helper()
	var login *Login
	b := bare(new(config.HTTP))
	b.Token = func(bool) (string, error) { return "the user's token", nil }
	b.Pages = func(l *Login) (http.Handler, error) {
		login, l.Key = l, []byte("key")
		return http.NotFoundHandler(), nil
	}
	h := testkit.Get(Listen(t.Context(), b, o)).Must(t)
	t.Cleanup(func() { h.Close() })
	return login
}

// writeToken makes a file with a token, and returns that, too.
func writeToken(t *testing.T, of config.Token) (file, token string) {
	t.Helper()
	token, line, err := NewToken(of)
	testkit.Must(t, err)
	file = filepath.Join(t.TempDir(), "tokens")
	testkit.Must(t, os.WriteFile(file, []byte(line), 0o600))
	return file, token
}

func with(cookie *http.Cookie) *http.Request {
	r := httptest.NewRequest("GET", "http://127.0.0.1/", nil)
	if cookie != nil {
		r.AddCookie(cookie)
	}
	return r
}

func proxied(r *http.Request) *http.Request {
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	return r
}

func TestLoginWithToken(t *testing.T) {
	file, token := writeToken(t, config.Token{Name: "ann", Group: "web", Rights: config.RightMerge})
	l := logins(t, Options{TokenFile: file})
	for _, wrong := range []string{"", "x", token + "x", token[1:], token + ";", "ann:" + hashOf(token)} {
		testkit.Fails(t, testkit.Get(l.WithToken(with(nil), wrong)).Err(), "", "%q lets in", wrong)
	}
	testkit.Fails(t, testkit.Get(l.WithSecret(with(nil), token)).Err(), "", "a token is taken for the secret of a URL")
	c := testkit.Get(l.WithToken(with(nil), " "+token+"\n")).Must(t)
	testkit.True(t, c.HttpOnly, "the cookie is %+v", c)
	testkit.Equal(t, c.SameSite, http.SameSiteStrictMode, "the cookie is %+v", c)
	testkit.Equal(t, c.Path, "/", "the cookie is %+v", c)
	testkit.Equal(t, c.Domain, "", "the cookie is %+v", c)
	testkit.True(t, !c.Secure, "the cookie is %+v", c)
	testkit.True(t, !strings.Contains(c.Value, token), "the cookie is %+v", c)

	want := session.Caller{Identity: "ann", Group: "web", Rights: config.RightMerge, Channel: session.ChannelPage}
	for _, r := range []*http.Request{with(c), proxied(with(c))} {
		testkit.Equal(t, testkit.Get(l.Caller(r)).Must(t), want)
	}

	for name, cookie := range map[string]*http.Cookie{
		"none":                   nil,
		"the token":              {Name: c.Name, Value: token},
		"its hash":               {Name: c.Name, Value: hashOf(token)},
		"a signature of nothing": {Name: c.Name, Value: "." + strings.Split(c.Value, ".")[1]},
		"another's signature":    {Name: c.Name, Value: hashOf(token) + "." + strings.Split(l.sign("x"), ".")[1]},
		"one with more":          {Name: c.Name, Value: c.Value + "0"},
		"another port's":         {Name: "deepwork-1", Value: c.Value},
	} {
		testkit.Fails(t, testkit.Get(l.Caller(with(cookie))).Err(), "", "%s is the cookie of somebody", name)
	}
	other := &Login{server: l.server, Key: []byte("another project's")}
	testkit.Fails(t, testkit.Get(other.Caller(with(c))).Err(), "", "the cookie of another project's server")

	gone := l.Logout(with(c))
	testkit.True(t, l.LoggedIn(with(c)), "the logout: %+v", gone)
	testkit.Equal(t, gone.Name, c.Name, "the logout: %+v", gone)
	testkit.True(t, gone.MaxAge < 0, "the logout: %+v", gone)
	testkit.Equal(t, gone.Value, "", "the logout: %+v", gone)
	testkit.Equal(t, gone.Path, "/", "the logout: %+v", gone)
	testkit.True(t, gone.HttpOnly, "the logout: %+v", gone)

	testkit.Must(t, os.WriteFile(file, []byte("# withdrawn"), 0o600))
	testkit.Fails(t, testkit.Get(l.Caller(with(c))).Err(), "withdrawn")
}

func TestLoginWithSecret(t *testing.T) {
	l := logins(t, Options{Secret: "s"})
	l.server.http.TLSConfig = new(tls.Config)
	over := testkit.Get(l.WithSecret(with(nil), "s")).Must(t)
	testkit.True(t, over.Secure && strings.HasPrefix(over.Name, "__Host-"),
		"over TLS, browsers send the cookie over nothing else: %+v", over)
	l = logins(t, Options{Secret: "once"})

	// The connection is the user's, which lets nobody in here: another program of the user may be an agent.
	users := func(r *http.Request) *http.Request { return of(os.Geteuid(), r) }
	for _, wrong := range []string{"", "x", "once2"} {
		testkit.Fails(t, testkit.Get(l.WithSecret(users(with(nil)), wrong)).Err(), "", "%q lets in", wrong)
		testkit.Fails(t, testkit.Get(l.Caller(users(with(&http.Cookie{Name: l.cookieName(), Value: wrong})))).Err(), "",
			"the cookie %q", wrong)
	}
	testkit.Fails(t, testkit.Get(l.Caller(users(with(nil)))).Err(), "deepwork ui", "without a cookie")

	// Another user has seen the URL among the arguments of the program that opens it, and is faster.
	testkit.Fails(t, testkit.Get(l.WithSecret(of(os.Geteuid()+1, with(nil)), "once")).Err(), "",
		"another user of the machine")
	testkit.Fails(t, testkit.Get(l.WithSecret(users(proxied(with(nil))), "once")).Err(), "ssh -L",
		"somebody behind a proxy")
	c := testkit.Get(l.WithSecret(users(with(nil)), "once")).Must(t)
	testkit.True(t, c.HttpOnly, "%+v", c)
	testkit.Equal(t, c.SameSite, http.SameSiteStrictMode)
	testkit.True(t, c.Value != "once", "%+v", c)
	testkit.Fails(t, testkit.Get(l.Caller(of(os.Geteuid()+1, with(c)))).Err(), "", "another user has got the cookie")
	testkit.Fails(t, testkit.Get(l.Caller(users(proxied(with(c))))).Err(), "",
		"somebody behind a proxy has got the cookie")
	who := testkit.Get(l.Caller(users(with(c)))).Must(t)
	testkit.True(t, who.Owner, "%+v", who)
	testkit.True(t, who.Has(session.RightAgents|session.RightMerge|session.RightPerson), "%+v", who)
	testkit.Equal(t, who.Channel, session.ChannelPage)
	testkit.Fails(t, testkit.Get(l.WithSecret(users(with(nil)), "once")).Err(), "run deepwork ui again",
		"the secret works twice")
	l.Logout(users(with(&http.Cookie{Name: c.Name, Value: "x"})))
	testkit.Works(t, testkit.Get(l.Caller(users(with(c)))).Err(), "a logout of nobody has ended the login")
	l.Logout(users(with(c)))
	testkit.Fails(t, testkit.Get(l.Caller(users(with(c)))).Err(), "", "after the logout")
}

func TestNewToken(t *testing.T) {
	// A token and its line say the same of name, group and rights.
	seen := map[string]bool{}
	for _, c := range slices.Repeat([]config.Token{{Name: "a", Group: "g"}, {Name: "a", Rights: config.RightMerge},
		{Name: "a", Group: "g", Rights: config.AllRights}, {Name: "ci.build-1"}}, 20) {
		token, line, err := NewToken(c)
		testkit.Need(t, err == nil, "%q %q %v", token, line, err)
		testkit.Need(t, len(token) == 43, "%q %q %v", token, line, err)
		testkit.Need(t, !seen[token], "%q %q %v", token, line, err)
		seen[token] = true
		sum := sha256.Sum256([]byte(token))
		c.SHA256 = hex.EncodeToString(sum[:])
		testkit.Contains(t, line, c.Name+":"+c.SHA256)

		all := testkit.Get(parseTokens([]byte(line))).Must(t)
		got, ok := identify(all, hashOf(token))
		testkit.True(t, ok && got == c, "its own token gives %+v %v", got, ok)
		_, ok = identify(all, hashOf(token+"x"))
		testkit.True(t, !ok, "another token is let in")
	}
	for _, name := range []string{"", "a b", "a:b", strings.Repeat("a", 65), "é", "a\n"} {
		token, _, err := NewToken(config.Token{Name: name})
		testkit.True(t, err != nil && token == "", "%q is a name", name)
	}
}

func TestTokenFile(t *testing.T) {
	hash := strings.Repeat("0123456789ABCDEF", 4)
	other := strings.Repeat("ab", 32)
	good, err := parseTokens([]byte("# who\n\n  ann : " + hash + "  \r\nann:" + strings.ToLower(hash) +
		"\nbob:" + other))
	testkit.Need(t, err == nil, "%v %v", good, err)
	testkit.Need(t, len(good) == 2, "%v %v", good, err)
	testkit.Equal(t, good[0].Name, "ann")
	testkit.Equal(t, good[0].SHA256, strings.ToLower(hash))
	lower := strings.ToLower(hash)
	for text, want := range map[string]config.Token{
		":web":                {Group: "web"},
		" : : merge , agents": {Rights: config.RightAgents | config.RightMerge},
		":web:person":         {Group: "web", Rights: config.RightPerson},
		"::":                  {},
	} {
		want.Name, want.SHA256 = "ann", lower
		testkit.Same(t, testkit.Get(parseTokens([]byte("ann:"+hash+text))).Must(t), []config.Token{want}, "%q", text)
	}
	for text, want := range map[string]string{
		"ann":                  "line 1 is not name:sha256",
		"\nann:secret":         `line 2: what follows "ann" is not the SHA-256`,
		"a b:" + hash:          `line 1: "a b" is not a name`,
		"ann:" + hash + ":a b": `line 1: the group of "ann" is not`,
		"ann:" + hash +
			":g:agents,secret": `line 1: the rights of "ann" are not a comma list of agents,merge,person`,
		"ann:" + hash + ":g:agents:x":           "line 1 is not name:sha256[:group[:rights]]",
		"ann:" + hash + " # old":                "line 1: what follows",
		"ann:" + strings.Repeat("z", len(hash)): "line 1: what follows",
		"ann:" + hash + "\n\nbob:" + lower:      `line 3: "bob" has the sha256 of "ann" in line 1`,
		"ann:" + hash + "\nann:" + hash + ":g":  `line 2: "ann" has the sha256 of "ann" in line 1`,
	} {
		_, err := parseTokens([]byte(text))
		testkit.Need(t, err != nil, "%q: %v", text, err)
		testkit.True(t, strings.HasPrefix(err.Error(), want), "%q: %v", text, err)
		testkit.True(t, !strings.Contains(err.Error(), "secret"), "%q: %v", text, err)
		testkit.True(t, !strings.Contains(strings.ToLower(err.Error()), lower), "%q: %v", text, err)
	}
}

// A file of tokens that everybody can read, and a secret that everybody may write to, are refused.
func TestFilesOfEverybodyAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not looked at there")
	}

	for size, want := range map[int64]string{
		maxTokenFile:     "line 1: what follows",
		maxTokenFile + 1: "it is larger than",
	} {
		large, _ := writeToken(t, config.Token{Name: "ann"})
		testkit.Must(t, os.Truncate(large, size))
		testkit.Fails(t, testkit.Get(openTokenFile(large, slog.New(slog.DiscardHandler))).Err(), want)
	}
	file, _ := writeToken(t, config.Token{Name: "ann"})
	testkit.Works(t, testkit.Get(openTokenFile(file, slog.New(slog.DiscardHandler))).Err())
	testkit.Must(t, os.Chmod(file, 0o644))
	testkit.Fails(t, testkit.Get(openTokenFile(file, nil)).Err(), "chmod 600")
	testkit.Must(t, os.Chmod(file, 0o602))
	_, err := openTokenFile(file, slog.New(slog.DiscardHandler))
	_, keyErr := Listen(t.Context(), Backend{}, Options{TLSCert: file, TLSKey: file})
	for _, err := range []error{err, keyErr} {
		testkit.Fails(t, err, "everybody may write to it: run chmod o-w on it")
		testkit.Fails(t, err, file)
	}
}

// A file that was changed within the same tick of the clock, to the same size, is noticed all the same.
func TestTokenFileChangedInOneTick(t *testing.T) {
	file, token := writeToken(t, config.Token{Name: "ann"})
	f := testkit.Get(openTokenFile(file, nil)).Must(t)
	info := testkit.Get(os.Stat(file)).Must(t)
	testkit.Must(t, os.WriteFile(file, []byte("ann:"+strings.Repeat("0", 64)), 0o600))
	testkit.Must(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
	testkit.Until(t, "the change to be noticed", func() bool {
		_, ok := identify(f.tokens(), hashOf(token))
		return !ok
	})
}

// A line of the token file that has a fault lets nobody in; while the file is gone, its tokens have a moment.
func TestFaultyTokenFile(t *testing.T) {
	ann, bob := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	file := filepath.Join(t.TempDir(), "tokens")
	put := func(text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	put("ann:" + ann + "::agents\nbob:" + bob + "\n")
	f := testkit.Get(openTokenFile(file, slog.New(slog.DiscardHandler))).Must(t)
	check := func(what, want string) {
		t.Helper()
		var got []string
		all, closed := f.current()
		for _, c := range all {
			got = append(got, strings.TrimSuffix(c.Name+"/"+c.Rights.String(), "/"))
		}
		testkit.Equal(t, strings.Join(got, " ")+map[bool]string{true: "closed"}[closed], want, "%s", what)
	}
	good := "ann:" + ann + "::agents\nbob:" + bob + "\n"
	check("good", "ann/agents bob")
	for text, want := range map[string]string{
		"x:y\nbob:" + bob:                                     "bob",
		"x:y\n# ann:" + ann + "\nbob:" + bob:                  "bob",
		"x:y\nann:" + ann + "\nbob:" + bob:                    "ann bob", // the right was removed
		"ann:" + ann + "::agens\nbob:" + bob:                  "bob",     // mistyped
		"eve:" + strings.Repeat("0c", 32) + "\nx\nbob:" + bob: "eve bob",
		"ann:" + ann + "::agents\neve:" + ann + "\n":          "ann/agents", // one token of two
		"nonsense": "closed",
	} {
		put(good)
		check("good", "ann/agents bob")
		put(text)
		check(text, want)
	}
	put(good)
	check("good again", "ann/agents bob")
	testkit.Must(t, os.Remove(file))
	check("gone", "ann/agents bob")
	f.since = f.since.Add(-tokenFileGrace)
	check("gone for long", "closed")
	put("bob:" + bob)
	check("back", "bob")
}

// The faults of a token file never show a hash, which may be a token that was put there by mistake.
func FuzzTokens(f *testing.F) {
	hash := strings.Repeat("9f", 32)
	for _, s := range []string{"ann:" + hash, "# c\n\nann : " + hash + "\r\nbob:" + strings.ToUpper(hash),
		"ann:" + hash + "\nann:" + hash, "ann", "ann:" + hash + ":web:agents, merge,person",
		"ann:" + hash + "::" + hash, ":" + hash, "ann:secret-secret", "\xff:" + hash} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseTokens(data)
		if err != nil {
			showsNoSecret(t, string(data), err)
			return
		}

		var again strings.Builder
		for _, c := range all {
			testkit.Works(t, config.CheckTokenName(c.Name), "the token %+v", c)
			testkit.Equal(t, c.Rights&^config.AllRights, 0, "unknown rights")
			fmt.Fprintf(&again, "%s:%s:%s:%s\n", c.Name, c.SHA256, c.Group, c.Rights)
		}
		second, err := parseTokens([]byte(again.String()))
		testkit.Works(t, err, "%q", again.String())
		testkit.Same(t, second, all, "%q", again.String())
	})
}

// showsNoSecret checks that the fault of a token file shows only what is before the colons. A text that is shorter
// than a token may be in it by chance.
func showsNoSecret(t *testing.T, file string, fault error) {
	t.Helper()
	names := regexp.MustCompile(`(?m):.*$`).ReplaceAllString(file, "")
	for line := range strings.Lines(file) {
		_, secret, _ := strings.Cut(strings.TrimSpace(line), ":")
		if len(secret) >= 20 && !strings.Contains(names, secret) {
			testkit.Lacks(t, fault.Error(), []string{secret})
		}
	}
}

// A server on loopback takes no Host but this machine's own, however it is written, and no Origin (DNS rebinding).
func FuzzSites(f *testing.F) {
	for _, s := range []string{"localhost:8000", "LOCALHOST.", "127.0.0.1", "[::1]:80", "127.0.0.1.evil.example",
		"localhost.evil.example", "http://localhost:1", "https://[::1]",
		"http://localhost@evil.example", "http://evil.example#localhost", "null", "file://localhost",
		"[::ffff:127.0.0.1]", "0x7f.1", "::1%lo", "[localhost]:1", "localhost:1:2"} {
		f.Add(s)
	}

	own := sites{loopback: true, host: "127.0.0.1", addr: netip.MustParseAddr("127.0.0.1")}
	f.Fuzz(func(t *testing.T, header string) {
		if own.takesHost(header, config.HTTP{}) {
			testkit.True(t, namesThisMachine(header), "the Host %q is taken", header)
		}
		if header != "" {
			testkit.True(t, !own.takesOrigin(header, config.HTTP{}), "the Origin %q is taken", header)
		}
	})
}

// namesThisMachine reports whether a Host is one of this machine. It reads it by hand, and from the other end: what
// may be before a port, and nothing else.
func namesThisMachine(host string) bool {
	name := strings.ToLower(host)
	i := strings.LastIndexByte(name, ':')
	if i >= 0 && (strings.Count(name, ":") == 1 || strings.HasSuffix(name[:i], "]")) {
		name = name[:i]
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if name == "localhost" || name == "localhost." {
		return true
	}

	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}
