package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/transport/tool"
)

// A slot that is given up while it is waited for goes to the next, and one of the user's is not counted.
func TestSlots(t *testing.T) {
	s := slots{limit: func() int { return 1 }}
	release, _ := s.take(t.Context(), false)
	own, ok := s.take(t.Context(), true)
	testkit.True(t, ok, "the user waits")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, ok = s.take(ctx, true)
	testkit.True(t, !ok, "a second one of the user is not counted")

	own()
	_, ok = s.take(t.Context(), true)
	testkit.True(t, ok, "the user waits, though no other connection of theirs is served")

	served := make(chan func(), 1)
	go func() {
		release, _ := s.take(t.Context(), false)
		served <- release
	}()
	release()
	(<-served)()
	testkit.Equal(t, len(s.tokens), 0, "are taken at the end")

	// The user's own slot goes to the next of the user's requests that wait when it is free again.
	synctest.Test(t, func(t *testing.T) {
		s := &slots{limit: func() int { return 1 }}
		first, _ := s.take(t.Context(), true)
		last, ok := s.take(t.Context(), false)
		testkit.Need(t, ok, "the only slot is not given")

		others := make(chan bool, 2)
		for _, user := range []bool{false, true} {
			go func() {
				_, ok := s.take(t.Context(), user)
				others <- ok && user
			}()
		}

		synctest.Wait()
		first()
		testkit.True(t, <-others, "the slot went to somebody else")

		last()
		<-others
	})
}

// A reply that is being written when its call is over keeps the server, too.
func TestStopWaitsForReplies(t *testing.T) {
	h := &Server{Backend: Backend{InFlight: new(tool.InFlight)}, sockets: new(sockets)}
	session := &sseSession{}
	session.owed.Add(1)
	h.sse.sessions.Store("s", session)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	testkit.True(t, !h.quiet(ctx), "it does not wait")

	session.owed.Add(-1)
	testkit.True(t, h.quiet(context.Background()), "it waits for a reply that is written")
}

// A session beyond the limit is refused, and the last one within it is not.
func TestSessionsAreBounded(t *testing.T) {
	for n, want := range map[int]int{
		2*sessionsPerConnection - 1: 202,
		2 * sessionsPerConnection:   503,
		2*sessionsPerConnection + 1: 503,
	} {
		b := bare(&config.HTTP{MaxConnections: 2, MaxRequests: 10, MaxBodyBytes: 1000, IdleTimeout: time.Minute})
		b.Sessions, b.MCP = someSessions{n: n}, mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
		h := testkit.Get(Listen(t.Context(), b, Options{})).Must(t)
		got := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		h.streamable().ServeHTTP(got, r)
		testkit.Equal(t, got.Code, want, "with %d sessions: %s", n, got.Body)
		testkit.Equal(t, got.Header().Get("Retry-After") == "60" && strings.HasPrefix(got.Body.String(),
			"4 MCP sessions are open, as many as are allowed"), want == 503, "with %d sessions: %s", n, got.Body)
		testkit.Must(t, h.Close())
	}
}

// A batch is counted by its messages. A call whose id the SDK would round is answered with that id; the rest
// of what looks so is served.
func TestMessagesAndIDsOfABody(t *testing.T) {
	for body, want := range map[string]int{
		``:                               1,
		`{"id":1}`:                       1,
		`[`:                              1,
		`[1,2]`:                          2,
		` [{"a":[1,2,{"b":",\","}]},{}]`: 2,
		`{"a":[1,2]}`:                    1,
	} {
		testkit.Equal(t, len(messages([]byte(body))), want, "%s", body)
	}

	h := testkit.Get(Listen(t.Context(),
		bare(&config.HTTP{MaxConnections: 5, MaxRequests: 5, MaxBodyBytes: 1000, Quotas: config.Quotas{Requests: 5}}),
		Options{})).Must(t)
	defer h.Close()
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":-1732700000123456789,"method":"ping"}`: `{"jsonrpc":"2.0",` +
			`"id":-1732700000123456789,"error":{"code":-32600,`,
		`[{"jsonrpc":"2.0","id":7,"method":"ping"},{"id":1.5,"method":"ping"}]`: `{"jsonrpc":"2.0","id":1.5,` +
			`"error":`,
		`{"jsonrpc":"2.0","id":7,"method":"x","params":{"id":1732700000123456789}}`: "served",
		`{"id":1732700000123456789,`:                                   "served",
		`{"jsonrpc":"2.0","id":"1732700000123456789","method":"ping"}`: "served",
		`{"jsonrpc":"2.0","id":1732700000123456789,"result":{}}`:       "served",
	} {
		got := httptest.NewRecorder()
		h.admit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })).
			ServeHTTP(got, httptest.NewRequest("POST", "/mcp", strings.NewReader(body)))
		testkit.Contains(t, got.Body.String(), want, "%s", body)
		testkit.Equal(t, got.Code == 200, want == "served", "%s", body)
	}
}

