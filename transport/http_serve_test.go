package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// stopping serves s until stop is called, whose result is that of Serve.
func stopping(t *testing.T, s *Server, o web.Options) (h *web.Server, tell func(), stopped chan error) {
	t.Helper()
	h = testkit.Get(s.Listen(context.Background(), o)).Must(t)
	ctx, cancel := context.WithCancel(context.Background())
	stopped = make(chan error, 1)
	go func() { stopped <- h.Serve(ctx) }()
	t.Cleanup(cancel)
	return h, cancel, stopped
}

// A server that was told to stop takes no new calls and says so; what is in
// flight is finished and answered, and streams do not hold it up.
func TestStopFinishesCalls(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"session": stateful, "stateless": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBlocked()
			s, f := fakeServer(t, b.agent, withHTTP(nil))
			h, tell, stopped := stopping(t, s, web.Options{})
			cs := dial(t, h, version, "")
			c, id := opened(t, h)
			var wg sync.WaitGroup
			wg.Go(func() {
				if res := callTool(t, cs, "finished_step", `{"outputs":{}}`); res.IsError || !strings.Contains(text(res), "needs_work") {
					t.Errorf("in flight: %s", text(res))
				}
			})
			<-b.began
			if r := send(t, c, "GET", at(h, "/readyz"), ""); r.status != 200 {
				t.Errorf("before: %+v", r)
			}
			tell()
			waitFor(t, "the beginning of the end", func() bool { return send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").status == 503 })
			if r := send(t, c, "GET", at(h, "/readyz"), ""); r.status != 503 || !strings.Contains(r.body, "stopping") {
				t.Errorf("readyz: %+v", r)
			}
			if r := send(t, c, "GET", at(h, "/healthz"), ""); r.status != 200 {
				t.Errorf("healthz: %+v", r)
			}
			if r := send(t, c, "POST", h.URL(), finishCall(1), id); r.status != 503 || !strings.Contains(r.body, "server is stopping") || r.header.Get("Retry-After") == "" {
				t.Errorf("a new call: %+v", r)
			}
			select {
			case err := <-stopped:
				t.Fatalf("it did not wait for the call: %v", err)
			default:
			}
			close(b.free)
			wg.Wait()
			noError(t, <-stopped)
			for _, a := range f.agents {
				<-a.closed
			}
			testkit.Fails(t, testkit.Get(net.Dial("tcp", address(h))).Err(), "", "it still listens")
		})
	}
}

// A call that does not end in its time is cut off, told so, and named.
func TestStopCutsCalls(t *testing.T) {
	t.Parallel()
	b := newBlocked()
	s, _ := fakeServer(t, b.agent, withHTTP(nil))
	var log bytes.Buffer
	s.logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s.tools.Logger = s.logger
	h, tell, stopped := stopping(t, s, web.Options{Grace: 20 * time.Millisecond})
	cs := dial(t, h, stateful, "")
	var wg sync.WaitGroup
	wg.Go(func() {
		if res := callTool(t, cs, "finished_step", `{"outputs":{}}`); !res.IsError || !strings.HasPrefix(text(res), "StateError: The server is stopping") {
			t.Errorf("in flight: %s", text(res))
		}
	})
	<-b.began
	tell()
	wg.Wait()
	noError(t, <-stopped)
	if got := log.String(); !strings.Contains(got, "calls in flight are cut off") || !strings.Contains(got, "finished_step of local") {
		t.Errorf("it logged %s", got)
	}
}

// A call that cannot be cut off does not keep the server from stopping.
func TestStopLeavesWhatHangs(t *testing.T) {
	t.Parallel()
	b := newBlocked()
	b.stubborn = true
	s, _ := fakeServer(t, b.agent, withHTTP(nil))
	h, tell, stopped := stopping(t, s, web.Options{Grace: 20 * time.Millisecond})
	c, id := opened(t, h)
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := http.NewRequest("POST", h.URL(), strings.NewReader(finishCall(1)))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Mcp-Session-Id": {strings.TrimPrefix(id, "Mcp-Session-Id: ")}}
		if res, err := c.Do(req); err == nil {
			res.Body.Close()
		}
	})
	<-b.began
	asked := time.Now()
	tell()
	noError(t, <-stopped)
	// The calls' own time is another here; the rest of it is as it is.
	if d, most := time.Since(asked), 20*time.Millisecond+web.StopTime-5*time.Second; d > most+time.Minute {
		t.Errorf("it stopped after %v, and is to after %v", d, most)
	}
	wg.Wait()
	close(b.free)
	s.conns.wg.Wait()
}

