package web

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
)

// roomy are settings whose limits no test here reaches.
var roomy = config.HTTP{MaxConnections: 10, MaxRequests: 10, MaxBodyBytes: 2000}

// The error of an option says what is wrong and what to do. A server that is closed says which one has ended.
func TestListenErrors(t *testing.T) {
	taken, _ := served(t, bare(&roomy), Options{})
	dir := t.TempDir()
	empty, bad := filepath.Join(dir, "empty"), filepath.Join(dir, "bad")
	testkit.Must(t, os.WriteFile(empty, []byte("# nobody\n"), 0o600))
	testkit.Must(t, os.WriteFile(bad, []byte("x\n"), 0o600))
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
	testkit.Works(t, testkit.Get(Listen(t.Context(), bare(&roomy), Options{})).Must(t).Close(), "closing one that was not served")
	h := testkit.Get(Listen(t.Context(), bare(&roomy), Options{})).Must(t)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(t.Context()) }()
	ask(t, "GET", strings.TrimSuffix(h.URL(), "/mcp")+"/healthz", "") // once it serves
	h.Close()
	err := <-ended
	testkit.FailsWith(t, err, http.ErrServerClosed)
	testkit.Fails(t, err, "serving http://127.0.0.1:")
}

// Where the system does not say whose a connection is, the user needs a token, which is made when the server starts and
// makes its bearer the user.
func TestTheUsersTokenWherePeersAreUnknown(t *testing.T) {
	made := false
	b := bare(&roomy)
	b.Token = func(make bool) (string, error) { made = made || make; return "made", nil }
	h, _ := served(t, b, Options{UnknownPeers: true})
	testkit.Equal(t, made, true, "a token is made at the start")
	for token, want := range map[string]struct {
		status int
		says   string
	}{"": {401, "deepwork token show"}, "Bearer wrong": {401, "not known here"}, "bearer made": {200, "deepwork_http_connections"}} {
		status, _, text := ask(t, "GET", strings.TrimSuffix(h.URL(), "/mcp")+"/metrics", "", "Authorization: "+token)
		testkit.True(t, status == want.status && strings.Contains(text, want.says), "%q: %d %s", token, status, text)
	}
	r := with(nil)
	r.Header.Set("Authorization", "Bearer made")
	who, _, err := h.access.caller(r, roomy)
	testkit.True(t, err == nil && who == session.LocalCaller(""), "its bearer is %+v, %v", who, err)
}

// raw opens a network connection, writes to it, and returns what the server answers until it closes it or the request
// is answered.
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
		"a header that does not come":           {Options{HeaderTimeout: soon}, "POST /mcp HTTP/1.1\r\nHost: local", ""},
		"a large header":                        {Options{}, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", " 431 "},
		"a body that does not come":             {Options{BodyTimeout: soon}, post + "Content-Length: 100\r\n\r\n{", " 408 "},
		"a body as large as it may be":          {Options{}, post + "Connection: close\r\nContent-Length: 2000\r\n\r\n" + strings.Repeat("a", 2000), " 400 "},
		"a body that is too large":              {Options{}, post + "Content-Length: 2001\r\n\r\n" + strings.Repeat("a", 2001), " 413 "},
		"a large body without its length":       {Options{}, post + "Transfer-Encoding: chunked\r\n\r\n7d1\r\n" + strings.Repeat("a", 2001) + "\r\n0\r\n\r\n", " 413 "},
		"a large body that does not come":       {Options{}, post + "Content-Length: 100000000\r\n\r\n" + strings.Repeat("a", 2001), " 413 "},
		"a large body over the older transport": {Options{Transport: SSE}, strings.Replace(post, "/mcp", "/sse?sessionid=x", 1) + "Content-Length: 2001\r\n\r\n" + strings.Repeat("a", 2001), " 413 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := served(t, bare(&roomy), c.o)
			got, rest, _ := strings.Cut(raw(t, h, c.text), "\r\n")
			testkit.Contains(t, got, c.answer)
			testkit.Equal(t, strings.Contains(rest, "Connection: close\r\n"), got != "", "the client is told that its connection ends")
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
	testkit.Fails(t, testkit.Get(tls.Dial("tcp", at, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})).Err(), "", "TLS 1.1")
	testkit.Contains(t, raw(t, h, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), " 400 ", "without TLS")
}