// Calls are accepted once the config is good and the store answers, until the server stops.
func TestReadiness(t *testing.T) {
	b := bare(&config.HTTP{MaxConnections: 1, MaxRequests: 1, Quotas: config.Quotas{Requests: 1}})
	h := testkit.Get(Listen(t.Context(), b, Options{})).Must(t)
	defer h.Close()
	ready := func(err error) string {
		h.Check = func(context.Context) error { return err }
		got := httptest.NewRecorder()
		h.readyz(got, httptest.NewRequest("GET", "/readyz", nil))
		return fmt.Sprint(got.Code, " ", strings.TrimSpace(got.Body.String()))
	}
	testkit.Equal(t, ready(nil), "200 ok")
	testkit.Equal(t, ready(errors.New("line 1 is odd")), "503 the configuration is not valid")
	testkit.Equal(t, ready(session.NotNow(codes.StoreUnavailable, "away")), "503 the store does not answer")

	leave, ok := h.enter(httptest.NewRecorder(), httptest.NewRequest("POST", "/mcp", nil), false)
	testkit.Need(t, ok, "a request is refused before the stop")
	leave()
	h.stop()
	testkit.Equal(t, ready(nil), "503 stopping")

	for _, stream := range []bool{false, true} {
		got := httptest.NewRecorder()
		_, ok = h.enter(got, httptest.NewRequest("POST", "/mcp", nil), stream)
		testkit.Equal(t, fmt.Sprint(ok, got.Code, got.Header()["Retry-After"], got.Header()["Connection"]),
			"false 503 [1] [close]")
	}
	testkit.Equal(t, fmt.Sprint(h.Stats()), fmt.Sprint(Stats{}), "what was refused is still counted")
}

