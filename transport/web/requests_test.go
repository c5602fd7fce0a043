package web_test

import (
	"bufio"
	"cmp"
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

var bodies = map[string]string{
	"-": "",
	"batch": `[` + strings.Repeat(`{"jsonrpc":"2.0","id":2,"method":"ping"},`, 2) +
		`{"jsonrpc":"2.0","id":2,"method":"ping"}]`,
	"hello": `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
	"ping": `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
	"call": `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"nothing"}}`,
	"lost": `{"jsonrpc":"2.0","id":1,"method":"tools/lost"}`,
	"newping": `{"jsonrpc":"2.0","id":3,"method":"ping",` +
		`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
	// without sessions
	"newest": `{"jsonrpc":"2.0","id":5,"method":"tools/list",` +
		`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`,
	"large":  `{"a":"` + strings.Repeat("x", 4096) + `"}`,
	"nested": strings.Repeat("[", 4000),
}

// A served is a server with tokens, and what it has answered.
type served struct {
	*web.Server
	t        *testing.T
	file     string
	ann, bob string
	id       string // of the MCP session
	out      strings.Builder
	client   http.Client
}

func serve(t *testing.T, channel string) *served {
	t.Setenv(config.JobsFoldersEnv, "")
	t.Setenv(state.Env, testkit.Dir(t))
	root := testkit.Dir(t)
	testkit.Write(t, root+"/.deepwork/config.yml", "http: {max_requests: 2, max_body_bytes: 4096}\n")
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann"}, config.Token{Name: "bob"})
	s := testkit.Get(transport.NewServer(transport.Options{
		ProjectRoot:    root,
		StandardJobs:   fstest.MapFS{},
		AdditionalJobs: []string{},
	})).Must(t)
	h := testkit.Get(s.Listen(t.Context(),
		web.Options{Transport: channel, TokenFile: file, AllowedOrigins: []string{"https://app.example.com"}})).Must(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		testkit.Works(t, <-ended)
		testkit.Works(t, s.Close(context.Background()))
	})
	return &served{
		Server: h,
		t:      t,
		file:   file,
		ann:    tokens[0],
		bob:    tokens[1],
		client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
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

// say sends a request, "METHOD PATH CALLER BODY; HEADER; HEADER", where - is none and $id is the MCP session,
// and notes what comes back.
func (s *served) say(request string) {
	line := strings.Split(strings.ReplaceAll(request, "$id", s.id), "; ")
	words := strings.Fields(line[0])
	body, named := bodies[words[3]]
	if !named {
		body = words[3]
	}
	res := s.send(words[0], words[1], map[string]string{"ann": s.ann, "bob": s.bob, "wrong": "wrong"}[words[2]], body,
		line[1:]...)
	defer res.Body.Close()
	text := string(testkit.Get(io.ReadAll(res.Body)).Must(s.t))
	fmt.Fprintf(&s.out, "> %s\n  %d", request, res.StatusCode)
	for _, name := range []string{"Www-Authenticate", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods",
		"Access-Control-Allow-Headers", "Access-Control-Expose-Headers", "Allow", "Retry-After", "Cache-Control"} {
		if v := res.Header.Get(name); v != "" {
			fmt.Fprintf(&s.out, ", %s: %s", name, v)
		}
	}

	if words[1] == "/metrics" { // what a gauge measures, and the requests that were refused
		text = strings.Join(regexp.MustCompile(`(?m)^(# HELP deepwork_(http|mcp)_|deepwork_refused_total).*$`).
			FindAllString(text, -1), "\n  ")
		fmt.Fprintf(&s.out, "\n  %s", text)
	} else {
		fmt.Fprintf(&s.out, "\n  %.300s", strings.TrimSpace(text))
	}

	s.out.WriteString("\n")
	s.id = cmp.Or(res.Header.Get("Mcp-Session-Id"), s.id)
}

// script sends the requests of a golden file, and compares the answers. Other lines that begin with > are
// what the test does.
func (s *served) script(name string, does map[string]func()) {
	for line := range strings.Lines(string(testkit.Get(os.ReadFile("testdata/" + name)).Must(s.t))) {
		request, ok := strings.CutPrefix(strings.TrimSpace(line), "> ")
		if do := does[request]; do != nil {
			fmt.Fprintln(&s.out, ">", request)
			do()
		} else if ok {
			s.say(request)
		}
	}
	s.golden(name)
}

func (s *served) golden(name string) {
	ids := regexp.MustCompile(`(?i)(Mcp-Session-Id: |sessionid=)[A-Z0-9]{20,}`)
	testkit.Golden(s.t, "testdata/"+name, ids.ReplaceAllString(s.out.String(), "${1}ID"), *update)
}

// What a server answers to requests of all kinds is in a golden file, which has the requests, too.
func TestRequests(t *testing.T) {
	s := serve(t, session.ChannelHTTP)
	var second *http.Response
	s.script("requests.txt", map[string]func(){
		"two streams":               func() { second = s.twoStreams() },
		"their end":                 func() { ends(second) },
		"a token file with a fault": s.breakTokenFile,
	})
}

// twoStreams opens two streams of the session, and returns the second, which takes the place of the first.
func (s *served) twoStreams() *http.Response {
	first := s.send("GET", "/mcp", s.ann, "", "Mcp-Session-Id: "+s.id, "Accept: text/event-stream")
	second := s.send("GET", "/mcp", s.ann, "", "Mcp-Session-Id: "+s.id, "Accept: text/event-stream")
	ends(first)
	return second
}

// ends waits until a stream ends.
func ends(stream *http.Response) {
	io.Copy(io.Discard, stream.Body)
	stream.Body.Close()
}

// breakTokenFile writes a token file that cannot be read, and waits until the server has noticed.
func (s *served) breakTokenFile() {
	testkit.Must(s.t, os.WriteFile(s.file, []byte("nonsense"), 0o600))
	testkit.Until(s.t, "the new tokens", func() bool {
		res := s.send("GET", "/readyz", "", "")
		res.Body.Close()
		return res.StatusCode != 200
	})
}

// The older transport has an address for each session.
func TestRequestsOverSSE(t *testing.T) {
	s := serve(t, session.ChannelSSE)
	s.say("PUT /sse ann -")
	s.say("POST /sse?sessionid=none ann ping")
	s.say("POST /sse?sessionid=none ann ping; Content-Type: text/plain")
	stream := s.send("GET", "/sse", s.ann, "")
	lines := bufio.NewScanner(stream.Body)
	next := func(prefix string) string {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), prefix); ok {
				return text
			}
		}
		t.Errorf("the stream has no %s: %v", prefix, lines.Err())
		return ""
	}
	endpoint := next("data: ")
	fmt.Fprintln(&s.out, stream.StatusCode, stream.Header["Content-Type"], stream.Header["Cache-Control"],
		stream.Header["X-Accel-Buffering"])
	for _, request := range [][]string{{s.ann, "hello"}, {s.ann, "ping"}, {s.bob, "ping"}} {
		res := s.send("POST", endpoint, request[0], bodies[request[1]])
		fmt.Fprintf(&s.out, "%s: %d", request[1], res.StatusCode)
		if request[0] == s.ann {
			fmt.Fprintf(&s.out, " %.60s", next("data: "))
		}
		fmt.Fprintln(&s.out)
		res.Body.Close()
	}
	stream.Body.Close()
	testkit.Until(t, "the end of the stream", func() bool { return s.Stats().Streams == 0 })
	s.golden("sse.txt")
}
