package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	remotetools "deepwork/transport/tools/remote"
	"deepwork/transport/web"
)

// sourceEnv, when it is set, makes this test binary a source over stdio that reads and never answers.
const sourceEnv = "DEEPWORK_TEST_SOURCE"

// rootEnv, beside it, makes it a deepwork on this project.
const rootEnv = "DEEPWORK_TEST_ROOT"

func innerDeepwork(root string) error {
	s, err := NewServer(Options{
		ProjectRoot:    root,
		StandardJobs:   fstest.MapFS{},
		AdditionalJobs: []string{},
		Toolsets:       []string{"workflows", "source"},
	})
	if err != nil {
		return err
	}
	return errors.Join(s.ServeStdio(context.Background(), os.Stdin, os.Stdout), s.Close(context.Background()))
}

func init() {
	if os.Getenv(sourceEnv) == "" {
		return
	}
	if root := os.Getenv(rootEnv); root == "" {
		io.Copy(io.Discard, os.Stdin)
	} else if err := innerDeepwork(root); err != nil {
		panic(err)
	}

	os.Exit(0)
}

var standardWorkflows = []string{
	`{"id":"w-echo","name":"echo","description":"Gives its input","category":"test","version":"2.1.0",` +
		`"executionType":"sync","metadata":{"team":"a","n":12345678901234567890},
	  "inputSchema":{"type":"object","properties":{"customer":{"type":"string","description":"who"},` +
		`"n":{"type":"integer"}},"required":["customer"]}}`,
	`{"id":"w-boom","name":"boom","description":"Fails at once","executionType":"sync"}`,
	`{"id":"w-block","name":"block","description":"Answers when it is let go","executionType":"sync"}`,
	`{"id":"w-steps","name":"steps","description":"Goes on for three looks at its status","executionType":"async"}`,
	`{"id":"w-fail","name":"fail","description":"Fails later","executionType":"async"}`,
	`{"id":"w-hang","name":"hang","description":"Goes on until it is cancelled"}`,
}

type factory struct {
	mu        sync.Mutex
	workflows []string
	lists     int
	runs      map[string]*factoryRun
	started   []string      // workflow ids
	ended     []string      // the workflows whose synchronous call was cut off
	cancelled []string      // execution ids
	let       chan struct{} // closed: block answers
	mcp       *mcp.Server
	url       string // once it is served
}

type factoryRun struct {
	workflow  string
	looks     int
	cancelled bool
}

func newFactory(workflows ...string) *factory {
	return &factory{workflows: workflows, runs: map[string]*factoryRun{}, let: make(chan struct{})}
}

func (f *factory) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	waitFor(t, what, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return ok()
	})
}

func (f *factory) offer(workflows ...string) {
	f.mu.Lock()
	f.workflows = workflows
	f.mu.Unlock()
	f.changed()
}

func (f *factory) changed() {
	f.add("noise", func(context.Context, factoryInput) string { return `{}` })
}

// add adds a tool, which refuses with what begins with "no: ". The lock is held during its calls.
func (f *factory) add(name string, answer func(ctx context.Context, in factoryInput) string) {
	f.mcp.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in factoryInput
			_ = json.Unmarshal(r.Params.Arguments, &in) // some have none
			f.mu.Lock()
			defer f.mu.Unlock()
			text, refused := strings.CutPrefix(answer(ctx, in), "no: ")
			return &mcp.CallToolResult{
				Content: []mcp.Content{&mcp.TextContent{Text: text}},
				IsError: refused,
			}, ctx.Err()
		})
}

type factoryInput struct {
	WorkflowID  string          `json:"workflow_id"`
	ExecutionID string          `json:"execution_id"`
	Input       json.RawMessage `json:"input"`
}

func (f *factory) server() *mcp.Server {
	f.mcp = mcp.NewServer(&mcp.Implementation{Name: "factory", Version: "1"}, nil)
	f.add("workflows-execute-tool", f.execute)
	f.add("workflows-status-tool", f.status)
	f.add("workflows-list-tool", func(context.Context, factoryInput) string {
		f.lists++
		return "[" + strings.Join(f.workflows, ",") + "]"
	})
	f.add("workflows-cancel-tool", func(_ context.Context, in factoryInput) string {
		f.cancelled = append(f.cancelled, in.ExecutionID)
		if r := f.runs[in.ExecutionID]; r != nil {
			r.cancelled = true
		}
		return `{"status":"cancelled"}`
	})
	return f.mcp
}