// Readiness follows the config, which may be bad only at the start; then calls
// are refused, and no defaults let anybody in from elsewhere.
func TestReadyWithTheConfig(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/config.yml": "http: [\n"})
	s := made(t, Options{ProjectRoot: root})
	testkit.Fails(t, testkit.Get(s.Listen(context.Background(), web.Options{Host: "0.0.0.0"})).Err(), "", "it listens to everybody")
	h := overHTTP(t, s, web.Options{})
	c := httpClient(t, "")
	if r := send(t, c, "GET", at(h, "/readyz"), ""); r.status != 503 || !strings.Contains(r.body, "configuration") {
		t.Errorf("%+v", r)
	}
	if r := send(t, c, "GET", at(h, "/healthz"), ""); r.status != 200 {
		t.Errorf("%+v", r)
	}
	write(t, root, map[string]string{".deepwork/config.yml": "http: {}\n"})
	if r := send(t, c, "GET", at(h, "/readyz"), ""); r.status != 200 {
		t.Errorf("%+v", r)
	}
}

func TestMetrics(t *testing.T) {
	s, _ := project(t, nil)
	h := overHTTP(t, s, web.Options{})
	cs := dial(t, h, stateful, "")
	into[machine.StartReply](t, cs, "start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"dream"}`)
	refusedWith(t, cs, "finished_step", `{"outputs":{"idea":"none"}}`, "ToolError")
	callTool(t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
	send(t, httpClient(t, ""), "GET", h.URL(), "", "Origin: http://evil.example.com")
	waitFor(t, "the stream", func() bool { return h.Stats().Streams == 1 && h.Stats().Requests == 0 })
	r := send(t, httpClient(t, ""), "GET", at(h, "/metrics"), "")
	for _, want := range []string{
		`deepwork_calls_total{outcome="ok",tool="start_workflow"} 1`,
		`deepwork_calls_total{outcome="workflow_complete",tool="finished_step"} 1`,
		`deepwork_call_duration_seconds_count{outcome="ok",tool="start_workflow"} 1`,
		`deepwork_call_duration_seconds_bucket{outcome="ok",tool="start_workflow",le="120"} 1`,
		`deepwork_call_errors_total{kind="refused",tool="finished_step"} 1`,
		`deepwork_refused_total{reason="origin"} 1`,
		"deepwork_calls_in_flight 0",
		"deepwork_mcp_connections 2", // with that of conforms
		"deepwork_http_streams 1", "deepwork_http_requests_in_flight 0",
		"deepwork_sessions_active ", "deepwork_sessions_awake ",
		"deepwork_actors ", "deepwork_mailbox_messages 0", "deepwork_mailbox_deepest 0", "deepwork_mailbox_blocked 0",
		"deepwork_reviews_running 0", "deepwork_reviews_waiting 0", "deepwork_review_pool_size 0", `deepwork_reviews_total{result="verdict"} 0`,
		"go_goroutines ",
	} {
		testkit.Contains(t, r.body, "\n"+want, "no %s", want)
	}
	// Dashboards rely on the names, the labels and the types.
	series := map[string]bool{}
	for line := range strings.Lines(r.body) {
		if strings.Contains(line, "deepwork_") {
			series[regexp.MustCompile(` [0-9.e+-]+\n$`).ReplaceAllString(line, "\n")] = true
		}
	}
	testkit.Golden(t, "testdata/metrics.txt", strings.Join(slices.Sorted(maps.Keys(series)), ""), *update)
	if t.Failed() {
		for line := range strings.Lines(r.body) {
			if strings.HasPrefix(line, "deepwork_") && !strings.Contains(line, "_bucket") {
				t.Log(line)
			}
		}
	}
}

// A board that was opened without a server is measured as the user's config says, whatever is wrong with the project's.
func TestABoardIsMeasuredByTheUsersConfig(t *testing.T) {
	var received atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	defer receiver.Close()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	write(t, os.Getenv("XDG_CONFIG_HOME"), map[string]string{"deepwork/config.yml": "telemetry: {otlp: '" + receiver.URL + "'}\n"})
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/config.yml": "projects: ["})
	e := testkit.Get(attempt.Open(t.Context(), attempt.Options{Options: board.Options{Root: root, State: state.Of(root), Config: config.Open(root).Current}})).Must(t)
	MeasureBoard(t.Context(), e, "dev")()
	testkit.Equal(t, received.Load(), 1, "sets of metrics")
	testkit.Same(t, e.Close(t.Context()), nil, "not stopped")
}

// A receiver gets the metrics that Prometheus reads, and nothing that people, agents or files say.
func TestMetricsAreSent(t *testing.T) {
	var mu sync.Mutex
	var raw bytes.Buffer
	sent := map[string]string{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body := testkit.Get(io.ReadAll(r.Body)).Must(t)
		raw.Write(body)
		var in collector.ExportMetricsServiceRequest
		testkit.Works(t, proto.Unmarshal(body, &in))
		for _, m := range in.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			sent[m.Name] = fmt.Sprint(m.GetSum().GetDataPoints())
		}
	}))
	defer receiver.Close()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	write(t, os.Getenv("XDG_CONFIG_HOME"), map[string]string{"deepwork/config.yml": "telemetry: {otlp: '" + receiver.URL + "'}\n"})
	s, root := project(t, nil)
	h := overHTTP(t, s, web.Options{})
	cs := dial(t, h, stateful, "")
	into[machine.StartReply](t, cs, "start_workflow", `{"goal":"canary-goal","job_name":"trip","workflow_name":"dream"}`)
	write(t, root, map[string]string{"idea.txt": "canary-output"})
	callTool(t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"},"notes":"canary-notes"}`)
	send(t, httpClient(t, ""), "GET", h.URL(), "", "Origin: http://evil.example.com")
	page := send(t, httpClient(t, ""), "GET", at(h, "/metrics"), "").body
	testkit.Works(t, s.Close(t.Context()))

	mu.Lock()
	defer mu.Unlock()
	var scraped []string
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (deepwork_\S+)`).FindAllStringSubmatch(page, -1) {
		scraped = append(scraped, line[1])
	}
	testkit.Same(t, slices.Sorted(maps.Keys(sent)), scraped)
	for _, name := range []string{"deepwork_sessions_started_total", "deepwork_steps_finished_total"} {
		testkit.Contains(t, sent[name], "as_double:1", name)
		testkit.Contains(t, page, "\n"+name+" 1\n")
	}
	testkit.Contains(t, page, "\ndeepwork_sessions_ended_total{status=\"completed\"} 1\n")
	for _, secret := range []string{"canary", root, filepath.Base(root)} {
		testkit.True(t, !strings.Contains(raw.String(), secret), "%s was sent", secret)
	}
}
