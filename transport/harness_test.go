package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/outputs"
	"deepwork/session/replies"
	"deepwork/session/state/statetest"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
	"deepwork/transport/web"
	"deepwork/transport/wire"
)

func TestMain(m *testing.M) {
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	os.Setenv("HOME", filepath.Join(os.TempDir(), "no-home")) // git has no settings of the user
	_ = flag.Set("test.parallel", "4")                        // they wait more than they compute
	os.Exit(statetest.Main(m, goleak.Find))
}

// A fakeAgent answers as the test wants, so that replies which the engine gives only after much work, or never should,
// can be had at once. What the engine really answers is tested in project_test.go.
type fakeAgent struct {
	tool.WorkflowCaller // for what no test calls
	identity            string
	stack               []replies.StackEntry
	finish              func(context.Context, workflow.FinishArgs) (*replies.Finish, error)
	start               func(context.Context, workflow.StartArgs) (*replies.Start, error)
	closed              chan struct{}
}

func (a *fakeAgent) Close()                                                { close(a.closed) }
func (a *fakeAgent) Stack() []replies.StackEntry                           { return a.stack }
func (a *fakeAgent) StackOf(context.Context, *string) []replies.StackEntry { return a.stack }

func (a *fakeAgent) GetWorkflows(context.Context) (*replies.Workflows, error) {
	return &replies.Workflows{
		Jobs: json.RawMessage(
			`[{"name":"zebra","summary":"<z> & co","description":null,"workflows":[{"name":"w","summary":"s"}]}]`),
		Errors: json.RawMessage(`[{"job_name":"bad","job_dir":"/p/bad","error":"job.yml:1:1: no"}]`),
	}, nil
}

func (a *fakeAgent) Start(ctx context.Context, args workflow.StartArgs) (*replies.Start, error) {
	if a.start != nil {
		return a.start(ctx, args)
	}
	return &replies.Start{
		BeginStep:       fullStep("a"),
		ConcurrentSteps: []replies.StepInfo{*fullStep("b")},
		Notice:          new("n"),
		Stack:           a.stack,
	}, nil
}

func (a *fakeAgent) Finish(ctx context.Context, args workflow.FinishArgs) (*replies.Finish, error) {
	if a.finish != nil {
		return a.finish(ctx, args)
	}
	return fullFinish(), nil
}

func (a *fakeAgent) Abort(ctx context.Context, args workflow.AbortArgs) (*replies.Abort, error) {
	return &replies.Abort{AbortedWorkflow: "j/w", AbortedStep: "a", Explanation: args.Explanation}, ctx.Err()
}

func (a *fakeAgent) Step(context.Context, workflow.StepArgs) (*replies.Step, error) {
	return &replies.Step{
		BeginStep: fullStep("a"),
		Goal:      "g",
		Members:   []replies.Member{{StepID: "a", State: "started", StartedAt: new("2026-01-02T03:04:05Z")}},
	}, nil
}

func fullStep(id string) *replies.StepInfo {
	return &replies.StepInfo{
		SessionID:    "0a1b2c3d",
		BranchName:   "deepwork/j-w-x",
		StepID:       id,
		JobDir:       "/p/.deepwork/jobs/j",
		BranchStatus: replies.BranchNamed,
		Inputs: []replies.StepInput{{Name: "who", Description: "w"},
			{Name: "bee", Description: "b", FromStep: "a", Paths: []string{"b.md"}, Omitted: 1}},
		ExpectedOutputs: []replies.ExpectedOutput{{
			Name:        "zoo",
			Type:        "file",
			Description: "z",
			Required:    true,
			Syntax:      "filepath",
		},
			{Name: "ant", Type: "files", Description: "a", Syntax: "array of filepaths for all individual files"}},
		Reviews: []replies.ReviewInfo{{
			RunEach:  "step",
			Criteria: jsontext.OrderedMap[string]{{Key: "zz", Value: "?"}, {Key: "aa", Value: "?"}},
			Guidance: new("g"),
		}},
		QualityCriteria: []string{"?", "?"},
		Instructions:    "Do <b>this</b> & that.\n\u2028Done.",
		CommonJobInfo:   new("c"),
	}
}

func fullFinish() *replies.Finish {
	outputs := outputs.Map{{Key: "zoo", Value: outputs.Value{Paths: []string{"z.md"}}},
		{Key: "ant", Value: outputs.Value{Paths: []string{"a.md", "b.md"}, List: true}}}
	return &replies.Finish{
		Status:        replies.NeedsWork,
		Feedback:      new("f"),
		FailedReviews: []replies.FailedReview{{RunEach: "zoo", TargetFile: new("z.md")}},
		FailedCriteria: []replies.CriterionResult{{
			Criterion:  "zz",
			Feedback:   new("no"),
			TargetFile: new("z.md"),
		}},
		BeginStep:              fullStep("c"),
		ConcurrentSteps:        []replies.StepInfo{*fullStep("d")},
		ConcurrentGroup:        new("g"),
		PendingConcurrentSteps: []string{"d"},
		Summary:                new("s"),
		AllOutputs:             &outputs,
		ResumedWorkflow:        new("j/w"),
		ResumedStep:            new("a"),
		Notice:                 new("n"),
		Stack:                  []replies.StackEntry{{Workflow: "j/w", Step: "a", SessionID: "0a1b2c3d"}},
	}
}

