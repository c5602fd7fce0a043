package web_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/transport"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

var update = flag.Bool("update", false, "write the golden file")

const (
	hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	ping  = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	call  = `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"nothing"}}`
	// newest is a request of the version without sessions.
	newest = `{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// A served is a server with tokens, and what it has answered.
type served struct {
	*web.Server
	t        *testing.T
	file     string
	ann, bob string
	out      strings.Builder
	client   http.Client
}

func serve(t *testing.T, channel string) *served {
	t.Setenv(config.JobsFoldersEnv, "")
	t.Setenv(state.Env, testkit.Dir(t))
	root := testkit.Dir(t)
	testkit.Write(t, root+"/.deepwork/config.yml", "http: {max_requests: 2, max_body_bytes: 4096}\n")
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann"}, config.Token{Name: "bob"})
	s := testkit.Get(transport.NewServer(transport.Options{ProjectRoot: root, StandardJobs: fstest.MapFS{}, AdditionalJobs: []string{}})).Must(t)
	h := testkit.Get(s.Listen(t.Context(), web.Options{Transport: channel, TokenFile: file, AllowedOrigins: []string{"https://app.example.com"}})).Must(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		testkit.Works(t, <-ended)
		testkit.Works(t, s.Close(context.Background()))
	})
	return &served{Server: h, t: t, file: file, ann: tokens[0], bob: tokens[1], client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (s *served) send(method, path, token, body string, headers ...string) *http.Response {
	at := regexp.MustCompile(`^https?://[^/]+`).FindString(s.URL())
	r := testkit.Get(http.NewRequestWithContext(s.t.Context(), method, at+path, strings.NewReader(body))).Must(s.t)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Host":
			r.Host = value
		case "Authorization": // beside another one
			r.Header.Add(name, value)
		default:
			r.Header.Set(name, value)
		}
	}
	return testkit.Get(s.client.Do(r)).Must(s.t)
}

// say sends a request and notes what comes back. It returns the id of the MCP session.
func (s *served) say(method, path, token, body string, headers ...string) string {
	res := s.send(method, path, token, body, headers...)
	defer res.Body.Close()
	text := string(testkit.Get(io.ReadAll(res.Body)).Must(s.t))
	fmt.Fprintf(&s.out, "%s %s %.60s %s\n  %d", method, path, body, strings.Join(headers, ", "), res.StatusCode)
	for _, name := range []string{"Www-Authenticate", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Expose-Headers", "Allow", "Retry-After", "Cache-Control"} {
		if v := res.Header.Get(name); v != "" {
			fmt.Fprintf(&s.out, ", %s: %s", name, v)
		}
	}
	if path == "/metrics" { // what a gauge measures, and the requests that were refused
		text = strings.Join(regexp.MustCompile(`(?m)^(# HELP deepwork_(http|mcp)_|deepwork_refused_total).*$`).FindAllString(text, -1), "\n  ")
		fmt.Fprintf(&s.out, "\n  %s", text)
	} else {
		fmt.Fprintf(&s.out, "\n  %.300s", strings.TrimSpace(text))
	}
	s.out.WriteString("\n")
	return res.Header.Get("Mcp-Session-Id")
}

func (s *served) golden(name string) {
	ids := regexp.MustCompile(`(?i)(Mcp-Session-Id: |sessionid=)[A-Z0-9]{20,}`)
	testkit.Golden(s.t, "testdata/"+name, ids.ReplaceAllString(s.out.String(), "${1}ID"), *update)
}

