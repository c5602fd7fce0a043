package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// rootEnv, beside it, makes it a deepwork on this project, which agents reach over
// HTTP at the URL that it writes into the project's file url.
const rootEnv = "DEEPWORK_TEST_ROOT"

func innerDeepwork(root string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	s, err := NewServer(Options{ProjectRoot: root, StandardJobs: fstest.MapFS{}, AdditionalJobs: []string{}, Toolsets: []string{"workflows", "source"}})
	fail(err)
	h, err := s.Listen(context.Background(), web.Options{})
	fail(err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { h.Serve(ctx) })
	fail(os.WriteFile(filepath.Join(root, "url"), []byte(h.URL()), 0o600))
	err = s.ServeStdio(ctx, os.Stdin, os.Stdout)
	cancel()
	serving.Wait()
	fail(errors.Join(err, s.Close(context.Background())))
	os.Exit(0)
}

func init() {
	if os.Getenv(sourceEnv) == "" {
		return
	}
	if root := os.Getenv(rootEnv); root != "" {
		innerDeepwork(root)
	}
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// standardWorkflows are what a factory can do.
var standardWorkflows = []string{
	`{"id":"w-echo","name":"echo","description":"Gives its input","category":"test","version":"2.1.0","executionType":"sync","metadata":{"team":"a","n":12345678901234567890},
	  "inputSchema":{"type":"object","properties":{"customer":{"type":"string","description":"who"},"n":{"type":"integer"}},"required":["customer"]}}`,
	`{"id":"w-boom","name":"boom","description":"Fails at once","executionType":"sync"}`,
	`{"id":"w-block","name":"block","description":"Answers when it is let go","executionType":"sync"}`,
	`{"id":"w-steps","name":"steps","description":"Goes on for three looks at its status","executionType":"async"}`,
	`{"id":"w-fail","name":"fail","description":"Fails later","executionType":"async"}`,
	`{"id":"w-hang","name":"hang","description":"Goes on until it is cancelled"}`,
}

// A factory is a source of workflows.
type factory struct {
	mu        sync.Mutex
	workflows []string
	lists     int
	runs      map[string]*factoryRun
	started   []string // workflow ids
	inputs    []string
	ended     []string // the workflows whose synchronous call was cut off
	cancelled []string // execution ids
	blind     bool     // it has no status tool
	news      chan struct{}
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
	return &factory{workflows: workflows, runs: map[string]*factoryRun{}, news: make(chan struct{}, 1), let: make(chan struct{})}
}

// tell wakes the tests that wait for something to happen here.
func (f *factory) tell() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// until waits until something is true of the factory.
func (f *factory) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		is := ok()
		f.mu.Unlock()
		if is {
			return
		}
		select {
		case <-f.news:
		case <-deadline.C:
			t.Fatalf("waited for %s", what)
		}
	}
}

// offer changes the workflows, and says so.
func (f *factory) offer(workflows ...string) {
	f.mu.Lock()
	f.workflows = workflows
	f.mu.Unlock()
	f.changed()
}

// changed sends a list_changed to every connected client.
func (f *factory) changed() {
	f.mcp.AddTool(&mcp.Tool{Name: "noise", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return said(`{}`), nil })
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func refusedBy(text string) *mcp.CallToolResult {
	r := said(text)
	r.IsError = true
	return r
}

func (f *factory) server() *mcp.Server {
	f.mcp = mcp.NewServer(&mcp.Implementation{Name: "factory", Version: "1"}, nil)
	add := func(name string, h func(ctx context.Context, r *mcp.CallToolRequest, in factoryInput) (*mcp.CallToolResult, error)) {
		f.mcp.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in factoryInput
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			defer f.tell()
			return h(ctx, r, in)
		})
	}
	add("workflows-list-tool", func(context.Context, *mcp.CallToolRequest, factoryInput) (*mcp.CallToolResult, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lists++
		return said("[" + strings.Join(f.workflows, ",") + "]"), nil
	})
	add("workflows-execute-tool", f.execute)
	if !f.blind {
		add("workflows-status-tool", f.status)
	}
	add("workflows-cancel-tool", func(_ context.Context, _ *mcp.CallToolRequest, in factoryInput) (*mcp.CallToolResult, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cancelled = append(f.cancelled, in.ExecutionID)
		if r := f.runs[in.ExecutionID]; r != nil {
			r.cancelled = true
		}
		return said(`{"status":"cancelled"}`), nil
	})
	return f.mcp
}

type factoryInput struct {
	WorkflowID  string          `json:"workflow_id"`
	ExecutionID string          `json:"execution_id"`
	Input       json.RawMessage `json:"input"`
}

func (f *factory) execute(ctx context.Context, _ *mcp.CallToolRequest, in factoryInput) (*mcp.CallToolResult, error) {
	f.mu.Lock()
	f.started = append(f.started, in.WorkflowID)
	f.inputs = append(f.inputs, string(in.Input))
	f.mu.Unlock()
	f.tell()
	switch in.WorkflowID {
	case "w-boom":
		return refusedBy("the press is out of ink"), nil
	case "w-block":
		select {
		case <-f.let:
			return said(`"let go"`), nil
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			f.ended = append(f.ended, in.WorkflowID)
			return nil, ctx.Err()
		}
	case "w-steps", "w-fail", "w-hang":
		f.mu.Lock()
		defer f.mu.Unlock()
		id := fmt.Sprintf("x-%d", len(f.runs)+1)
		f.runs[id] = &factoryRun{workflow: in.WorkflowID}
		return said(fmt.Sprintf(`{"execution_id":%q,"status":"running"}`, id)), nil
	}
	return said(fmt.Sprintf(`{"echo":%s,"big":12345678901234567890}`, in.Input)), nil
}

