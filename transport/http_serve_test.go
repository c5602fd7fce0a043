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
				testkit.Contains(t, accepted(t, cs, "finished_step", `{"outputs":{}}`), "needs_work", "in flight")
			})
			<-b.began
			send(t, c, "GET", at(h, "/readyz"), "").is(t, 200)
			tell()
			waitFor(t, "the beginning of the end", func() bool { return send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").status == 503 })
			send(t, c, "GET", at(h, "/healthz"), "").is(t, 200)
			send(t, c, "POST", h.URL(), finishCall(1), id).is(t, 503, "server is stopping")
			testkit.Equal(t, len(stopped), 0, "it did not wait for the call")
			close(b.free)
			wg.Wait()
			testkit.Works(t, <-stopped)
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
	log := new(logBook)
	s.logger = slog.New(slog.NewTextHandler(log, nil))
	s.tools.Logger = s.logger
	h, tell, stopped := stopping(t, s, web.Options{Grace: 20 * time.Millisecond})
	_, done := inBackground(t, dial(t, h, stateful, ""), "finished_step", `{"outputs":{}}`)
	<-b.began
	tell()
	res := <-done
	testkit.True(t, res != nil && res.IsError && strings.HasPrefix(text(res), "StateError: The server is stopping"), "in flight: %+v", res)
	testkit.Works(t, <-stopped)
	testkit.ContainsAll(t, log.String(), []string{"calls in flight are cut off", "finished_step of local"}, "it logged")
}

// A call that cannot be cut off does not keep the server from stopping.
func TestStopLeavesWhatHangs(t *testing.T) {
	t.Parallel()
	b := newBlocked()
	b.stubborn = true
	s, _ := fakeServer(t, b.agent, withHTTP(nil))
	h, tell, stopped := stopping(t, s, web.Options{Grace: 20 * time.Millisecond})
	_, id := opened(t, h)
	post(t, h, finishCall(1), id)
	<-b.began
	tell()
	select {
	case err := <-stopped: // the calls' own time is another here; the rest of it is as it is
		testkit.Works(t, err)
	case <-time.After(20*time.Millisecond + web.StopTime - 5*time.Second + time.Minute):
		t.Error("it waits for the call")
	}
	close(b.free)
	s.conns.wg.Wait()
}

// Readiness follows the config, which may be bad only at the start; then calls
// are refused, and no defaults let anybody in from elsewhere.
func TestReadyWithTheConfig(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/config.yml": "http: [\n"})
	s := serverOn(t, root, nil)
	testkit.Fails(t, testkit.Get(s.Listen(context.Background(), web.Options{Host: "0.0.0.0"})).Err(), "", "it listens to everybody")
	h := overHTTP(t, s, web.Options{})
	send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").is(t, 503, "configuration")
	write(t, root, map[string]string{".deepwork/config.yml": "http: {}\n"})
	send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").is(t, 200)
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
