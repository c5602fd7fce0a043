package transport

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// withHTTP sets the config of a server over fake agents.
func withHTTP(set func(*config.HTTP)) func(*engines) {
	c := config.Default()
	if set != nil {
		set(&c.HTTP)
	}
	return func(p *engines) { p.check = func(context.Context) (*config.Config, error) { return c, nil } }
}

// overHTTP serves s on a free port until the test ends, which is an orderly stop.
func overHTTP(t testing.TB, s *Server, o web.Options) *web.Server {
	t.Helper()
	h, err := s.Listen(context.Background(), o)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return h
}

// at is another path of a server.
func at(h *web.Server, path string) string {
	u, _ := url.Parse(h.URL())
	u.Path = path
	return u.String()
}

// address is where a server listens.
func address(h *web.Server) string { u, _ := url.Parse(h.URL()); return u.Host }

// usersToken is the token of the user where one is needed.
const usersToken = "users"

// bearer sends a token with each request.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token == "" && runtime.GOOS != "linux" {
		b.token = usersToken // there a server cannot know that it is the user who connects
	}
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.RoundTripper.RoundTrip(r)
}

// httpClient is a client with connections of its own, closed when the test ends.
func httpClient(t testing.TB, token string) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: bearer{transport, token}}
}

// stateful is a protocol version with sessions.
const stateful = "2025-11-25"

// dial connects a real client over streamable HTTP or SSE, with the protocol
// version given, "" for the newest.
func dial(t testing.TB, h *web.Server, version, token string) *mcp.ClientSession {
	t.Helper()
	return dialWith(t, h, version, httpClient(t, token))
}

func dialWith(t testing.TB, h *web.Server, version string, client *http.Client) *mcp.ClientSession {
	t.Helper()
	return dialAt(t, h.URL(), version, client)
}

func dialAt(t testing.TB, url, version string, client *http.Client) *mcp.ClientSession {
	t.Helper()
	var over mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}
	if strings.HasSuffix(url, "/sse") {
		over = &mcp.SSEClientTransport{Endpoint: url, HTTPClient: client}
	}
	return connect(t, over, version, nil)
}

// reply is what came of one request.
type reply struct {
	status int
	header http.Header
	body   string
}

// send makes one HTTP request. Headers are "Name: value".
func send(t testing.TB, c *http.Client, method, url, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "" {
			continue
		}
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	res, err := c.Do(req)
	must(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(t, err)
	return reply{res.StatusCode, res.Header, string(data)}
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// open opens an MCP session by hand and returns the header that belongs to it.
func open(t testing.TB, c *http.Client, h *web.Server) string {
	t.Helper()
	r := send(t, c, "POST", h.URL(), initialize)
	id := r.header.Get("Mcp-Session-Id")
	if r.status != 200 || len(id) < 20 {
		t.Fatalf("initialize: %+v", r)
	}
	header := "Mcp-Session-Id: " + id
	if r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header); r.status != 202 {
		t.Fatalf("initialized: %+v", r)
	}
	return header
}

// opened is a client with a session that open has opened.
func opened(t testing.TB, h *web.Server) (c *http.Client, id string) {
	t.Helper()
	c = httpClient(t, "")
	return c, open(t, c, h)
}

// raw opens a network connection and writes to it.
func raw(t testing.TB, h *web.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address(h))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// answer reads a response from a connection.
func answer(t testing.TB, conn net.Conn) reply {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer res.Body.Close()
	data, _ := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(data)}
}

// tokens makes a token file for the names, and returns the tokens.
func tokens(t testing.TB, names ...string) (file string, out []string) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# callers\n\n")
	for _, name := range names {
		token, line, err := web.NewToken(config.Token{Name: name})
		must(t, err)
		fmt.Fprintf(&b, "  %s\r\n", line)
		out = append(out, token)
	}
	file = filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(file, b.Bytes(), 0o600))
	return file, out
}

// works checks that a server is unharmed: a new client makes a call.
func works(t testing.TB, h *web.Server) {
	t.Helper()
	cs := dial(t, h, stateful, "")
	if res := callTool(t, cs, "get_workflows", `{}`); res.IsError {
		t.Errorf("get_workflows: %s", text(res))
	}
	cs.Close()
}
