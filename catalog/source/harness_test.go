package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// patience is how long a test waits for what must come, on a machine that is busy with other things too; it
// never waits that long for what does not.
const patience = time.Minute

// A rig is a catalog under test.
type rig struct {
	*source.Catalog
	settings atomic.Pointer[config.Config]
	log      *testkit.Log
	root     string
}

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

func command(name, mode string) config.WorkflowSource {
	return named(config.WorkflowSource{
		Name:    name,
		Command: []string{os.Args[0]},
		Env:     map[string]string{modeEnv: mode},
	})
}

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
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return web
}

var parallel sync.Map // the tests that have called open

// open opens a catalog. A test that calls it runs beside others.
func open(t testing.TB, c *config.Config, reserved ...string) *rig {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		if _, again := parallel.LoadOrStore(test, true); !again {
			test.Parallel()
		}
	}

	r := &rig{log: new(testkit.Log), root: testkit.Dir(t)}
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
		if log := r.log.String(); t.Failed() {
			t.Log(log[max(0, len(log)-3000):])
		}
	})

	return r
}

// offering opens a catalog of one source and returns its first workflow when these tools are offered.
func offering(t *testing.T, src config.WorkflowSource, tools ...string) (*rig, *source.Workflow) {
	t.Helper()
	r := open(t, settings(src))
	return r, &r.tools(t, tools...).Tools[0].Workflow
}

func (r *rig) execute(t *testing.T, w *source.Workflow, input string) (*source.Answer, error) {
	t.Helper()
	return r.Execute(t.Context(), w, json.RawMessage(input), nil)
}

func (r *rig) gives(t *testing.T, w *source.Workflow, input, want string, what ...any) {
	t.Helper()
	got, err := r.execute(t, w, input)
	testkit.Works(t, err, what...)
	if err == nil {
		testkit.Equal(t, string(got.Output), want, what...)
		testkit.Equal(t, got.State, source.Completed, what...)
	}
}

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
	for deadline := time.Now().Add(patience); ; {
		if s := r.Snapshot(); ok(s) {
			return s
		} else if time.Now().After(deadline) {
			t.Fatalf("waited for %s; there is %s", what, show(s))
		}
		select {
		case <-r.Changed():
		case <-time.After(50 * time.Millisecond): // what is waited for may be elsewhere than in the snapshot
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
	return fmt.Sprintf("tools %.300s\n%+v\n%.1000v", toolNames(s), s.Sources, s.Skipped)
}

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
	for _, part := range parts {
		testkit.Until(t, "logged: "+part, func() bool { return r.log.Count(part) > 0 })
	}
}

func (r *rig) connected() int { return r.log.Count("a source is connected") }

// back waits until all tools are offered again.
func (r *rig) back(t testing.TB, names ...string) {
	t.Helper()
	r.until(t, "it to come back", func(s *source.Snapshot) bool {
		return toolNames(s) == strings.Join(names, " ") && s.Tools[0].Away == ""
	})
}
