package source_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// patience is how long a test waits for what must come, on a machine that is busy
// with other things too; it never waits that long for what does not.
const patience = time.Minute

// A rig is a catalog under test.
type rig struct {
	*source.Catalog
	settings atomic.Pointer[config.Config]
	log      *testkit.Log
	root     string
}

// settings are the defaults with these sources.
func settings(sources ...config.WorkflowSource) *config.Config {
	c := config.Default()
	c.WorkflowTools.Sources = sources
	return c
}

func named(s config.WorkflowSource) config.WorkflowSource {
	s.ListTool, s.ExecuteTool = "workflows-list-tool", "workflows-execute-tool"
	s.StatusTool, s.CancelTool = "workflows-status-tool", "workflows-cancel-tool"
	return s
}

// command is a source in another process.
func command(name, mode string) config.WorkflowSource {
	return named(config.WorkflowSource{Name: name, Command: []string{os.Args[0]}, Env: map[string]string{modeEnv: mode}})
}

// overHTTP is a source over streamable HTTP.
func overHTTP(t *testing.T, name string, f *fakery) config.WorkflowSource {
	t.Helper()
	return named(config.WorkflowSource{Name: name, URL: serve(t, f.server()).URL})
}

func serve(t *testing.T, s *mcp.Server) *httptest.Server {
	t.Helper()
	return listenAndServe(t, mount(t, s))
}

// mount makes a handler of a server whose sessions end with the test.
func mount(t *testing.T, s *mcp.Server) http.Handler {
	t.Cleanup(func() {
		for session := range s.Sessions() {
			session.Close()
		}
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

func listenAndServe(t *testing.T, h http.Handler) *httptest.Server {
	web := httptest.NewServer(h)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	return web
}

func open(t testing.TB, c *config.Config, reserved ...string) *rig {
	t.Helper()
	r := &rig{log: new(testkit.Log), root: t.TempDir()}
	r.settings.Store(c)
	r.Catalog = source.Open(source.Options{
		Root:     r.root,
		Settings: func(context.Context) (*config.Config, error) { return r.settings.Load(), nil },
		Reserved: func() []string { return reserved },
		Version:  "test",
		Logger:   slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testkit.Works(t, r.Close(ctx))
		if t.Failed() {
			t.Log(clipped(r.log.String()))
		}
	})
	return r
}

func clipped(s string) string { return s[max(0, len(s)-3000):] }

// configure applies other settings.
func (r *rig) configure(t testing.TB, c *config.Config) {
	t.Helper()
	r.settings.Store(c)
	testkit.Must(t, r.Reconfigure(t.Context()))
}

func (r *rig) refresh(t testing.TB) {
	t.Helper()
	testkit.Get(r.Refresh(t.Context(), patience)).Must(t)
}

// until waits for the snapshot to be as it should.
func (r *rig) until(t testing.TB, what string, ok func(*source.Snapshot) bool) *source.Snapshot {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		s := r.Snapshot()
		if ok(s) {
			return s
		}
		select {
		case <-r.Changed():
		case <-time.After(50 * time.Millisecond): // what is waited for may be elsewhere than in the snapshot
		case <-deadline.C:
			t.Fatalf("waited for %s; there is %s", what, show(s))
		}
	}
}

// tools waits until these tools are offered, and no other.
func (r *rig) tools(t testing.TB, names ...string) *source.Snapshot {
	t.Helper()
	want := strings.Join(names, " ")
	return r.until(t, want, func(s *source.Snapshot) bool { return toolNames(s) == want })
}

func toolNames(s *source.Snapshot) string {
	var names []string
	for _, t := range s.Tools {
		names = append(names, t.Name)
	}
	return strings.Join(names, " ")
}

func show(s *source.Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "tools %.300s\n", toolNames(s))
	for _, src := range s.Sources {
		fmt.Fprintf(&b, "%+v\n", src)
	}
	fmt.Fprintf(&b, "%.1000v", s.Skipped)
	return b.String()
}

// away reports whether every tool's source is, and there are some.
func away(s *source.Snapshot) bool {
	for _, t := range s.Tools {
		if t.Away == "" {
			return false
		}
	}
	return len(s.Tools) > 0
}

// logged waits until the log contains all parts: a source publishes a change before it logs it.
func (r *rig) logged(t testing.TB, parts ...string) {
	t.Helper()
	testkit.Eventually(t, func() string {
		log := r.log.String()
		for _, part := range parts {
			if !strings.Contains(log, part) {
				return fmt.Sprintf("the log does not say %q:\n%s", part, clipped(log))
			}
		}
		return ""
	})
}