// What a server answers to requests of all kinds is in a golden file.
func TestRequests(t *testing.T) {
	s := serve(t, session.ChannelHTTP)
	s.say("GET", "/healthz", "", "")
	s.say("GET", "/readyz", "", "")
	s.say("GET", "/nothing", s.ann, "")
	s.say("GET", "/metrics", "", "")
	s.say("GET", "/metrics", s.ann, "")
	s.say("POST", "/mcp", "", ping)
	s.say("POST", "/mcp", "wrong", ping)
	s.say("POST", "/mcp", "", ping, "Authorization: Basic x")
	s.say("POST", "/mcp", s.ann, ping, "Authorization: Bearer x")
	s.say("POST", "/mcp", s.ann, ping, "Host: evil.example.com")
	s.say("POST", "/mcp", s.ann, ping, "Origin: https://evil.example.com")
	s.say("POST", "/mcp", s.ann, ping, "Origin: null")
	s.say("OPTIONS", "/mcp", "", "", "Origin: https://evil.example.com", "Access-Control-Request-Method: POST")
	s.say("GET", "/metrics", s.ann, "", "Origin: https://app.example.com")
	s.say("OPTIONS", "/mcp", "", "", "Origin: https://app.example.com", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-a")
	s.say("OPTIONS", "/mcp", s.ann, "", "Origin: https://app.example.com")
	s.say("POST", "/mcp", s.ann, `{"a":"`+strings.Repeat("x", 4096)+`"}`)
	s.say("POST", "/mcp", s.ann, "nothing")
	s.say("POST", "/mcp", s.ann, "["+ping+","+ping+","+ping+"]")
	id := "Mcp-Session-Id: " + s.say("POST", "/mcp", s.ann, hello)
	s.say("POST", "/mcp", s.ann, ping, id)
	s.say("POST", "/mcp", s.bob, ping, id)
	s.say("POST", "/mcp", s.ann, ping, "Mcp-Session-Id: none")
	s.say("POST", "/mcp", s.ann, call)
	s.say("GET", "/mcp", s.ann, "", "Accept: text/event-stream")
	s.say("DELETE", "/mcp", s.ann, "")
	s.say("PUT", "/mcp", s.ann, ping, id)
	s.say("GET", "/mcp", s.ann, "", id, "Accept: text/event-stream", "Last-Event-Id: x_1")
	s.say("POST", "/mcp", s.ann, ping, id, "Content-Type: text/plain")
	s.say("POST", "/mcp", s.ann, ping, id, "Accept: text/html")
	s.say("POST", "/mcp", s.ann, ping, id, "Mcp-Protocol-Version: 1.0")
	for _, body := range []string{`{"jsonrpc":`, `{"a":1}`, "7", strings.Repeat("[", 4000), `{"jsonrpc":"2.0","id":1,"method":"tools/lost"}`, call} {
		s.say("POST", "/mcp", s.ann, body, id)
	}
	first := s.send("GET", "/mcp", s.ann, "", id, "Accept: text/event-stream")
	second := s.send("GET", "/mcp", s.ann, "", id, "Accept: text/event-stream") // takes the place of the first
	io.Copy(io.Discard, first.Body)
	s.say("DELETE", "/mcp", s.ann, "", id)
	io.Copy(io.Discard, second.Body)
	first.Body.Close()
	second.Body.Close()
	s.say("POST", "/mcp", s.ann, ping, id)
	s.say("POST", "/mcp", s.ann, `{"jsonrpc":"2.0","id":3,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: ping")
	for _, headers := range [][]string{{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"}, nil, {"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: ping"}, {"Mcp-Protocol-Version: 2099-01-01", "Mcp-Method: tools/list"}} {
		s.say("POST", "/mcp", s.ann, newest, headers...)
	}
	s.say("GET", "/mcp", s.ann, "", "Mcp-Protocol-Version: 2026-07-28")

	s.say("GET", "/metrics", s.ann, "")
	testkit.Must(t, os.WriteFile(s.file, []byte("nonsense"), 0o600))
	testkit.Until(t, "the new tokens", func() bool { res := s.send("GET", "/readyz", "", ""); res.Body.Close(); return res.StatusCode != 200 })
	s.say("GET", "/readyz", "", "")
	s.say("POST", "/mcp", s.ann, ping)
	s.golden("requests.txt")
}

// The older transport has an address for each session.
func TestRequestsOverSSE(t *testing.T) {
	s := serve(t, session.ChannelSSE)
	s.say("PUT", "/sse", s.ann, "")
	s.say("POST", "/sse?sessionid=none", s.ann, ping)
	s.say("POST", "/sse?sessionid=none", s.ann, ping, "Content-Type: text/plain")
	stream := s.send("GET", "/sse", s.ann, "")
	lines := bufio.NewScanner(stream.Body)
	next := func(prefix string) string {
		for lines.Scan() {
			if text, is := strings.CutPrefix(lines.Text(), prefix); is {
				return text
			}
		}
		t.Errorf("the stream has no %s: %v", prefix, lines.Err())
		return ""
	}
	endpoint := next("data: ")
	fmt.Fprintln(&s.out, stream.StatusCode, stream.Header["Content-Type"], stream.Header["Cache-Control"], stream.Header["X-Accel-Buffering"])
	for _, body := range []string{hello, ping} {
		res := s.send("POST", endpoint, s.ann, body)
		fmt.Fprintf(&s.out, "%.30s: %d %.60s\n", body, res.StatusCode, next("data: "))
		res.Body.Close()
	}
	res := s.send("POST", endpoint, s.bob, ping)
	fmt.Fprintln(&s.out, "of another caller:", res.StatusCode)
	res.Body.Close()
	stream.Body.Close()
	testkit.Until(t, "the end of the stream", func() bool { return s.Stats().Streams == 0 })
	s.golden("sse.txt")
}