// A blocked is the calls of finished_step of fake agents: each reports progress, and lasts until it is let go
// or its context ends.
type blocked struct {
	began    chan struct{} // one value per call
	ended    chan error    // of each call the cause of its end, or nil
	free     chan struct{} // a value lets one call go, closing it all
	stubborn bool          // calls last beyond the end of their contexts
}

func newBlocked() *blocked {
	return &blocked{
		began: make(chan struct{}, 2*wire.MaxInFlight),
		ended: make(chan error, 2*wire.MaxInFlight),
		free:  make(chan struct{}),
	}
}

func (b *blocked) agent(a *fakeAgent) {
	a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*replies.Finish, error) {
		tool.Progress(ctx, "it has begun")
		b.began <- struct{}{}
		over := ctx.Done()
		if b.stubborn {
			over = nil
		}
		select {
		case <-b.free:
			b.ended <- nil
			return fullFinish(), nil
		case <-over:
			b.ended <- context.Cause(ctx)
			return nil, ctx.Err()
		}
	}
}

// fakes makes the agents of a server under test, each set up by the test.
type fakes struct {
	setup  func(*fakeAgent)
	mu     sync.Mutex
	agents []*fakeAgent
}

func (f *fakes) agent(identity string) tool.WorkflowCaller {
	a := &fakeAgent{identity: identity, closed: make(chan struct{})}
	if f.setup != nil {
		f.setup(a)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents = append(f.agents, a)
	return a
}

func fakeServer(t testing.TB, setup func(*fakeAgent), more ...func(*engines)) (*Server, *fakes) {
	t.Helper()
	f := &fakes{setup: setup}
	p := engines{connect: f.agent, token: func(bool) (string, error) { return usersToken, nil }}
	for _, m := range more {
		m(&p)
	}
	return testkit.Get(newServer(p, config.Toolsets, "1.2.3", slog.New(slog.DiscardHandler))).Must(t), f
}

// client connects a real client to a server in memory, and checks how serving it ends.
func client(t testing.TB, s *Server, o ...*mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	done := make(chan error, 1)
	go func() { done <- s.mcp.Run(localCall(), here) }()
	cs := connect(t, there, "", append(o, nil)[0])
	t.Cleanup(func() {
		cs.Close()
		// A reply that nobody waits for may be on its way when the client leaves or the server closes, with
		// the SDK's code of that.
		err := <-done
		closing, ok := errors.AsType[*jsonrpc.Error](err)
		testkit.True(t, err == nil || errors.Is(err, io.ErrClosedPipe) || (ok && closing.Code == -32004),
			"Run: %v", err)
	})

	return cs
}

// connect connects a client until the test ends, with a version of the protocol, "" for the newest.
func connect(t testing.TB, over mcp.Transport, version string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).Connect(context.Background(),
		over, &mcp.ClientSessionOptions{ProtocolVersion: version})).Must(t)
	t.Cleanup(func() { cs.Close() })
	return cs
}

func callTool(t testing.TB, cs *mcp.ClientSession, name, args string) *mcp.CallToolResult {
	t.Helper()
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	testkit.Need(t, err == nil, "%s(%s): %v", name, args, err)
	return res
}

// accepted calls a tool that must not refuse, and returns the text.
func accepted(t testing.TB, cs *mcp.ClientSession, name, args string) string {
	t.Helper()
	res := callTool(t, cs, name, args)
	testkit.True(t, !res.IsError, "%s(%s): %s", name, args, text(res))
	return text(res)
}

func text(res *mcp.CallToolResult) string { return res.Content[0].(*mcp.TextContent).Text }

func errorMetaOf(t testing.TB, res *mcp.CallToolResult) map[string]any {
	t.Helper()
	m, ok := res.Meta[tool.ErrorMeta].(map[string]any)
	testkit.Need(t, ok, "no %s in _meta of %+v", tool.ErrorMeta, res)
	return m
}

func localCall() context.Context {
	return session.WithCaller(context.Background(), session.LocalCaller(session.ChannelStdio))
}

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
	h := servedAt(t, s, o)
	if alternating {
		besides(t, s, h, o)
	}
	return h
}

func servedAt(t testing.TB, s *Server, o web.Options) *web.Server {
	t.Helper()
	h, stop, stopped := stopping(t, s, o)
	t.Cleanup(func() {
		stop()
		testkit.Works(t, <-stopped, "Serve")
	})
	return h
}