// A stop that has waited long enough cancels the calls in flight, waits for their answers, and says what did not end.
func TestStopCutsOffCalls(t *testing.T) {
	var log testkit.Log
	var leave func()
	answering := make(chan struct{})
	b := bare(&config.HTTP{MaxConnections: 5, MaxRequests: 5, Quotas: config.Quotas{Requests: 5}})
	b.Logger, b.Sessions = slog.New(slog.NewTextHandler(&log, nil)), someSessions{
		stubborn: 2,
		stop: sync.OnceFunc(func() {
			go func() {
				<-answering
				leave()
			}()
			time.AfterFunc(2*drainPoll, func() { close(answering) })
		}),
	}

	h := testkit.Get(Listen(t.Context(), b, Options{Grace: time.Millisecond})).Must(t)
	leave, _ = h.count(httptest.NewRecorder(), httptest.NewRequest("POST", "/mcp", nil), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Works(t, h.Serve(ctx))
	testkit.Equal(t, h.Stats().Requests, 0, "it did not wait for the answer")
	testkit.ContainsAll(t, log.String(),
		[]string{`"calls in flight are cut off" after_ms=1`, `"connections did not stop" connections=2`})
}

// A connection beyond those that can be open is accepted when another one has ended.
func TestConnectionsBeyondTheFilesWait(t *testing.T) {
	listener := testkit.Get(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	s := newSockets(listener, 1, time.Second, func(net.Conn) peer { return peer{} })
	accepted := make(chan net.Conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c, err := s.Accept(); err == nil; c, err = s.Accept() {
			accepted <- c
		}
	}()

	for range 2 {
		c := testkit.Get(net.Dial("tcp", listener.Addr().String())).Must(t)
		defer c.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Error("a second connection is accepted")
	case <-time.After(20 * time.Millisecond):
	}
	first.Close()
	first.Close() // it counts once
	(<-accepted).Close()
	testkit.Equal(t, s.open.Load(), 0, "are open at the end")

	testkit.Must(t, s.Close())
	<-ended
}

func TestHostsAndOrigins(t *testing.T) {
	take := func(taken, never string, takes func(word string) bool) {
		t.Helper()
		for word := range strings.FieldsSeq(taken + " " + never) {
			testkit.Equal(t, takes(word), strings.Contains(" "+taken+" ", " "+word+" "), "%s is taken", word)
		}
	}

	loopback := sites{
		loopback: true,
		host:     "127.0.0.1",
		addr:     netip.MustParseAddr("127.0.0.1"),
		origin:   "http://127.0.0.1:8000",
	}
	one := sites{host: "build.example.com", addr: netip.MustParseAddr("10.0.0.7")}
	all := sites{host: "0.0.0.0", addr: netip.IPv4Unspecified()}
	named := config.HTTP{
		AllowedHosts:   []string{"deep.example.com", "::7"},
		AllowedOrigins: []string{"https://app.example.com", "http://localhost:3000"},
	}
	for _, c := range []struct {
		sites        sites
		settings     config.HTTP
		taken, never string
	}{
		{loopback, config.HTTP{}, "localhost localhost:80 LocalHost:8000 127.0.0.1 127.0.0.1:8000 127.1.2.3:9 [::1] " +
			"[::1]:8000 ::1 localhost.",
			"example.com localhost.example.com 127.0.0.1.nip.io 10.0.0.7 0.0.0.0 [::2]:80 deep.example.com " +
				"notlocalhost x.localhost 127.0.0.1. 127.0.0.1@evil.com 2130706433 0x7f.1"},
		{loopback, named, "deep.example.com Deep.Example.com:443 [::7]:8000 localhost:1",
			"example.com x.deep.example.com"},
		{one, config.HTTP{}, "build.example.com BUILD.example.com:8000 10.0.0.7 10.0.0.7:8000 [::ffff:10.0.0.7]:1",
			"localhost example.com 10.0.0.8 127.0.0.1"},
		{all, config.HTTP{}, "whatever.example.com 10.0.0.7:1 localhost", ""},
		{all, named, "deep.example.com:1", "whatever.example.com 10.0.0.7"},
	} {
		take(c.taken, c.never, func(host string) bool { return c.sites.takesHost(host, c.settings) })
		testkit.True(t, !c.sites.loopback || !c.sites.takesHost("", c.settings), "no host is taken")
		testkit.True(t, c.sites.takesOrigin("", c.settings), "what is no browser is refused")
	}

	take("http://127.0.0.1:8000",
		"http://localhost http://localhost:6274 https://127.0.0.1:1 http://[::1]:8000 https://127.0.0.1:8000 "+
			"http://127.0.0.1:8001 http://127.0.0.1 http://localhost:8000 "+
			"http://127.0.0.2:8000 http://[::ffff:127.0.0.1]:8000 null https://app.example.com "+
			"http://localhost.example.com file:// http://10.0.0.7 localhost ftp://localhost",
		func(origin string) bool { return loopback.takesOrigin(origin, config.HTTP{}) })
	take("http://127.0.0.1:8000 https://app.example.com https://APP.example.com http://localhost:3000",
		"http://app.example.com https://app.example.com:444 https://x.app.example.com "+
			"http://localhost:3001 http://127.0.0.1:3000 https://localhost:3000 http://localhost null",
		func(origin string) bool { return loopback.takesOrigin(origin, named) })
}

// What a proxy adds or passes on shows that a request is not of this machine; what clients and browsers send
// here does not.
func TestField02_RequestsThroughProxies(t *testing.T) {
	for _, name := range []string{
		"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
		"X-Forwarded-Server", "X-Forwarded-Prefix",
		"X-Forwarded-Client-Cert", "X-Forwarded", "Forwarded-For", "X-Forward-For", "X-Real-IP", "X-Real-Port",
		"X-Original-Host", "X-Original-URL", "X-Original-Forwarded-For",
		"CF-Connecting-IP", "CF-Connecting-IPv6", "CF-Ray", "CF-IPCountry", "CF-Visitor", "CF-Warp-Tag-ID",
		"Cf-Access-Jwt-Assertion", "CDN-Loop",
		"Ngrok-Trace-Id", "Ngrok-Auth-User-Email", "ngrok-skip-browser-warning", "X-Ngrok-Host",
		"Tailscale-User-Login", "Tailscale-User-Name", "Tailscale-Funnel-Request", "Tailscale-Headers-Info",
		"True-Client-IP", "X-Client-IP", "Client-IP", "X-Cluster-Client-IP", "Fly-Client-IP", "Fastly-Client-IP",
		"DO-Connecting-IP", "WL-Proxy-Client-IP", "X-Envoy-External-Address",
	} {
		for _, value := range []string{"127.0.0.1", ""} {
			r := httptest.NewRequest("GET", "http://127.0.0.1:8000/", nil)
			r.Header.Set(name, value)
			testkit.Equal(t, strings.ToLower(sentByProxy(r)), strings.ToLower(name), "the proxy is recognized by")
		}
	}
	for _, name := range []string{
		"Accept", "Accept-Language", "Authorization", "Cache-Control", "Connection", "Content-Length", "Content-Type",
		"Cookie", "DNT", "HX-Current-URL", "HX-Request",
		"Last-Event-ID", "Mcp-Method", "Mcp-Protocol-Version", "Mcp-Session-Id", "Origin", "Pragma", "Priority",
		"Referer", "Sec-Ch-Ua", "Sec-Fetch-Site", "Sec-GPC",
		"Traceparent", "Upgrade-Insecure-Requests", "User-Agent", "X-Client-Version", "X-Request-Id",
		"X-Requested-With",
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1:8000/", nil)
		r.Header.Set(name, "x")
		testkit.Equal(t, sentByProxy(r), "", "%s: a proxy is recognized by", name)
	}
	for hosts, want := range map[string]string{
		"localhost LOCALHOST localhost. localhost:1 127.0.0.1 127.0.0.1:8000 127.1.2.3:65535 [::1] [::1]:443 ::1 " +
			"[::ffff:127.0.0.1]:80": "",
		"deep.example.com deep.example.com:8000 x.localhost x.localhost:8000 localhost.example.com 127.0.0.1. " +
			"127.0.0.1.nip.io 10.0.0.7:8000 0.0.0.0:8000 [::] [::ffff:10.0.0.7] [::1%25lo] localhost:1:2": "Host",
	} {
		for host := range strings.FieldsSeq(hosts + " ") {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = host
			testkit.Equal(t, sentByProxy(r), want, "Host %s: the proxy is recognized by", host)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = ""
	testkit.True(t, sentByProxy(r) != "", "a request without Host is the user's")
}

// Without tokens the start says who may call, and refuses --allowed-host.
func TestStartWithoutTokens(t *testing.T) {
	hosts := []string{"deep.example.com"}
	own := config.HTTP{Tokens: []config.Token{{Name: "ann", SHA256: strings.Repeat("0", 64)}}}
	for _, c := range []struct {
		o           Options
		settings    config.HTTP
		says, fails string
	}{
		{Options{}, config.HTTP{}, "only your own programs on this machine may call; behind a proxy, tokens are needed",
			""},
		{Options{}, own, "", ""},
		{Options{AllowedHosts: hosts}, config.HTTP{}, "", "Run deepwork token new NAME"},
		{Options{AllowedHosts: hosts, UnknownPeers: true}, config.HTTP{}, "", "leave out --allowed-host"},
		{Options{AllowedHosts: hosts}, own, "", ""},
		{Options{}, config.HTTP{AllowedHosts: hosts}, "only your own programs", ""}, // it is there for all servers
		{Options{Host: "0.0.0.0"}, config.HTTP{}, "", "can be reached from other machines, and there is no token"},
		{Options{Host: "::"}, config.HTTP{}, "", "deepwork token new"},
		{Options{Host: "0.0.0.0"}, own, "", ""},
	} {
		if !CanKnowPeers() && c.says != "" {
			continue
		}

		var log bytes.Buffer
		b := bare(&c.settings)
		b.Logger, b.Token = slog.New(slog.NewTextHandler(&log, nil)), func(bool) (string, error) { return "token", nil }
		h, err := Listen(t.Context(), b, c.o)
		if err == nil {
			testkit.Must(t, h.Close())
		}
		testkit.Equal(t, err != nil, c.fails != "", "%+v: %v", c.o, err)
		testkit.Contains(t, fmt.Sprint(err), c.fails, "%+v", c.o)
		testkit.Contains(t, log.String(), c.says, "%+v", c.o)
		testkit.Equal(t, strings.Contains(log.String(), "may call"), c.says != "", "%+v: the log says %s", c.o,
			log.String())
	}
}

var roomy = config.HTTP{MaxConnections: 10, MaxRequests: 10, MaxBodyBytes: 2000}

// The error of an option says what is wrong and what to do. A server that is closed says which one has ended.
func TestListenErrors(t *testing.T) {
	taken, _ := served(t, bare(&roomy), Options{})
	dir := t.TempDir()
	empty, bad := filepath.Join(dir, "empty"), filepath.Join(dir, "bad")
	testkit.Must(t, errors.Join(os.WriteFile(empty, []byte("# nobody\n"), 0o600),
		os.WriteFile(bad, []byte("x\n"), 0o600)))
	for says, o := range map[string]Options{
		"another --port":                      {Port: taken.sockets.Addr().(*net.TCPAddr).Port},
		"listening on no.such.host.invalid:0": {Host: "no.such.host.invalid"},
		"reading the token file":              {TokenFile: filepath.Join(dir, "none")},
		"not a regular file":                  {TokenFile: dir},
		"deepwork token new":                  {TokenFile: empty},
		"line 1 is not name:sha256":           {TokenFile: bad},
		"loading the TLS certificate":         {TLSCert: bad, TLSKey: bad},
	} {
		testkit.Fails(t, testkit.Get(Listen(t.Context(), bare(&roomy), o)).Err(), says, "%+v", o)
	}
	testkit.Works(t, testkit.Get(Listen(t.Context(), bare(&roomy), Options{})).Must(t).Close(),
		"closing one that was not served")

	h := testkit.Get(Listen(t.Context(), bare(&roomy), Options{})).Must(t)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(t.Context()) }()
	ask(t, "GET", strings.TrimSuffix(h.URL(), "/mcp")+"/healthz", "") // once it serves
	h.Close()
	err := <-ended
	testkit.FailsWith(t, err, http.ErrServerClosed)
	testkit.Fails(t, err, "serving http://127.0.0.1:")
}

// Where the system does not say whose a connection is, the user needs a token, which is made when the server
// starts and makes its bearer the user.
func TestTheUsersTokenWherePeersAreUnknown(t *testing.T) {
	made := false
	b := bare(&roomy)
	b.Token = func(make bool) (string, error) {
		made = made || make
		return "made", nil
	}
	h, _ := served(t, b, Options{UnknownPeers: true})
	testkit.Equal(t, made, true, "a token is made at the start")

	for token, want := range map[string]struct {
		status int
		says   string
	}{
		"":             {401, "deepwork token show"},
		"Bearer wrong": {401, "not known here"},
		"bearer made":  {200, "deepwork_http_connections"},
	} {
		status, _, text := ask(t, "GET", strings.TrimSuffix(h.URL(), "/mcp")+"/metrics", "", "Authorization: "+token)
		testkit.True(t, status == want.status && strings.Contains(text, want.says), "%q: %d %s", token, status, text)
	}

	r := with(nil)
	r.Header.Set("Authorization", "Bearer made")
	who, _, err := h.access.caller(r, roomy)
	testkit.True(t, err == nil && who == session.LocalCaller(""), "its bearer is %+v, %v", who, err)
}

// raw opens a network connection, writes to it, and returns what the server answers until it closes it or the
// request is answered.
func raw(t *testing.T, h *Server, text string) string {
	t.Helper()
	conn := testkit.Get(net.Dial("tcp", h.sockets.Addr().String())).Must(t)
	defer conn.Close()
	var writing sync.WaitGroup
	writing.Go(func() { io.WriteString(conn, text) }) // it may be cut off
	defer writing.Wait()
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// What a client sends too slowly, or too much of, is refused before anything looks at it.
func TestSlowAndLargeRequests(t *testing.T) {
	if !CanKnowPeers() {
		t.Skip("a token is needed here")
	}
	const post = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	const soon = 50 * time.Millisecond
	for name, c := range map[string]struct {
		o            Options
		text, answer string
	}{
		"a header that does not come": {Options{HeaderTimeout: soon},
			"POST /mcp HTTP/1.1\r\nHost: local", ""},
		"a large header": {Options{},
			"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", " 431 "},
		"a body that does not come": {Options{BodyTimeout: soon},
			post + "Content-Length: 100\r\n\r\n{", " 408 "},
		"a body as large as it may be": {Options{},
			post + "Connection: close\r\nContent-Length: 2000\r\n\r\n" + strings.Repeat("a", 2000), " 400 "},
		"a body that is too large": {Options{},
			post + "Content-Length: 2001\r\n\r\n" + strings.Repeat("a", 2001), " 413 "},
		"a large body without its length": {Options{},
			post + "Transfer-Encoding: chunked\r\n\r\n7d1\r\n" + strings.Repeat("a", 2001) + "\r\n0\r\n\r\n", " 413 "},
		"a large body that does not come": {Options{},
			post + "Content-Length: 100000000\r\n\r\n" + strings.Repeat("a", 2001), " 413 "},
		"a large body over the older " +
			"transport": {Options{Transport: SSE}, strings.Replace(post, "/mcp", "/sse?sessionid=x", 1) +
			"Content-Length: 2001\r\n\r\n" + strings.Repeat("a", 2001), " 413 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := served(t, bare(&roomy), c.o)
			got, rest, _ := strings.Cut(raw(t, h, c.text), "\r\n")
			testkit.Contains(t, got, c.answer)
			testkit.Equal(t, strings.Contains(rest, "Connection: close\r\n"), got != "",
				"the client is told that its connection ends")
			testkit.Equal(t, got == "", c.answer == "", "%q: it is answered", got)
			testkit.Until(t, "its end", func() bool { return h.Stats().Connections == 0 })
		})
	}
}

// Connections that are half open, those of old clients and those without TLS do not hold up the others.
func TestTLS(t *testing.T) {
	known := httptest.NewTLSServer(nil) // whose certificate is used
	known.Close()
	pair := known.TLS.Certificates[0]
	dir := t.TempDir()
	o := Options{TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem")}
	for file, block := range map[string]*pem.Block{
		o.TLSCert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		o.TLSKey:  {Type: "PRIVATE KEY", Bytes: testkit.Get(x509.MarshalPKCS8PrivateKey(pair.PrivateKey)).Must(t)},
	} {
		testkit.Must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	h, _ := served(t, bare(&roomy), o)
	testkit.Equal(t, strings.HasPrefix(h.URL(), "https://127.0.0.1:"), true, "%s", h.URL())

	at := h.sockets.Addr().String()
	pool := x509.NewCertPool()
	pool.AddCert(known.Certificate())
	over := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	healthy := func() {
		t.Helper()
		res := testkit.Get((&http.Client{Transport: over}).Get("https://" + at + "/healthz")).Must(t)
		res.Body.Close()
		testkit.Equal(t, res.StatusCode, 200)
	}
	healthy()
	for range 3 * roomy.MaxConnections { // in the handshake
		conn := testkit.Get(net.Dial("tcp", at)).Must(t)
		defer conn.Close()
		testkit.Get(io.WriteString(conn, "\x16\x03")).Must(t)
	}
	healthy()
	testkit.Fails(t, testkit.Get(tls.Dial("tcp", at,
		&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})).Err(), "", "TLS 1.1")
	testkit.Contains(t, raw(t, h, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), " 400 ", "without TLS")
}