func (f *factory) status(_ context.Context, _ *mcp.CallToolRequest, in factoryInput) (*mcp.CallToolResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runs[in.ExecutionID]
	if r == nil {
		return refusedBy("there is no such execution"), nil
	}
	r.looks++
	switch {
	case r.cancelled:
		return said(`{"status":"cancelled"}`), nil
	case r.workflow == "w-steps" && r.looks > 3:
		return said(`{"status":"COMPLETED","output":{"pages":3}}`), nil
	case r.workflow == "w-fail" && r.looks > 1:
		return said(`{"status":"failed","error":"the paper tore"}`), nil
	}
	return said(fmt.Sprintf(`{"status":"running","progress":%d,"total":3,"message":"page %d"}`, min(r.looks, 3), min(r.looks, 3))), nil
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
	return withConfig(t, "workflow_tools:\n"+fast+more+"  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", change[0])
}

// withConfig is a project with this config, once all its sources are connected.
func withConfig(t testing.TB, config string, change func(*Options)) (*Server, string) {
	t.Helper()
	s, root := bareProject(t, config, change)
	s.connected(t)
	return s, root
}

// connected waits until every source has told its workflows.
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

// until waits until the listing is as it should be.
func until(t testing.TB, s *Server, what string, ok func(*remotetools.Listing) bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		l := s.remote.Listing(t.Context())
		if ok(l) {
			return
		}
		testkit.Need(t, !time.Now().After(deadline), "waited for %s; there are %d tools, skipped %+v", what, len(l.Tools), l.From.Skipped)
		time.Sleep(5 * time.Millisecond) // what is waited for comes from another process
	}
}

// names waits until these workflow tools are listed, in this order.
func (s *Server) names(t testing.TB, want ...string) {
	t.Helper()
	until(t, s, fmt.Sprint(want), func(l *remotetools.Listing) bool { return slices.Equal(namesOf(l), want) })
}

func namesOf(l *remotetools.Listing) []string {
	names := make([]string, len(l.Tools))
	for i, t := range l.Tools {
		names[i] = t.Name
	}
	return names
}

// A watcher is a client that counts how often it is told that the list of tools changed.
type watcher struct {
	*mcp.ClientSession
	told atomic.Int64
	news chan struct{} // capacity 1
}

func watching(connect func(*mcp.ClientOptions) *mcp.ClientSession) *watcher {
	w := &watcher{news: make(chan struct{}, 1)}
	w.ClientSession = connect(&mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		w.told.Add(1)
		select {
		case w.news <- struct{}{}:
		default:
		}
	}})
	return w
}

// until waits for so many notices, and then for what would be one too many: a
// notice of ours is sent 10 ms after the change.
func (w *watcher) until(t testing.TB, n int64) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for w.told.Load() < n {
		select {
		case <-w.news:
		case <-deadline.C:
			t.Fatalf("told %d times, want %d", w.told.Load(), n)
		}
	}
	time.Sleep(60 * time.Millisecond)
	testkit.Equal(t, w.told.Load(), n, "told … times")
}

// ready waits until a client is told of changes at all, since a subscription is
// opened beside the session, and begins to count.
func (w *watcher) ready(t testing.TB, s *Server) {
	t.Helper()
	for deadline := time.Now().Add(patience); w.told.Load() == 0; {
		testkit.Need(t, !time.Now().After(deadline), "the client is never told")
		s.tools.Announce()
		select {
		case <-w.news:
		case <-time.After(100 * time.Millisecond):
		}
	}
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
	over := func(version string) func(*mcp.ClientOptions) *mcp.ClientSession {
		return func(o *mcp.ClientOptions) *mcp.ClientSession {
			return connect(t, &mcp.StreamableClientTransport{Endpoint: h.URL(), HTTPClient: httpClient(t, "")}, version, o)
		}
	}
	all := []*watcher{
		watching(func(o *mcp.ClientOptions) *mcp.ClientSession { return clientWith(t, s, o) }),
		watching(over(stateful)),
		watching(over("")),
	}
	for _, w := range all {
		listed(t, w.ClientSession)
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
	until(t, s, "the query", func(*remotetools.Listing) bool { f.mu.Lock(); defer f.mu.Unlock(); return f.lists >= 3 })
	expect(1)
	source := "  sources:\n    - {name: factory, url: " + f.url + "}\n"
	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools:\n  include: [many-00*]\n" + source})
	expect(2)
	testkit.Equal(t, len(s.remote.Listing(t.Context()).Tools), 10, "tools")
	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools:\n  include: [many-00*]\n  expose_jobs: true\n" + source})
	expect(3)
}

// thousands are so many workflows with schemas as people write them.
func thousands(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"id":"id-%d","name":"flow-%05d","description":"Does the work number %d, for whoever asks","category":"bulk","version":"1.2.3","executionType":"sync",`+
			`"inputSchema":{"type":"object","properties":{"customer":{"type":"string","description":"whose work it is"},"count":{"type":"integer","minimum":1}},"required":["customer"]}}`, i, i, i)
	}
	return all
}
