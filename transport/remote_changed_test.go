package transport

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	remotetools "deepwork/transport/tools/remote"
	"deepwork/transport/web"
)

// A watcher is a client that counts how often it is told that the list of tools
// changed.
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
	if got := w.told.Load(); got != n {
		t.Errorf("told %d times, want %d", got, n)
	}
}

// ready waits until a client is told of changes at all, since a subscription is
// opened beside the session, and begins to count.
func (w *watcher) ready(t testing.TB, s *Server) {
	t.Helper()
	for deadline := time.Now().Add(patience); w.told.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the client is never told")
		}
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

// One change is one notice to each client, however many tools it touches, in
// sessions and in subscriptions.
func TestOneChangeIsOneNotice(t *testing.T) {
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
	if n := len(s.remote.Listing(t.Context()).Tools); n != 10 {
		t.Errorf("%d tools", n)
	}
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