func (f *factory) execute(ctx context.Context, in factoryInput) string {
	f.started = append(f.started, in.WorkflowID)
	switch in.WorkflowID {
	case "w-boom":
		return "no: the press is out of ink"
	case "w-block":
		f.mu.Unlock()
		select {
		case <-f.let:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			f.ended = append(f.ended, in.WorkflowID)
		}
		return `"let go"`
	case "w-steps", "w-fail", "w-hang":
		id := fmt.Sprintf("x-%d", len(f.runs)+1)
		f.runs[id] = &factoryRun{workflow: in.WorkflowID}
		return fmt.Sprintf(`{"execution_id":%q,"status":"running"}`, id)
	}
	return fmt.Sprintf(`{"echo":%s,"big":12345678901234567890}`, in.Input)
}

func (f *factory) status(_ context.Context, in factoryInput) string {
	r := f.runs[in.ExecutionID]
	if r == nil {
		return "no: there is no such execution"
	}
	r.looks++
	switch {
	case r.cancelled:
		return `{"status":"cancelled"}`
	case r.workflow == "w-steps" && r.looks > 3:
		return `{"status":"COMPLETED","output":{"pages":3}}`
	case r.workflow == "w-fail" && r.looks > 1:
		return `{"status":"failed","error":"the paper tore"}`
	}
	return fmt.Sprintf(`{"status":"running","progress":%d,"total":3,"message":"page %d"}`, min(r.looks, 3),
		min(r.looks, 3))
}

// overWeb serves the factory over streamable HTTP until the test ends.
func (f *factory) overWeb(t testing.TB) string {
	t.Helper()
	server := f.server()
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		for s := range server.Sessions() {
			s.Close()
		}
		web.CloseClientConnections()
		web.Close()
	})
	f.url = web.URL
	return web.URL
}

// fast are settings for tests: what would take seconds takes milliseconds.
const fast = "  status_interval: 20ms\n"

// withSource is a project whose one source is the factory, over HTTP.
func withSource(t testing.TB, f *factory, more string, change ...func(*Options)) (*Server, string) {
	t.Helper()
	change = append(change, nil)
	return withConfig(t, "workflow_tools:\n"+fast+more+"  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n",
		change[0])
}

// withConfig is a project with this config, once all its sources are connected.
func withConfig(t testing.TB, config string, change func(*Options)) (*Server, string) {
	t.Helper()
	s, root := bareProject(t, config, change)
	s.connected(t)
	return s, root
}

func (s *Server) connected(t testing.TB) {
	t.Helper()
	until(t, s, "the sources to be connected", func(l *remotetools.Listing) bool {
		for _, source := range l.From.Sources {
			if !source.Connected {
				return false
			}
		}
		return len(l.From.Sources) > 0
	})
}

func until(t testing.TB, s *Server, what string, ok func(*remotetools.Listing) bool) {
	t.Helper()
	waitFor(t, what, func() bool { return ok(s.remote.Listing(t.Context())) })
}

// names waits until these workflow tools are listed, in this order.
func (s *Server) names(t testing.TB, want ...string) {
	t.Helper()
	until(t, s, fmt.Sprint(want), func(l *remotetools.Listing) bool {
		return slices.EqualFunc(l.Tools, want, func(tool *mcp.Tool, name string) bool { return tool.Name == name })
	})
}

// A watcher counts how often a client with its options is told that the list of tools changed.
type watcher struct{ told atomic.Int64 }

func (w *watcher) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		w.told.Add(1)
	}}
}

// until waits for so many notices, and then for what would be one too many: a notice of ours is sent 10 ms
// after the change.
func (w *watcher) until(t testing.TB, n int64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("told %d times", n), func() bool { return w.told.Load() >= n })
	time.Sleep(60 * time.Millisecond)
	testkit.Equal(t, w.told.Load(), n, "told … times")
}

// ready waits until a client is told of changes at all, since a subscription is opened beside the session,
// and begins to count.
func (w *watcher) ready(t testing.TB, s *Server) {
	t.Helper()
	waitFor(t, "told", func() bool {
		s.tools.Announce()
		return w.told.Load() > 0
	})
	for n := int64(-1); n != w.told.Load(); time.Sleep(300 * time.Millisecond) { // what is on its way
		n = w.told.Load()
	}
	w.told.Store(0)
}