// stopping serves s until stop is called; the result of Serve follows.
func stopping(t testing.TB, s *Server, o web.Options) (h *web.Server, stop func(), stopped chan error) {
	t.Helper()
	h = testkit.Get(s.Listen(context.Background(), o)).Must(t)
	ctx, cancel := context.WithCancel(context.Background())
	stopped = make(chan error, 1)
	go func() { stopped <- h.Serve(ctx) }()
	t.Cleanup(cancel)
	return h, cancel, stopped
}

func at(h *web.Server, path string) string {
	u, _ := url.Parse(h.URL())
	u.Path = path
	return u.String()
}

func address(h *web.Server) string {
	u, _ := url.Parse(h.URL())
	return u.Host
}

const usersToken = "users"

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
	return b.RoundTripper.RoundTrip(byTurns(r))
}

// httpClient is a client with connections of its own, closed when the test ends.
func httpClient(t testing.TB, token string) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: bearer{transport, token}}
}

const stateful = "2025-11-25"

// dial connects a real client over streamable HTTP or SSE, with the protocol version given, "" for the newest.
func dial(t testing.TB, h *web.Server, version, token string) *mcp.ClientSession {
	t.Helper()
	return dialAt(t, h.URL(), version, httpClient(t, token))
}

func dialAt(t testing.TB, url, version string, client *http.Client) *mcp.ClientSession {
	t.Helper()
	var over mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}
	if strings.HasSuffix(url, "/sse") {
		over = &mcp.SSEClientTransport{Endpoint: url, HTTPClient: client}
	}
	return connect(t, over, version, nil)
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) is(t testing.TB, status int, says ...string) {
	t.Helper()
	testkit.Equal(t, r.status, status, "%+v", r)
	testkit.ContainsAll(t, r.body, says)
}

// send makes one HTTP request. Headers are "Name: value".
func send(t testing.TB, c *http.Client, method, url, body string, headers ...string) reply {
	t.Helper()
	req := testkit.Get(http.NewRequest(method, url, strings.NewReader(body))).Must(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "" {
			continue
		}
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	res := testkit.Get(c.Do(req)).Must(t)
	defer res.Body.Close()
	return reply{res.StatusCode, res.Header, string(testkit.Get(io.ReadAll(res.Body)).Must(t))}
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
	`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// open opens an MCP session by hand and returns the header that belongs to it.
func open(t testing.TB, c *http.Client, h *web.Server) string {
	t.Helper()
	r := send(t, c, "POST", h.URL(), initialize)
	id := r.header.Get("Mcp-Session-Id")
	testkit.Need(t, r.status == 200 && len(id) >= 20, "initialize: %+v", r)
	header := "Mcp-Session-Id: " + id
	send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header).is(t, 202)
	return header
}

func opened(t testing.TB, h *web.Server) (c *http.Client, id string) {
	t.Helper()
	c = httpClient(t, "")
	return c, open(t, c, h)
}

func raw(t testing.TB, h *web.Server, text string) net.Conn {
	t.Helper()
	conn := testkit.Get(net.Dial("tcp", address(h))).Must(t)
	t.Cleanup(func() { conn.Close() })
	testkit.Get(io.WriteString(conn, text)).Must(t)
	return conn
}

// post writes a request with a message, and headers "Name: value", to a new network connection.
func post(t testing.TB, h *web.Server, body string, headers ...string) net.Conn {
	t.Helper()
	return raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Type: "+
		"application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
		strings.Join(headers, "\r\n"), len(body), body))
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
	accepted(t, cs, "get_workflows", `{}`)
	cs.Close()
}

// With DEEPWORK_TEST_ALTERNATING, each server of a project that is served over HTTP has a second one of its
// store beside it, and requests of the newest protocol go to the two by turns, as by a proxy that knows
// nothing of MCP. Servers over fake agents have no store: their tests are about one process.
var alternating = os.Getenv("DEEPWORK_TEST_ALTERNATING") != ""

var (
	optionsOf sync.Map // *Server -> Options, of those that made has made
	twins     sync.Map // the address of a server -> that of the second
	turns     atomic.Int64
)

// besides serves a second server of the store of s, which is served at h.
func besides(t testing.TB, s *Server, h *web.Server, o web.Options) {
	t.Helper()
	of, ok := optionsOf.Load(s)
	if !ok || o.Transport == web.SSE {
		return
	}
	second := made(t, of.(Options))
	if s.remote != nil && len(s.remote.Listing(t.Context()).From.Sources) > 0 {
		second.connected(t)
	}
	twins.Store(address(h), address(servedAt(t, second, o)))
}

// byTurns sends a request of the newest protocol to one of two servers.
func byTurns(r *http.Request) *http.Request {
	second, ok := twins.Load(r.URL.Host)
	if !ok || r.Header.Get("Mcp-Protocol-Version") != tool.Newest || turns.Add(1)%2 == 0 {
		return r
	}
	to := r.Clone(r.Context())
	to.URL.Host = second.(string)
	if to.Host == r.URL.Host {
		to.Host = ""
	}
	return to
}