// One change is one notice to each client, however many tools it touches, in sessions and in subscriptions.
func TestOneChangeIsOneNotice(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, root := withSource(t, f, "")
	h := overHTTP(t, s, web.Options{})
	all := []*watcher{{}, {}, {}}
	listed(t, client(t, s, all[0].options()))
	for i, version := range []string{stateful, ""} {
		listed(t, connect(t, &mcp.StreamableClientTransport{Endpoint: h.URL(), HTTPClient: httpClient(t, "")}, version,
			all[i+1].options()))
	}

	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf(`{"id":"m%d","name":"many-%03d","description":"d"}`, i, i))
	}

	expect := func(n int64) {
		t.Helper()
		for _, w := range all {
			w.until(t, n)
		}
	}
	for _, w := range slices.Backward(all) { // the subscription first: the others are told while it is awaited
		w.ready(t, s)
	}
	for _, w := range all {
		w.told.Store(0)
	}

	f.offer(many...)
	expect(1)
	f.offer(many...) // nothing changed
	until(t, s, "the query", func(*remotetools.Listing) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.lists >= 3
	})
	expect(1)
	source := "  sources:\n    - {name: factory, url: " + f.url + "}\n"
	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools:\n  include: [many-00*]\n" + source})
	expect(2)
	testkit.Equal(t, len(s.remote.Listing(t.Context()).Tools), 10, "tools")
	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools:\n  include: [many-00*]\n  expose_jobs: " +
		"true\n" + source})
	expect(3)
}

// thousands are so many workflows with schemas as people write them.
func thousands(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"id":"id-%d","name":"flow-%05d","description":"Does the work number %d, for whoever `+
			`asks","category":"bulk","version":"1.2.3","executionType":"sync",`+
			`"inputSchema":{"type":"object","properties":{"customer":{"type":"string","description":"whose work it `+
			`is"},"count":{"type":"integer","minimum":1}},"required":["customer"]}}`, i, i, i)
	}
	return all
}

// BenchmarkGetWorkflows is a whole call with 1,000 jobs, the client's pipes included, its decoding not.
func BenchmarkGetWorkflows(b *testing.B) {
	root, files := b.TempDir(), map[string]string{}
	for i := range 1000 {
		dir := fmt.Sprintf(".deepwork/jobs/job_%d/", i)
		files[dir+"job.yml"] = strings.Replace(tripJob, "name: trip", fmt.Sprintf("name: job_%d", i), 1)
		files[dir+"idea.md"] = "Think."
	}
	write(b, root, files)
	s := testkit.Get(NewServer(Options{ProjectRoot: root})).Must(b)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), in, out) }()
	lines := bufio.NewReader(fromServer)
	io.WriteString(toServer, hello)
	lines.ReadString('\n')
	for b.Loop() {
		io.WriteString(toServer, toolsCallOf("1", "get_workflows", "{}"))
		b.SetBytes(int64(len(testkit.Get(lines.ReadString('\n')).Must(b))))
	}
	toServer.Close()
	testkit.Works(b, <-served)
	testkit.Works(b, s.Close(context.Background()))
}

// BenchmarkTenThousandWorkflows is the time from a source's list_changed until its 10,000 workflows, whose schemas are
// compiled one by one, are tools: at most 5 s. list-changed is how often a client was told of that: once.
func BenchmarkTenThousandWorkflows(b *testing.B) {
	f := newFactory()
	s, _ := withSource(b, f, "")
	flows := thousands(10_000)
	w := new(watcher)
	client(b, s, w.options())
	w.ready(b, s)
	told := int64(0)
	for b.Loop() {
		f.offer(flows...)
		until(b, s, "all of them", func(l *remotetools.Listing) bool { return len(l.Tools) == len(flows) })
		b.StopTimer()
		w.until(b, 1)
		told += w.told.Load()
		f.offer()
		until(b, s, "none", func(l *remotetools.Listing) bool { return len(l.Tools) == 0 })
		w.until(b, 2)
		w.told.Store(0)
		b.StartTimer()
	}
	b.ReportMetric(float64(told)/float64(b.N), "list-changed")
}
