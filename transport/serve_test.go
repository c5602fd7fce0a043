package transport

import (
	"bytes"
	"context"
	"errors"
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
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/replies"
	"deepwork/session/state"
	"deepwork/session/workflow"
	"deepwork/transport/web"
)

// A server that was told to stop takes no new calls and says so; what is in flight is finished and answered,
// and streams do not hold it up.
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
			waitFor(t, "the beginning of the end", func() bool {
				return send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").status == 503
			})
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

// A call that does not end in its time is cut off, told so, and named. One that ignores that does not hold up the stop.
func TestStopCutsCalls(t *testing.T) {
	t.Parallel()
	for _, stubborn := range []bool{false, true} {
		b := newBlocked()
		b.stubborn = stubborn
		s, _ := fakeServer(t, b.agent, withHTTP(nil))
		log := new(logBook)
		s.logger = slog.New(slog.NewTextHandler(log, nil))
		s.tools.Logger = s.logger
		h, tell, stopped := stopping(t, s, web.Options{Grace: 20 * time.Millisecond})
		_, done := inBackground(t, dial(t, h, stateful, ""), "finished_step", `{"outputs":{}}`)
		<-b.began
		tell()
		if !stubborn {
			res := <-done
			testkit.Need(t, res != nil, "in flight: %+v", res)
			testkit.True(t, res.IsError, "in flight: %+v", res)
			testkit.True(t, strings.HasPrefix(text(res), "StateError: The server is stopping"), "in flight: %+v", res)
		}
		testkit.Works(t, <-stopped)

		close(b.free)
		testkit.ContainsAll(t, log.String(), []string{"calls in flight are cut off", "finished_step of local"},
			"it logged")
	}
}

// Readiness follows the config, which may be bad only at the start; then calls are refused, and no defaults
// let anybody in from elsewhere.
func TestReadyWithTheConfig(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/config.yml": "http: [\n"})
	s := serverOn(t, root, nil)
	testkit.Fails(t, testkit.Get(s.Listen(context.Background(), web.Options{Host: "0.0.0.0"})).Err(), "",
		"it listens to everybody")

	h := overHTTP(t, s, web.Options{})
	send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").is(t, 503, "configuration")
	cs := client(t, s)
	testkit.Contains(t, refusedWith(t, cs, "get_workflows", `{}`, "StateError"), "config.yml")
	testkit.Contains(t, cs.InitializeResult().Instructions, "config.yml", "instructions")

	write(t, root, map[string]string{".deepwork/config.yml": "http: {}\n"})
	send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").is(t, 200)
	accepted(t, cs, "get_workflows", `{}`)
}

// Prometheus reads the metrics, and a receiver gets the same, with nothing that people, agents or files say.
func TestMetrics(t *testing.T) {
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
	write(t, os.Getenv("XDG_CONFIG_HOME"),
		map[string]string{"deepwork/config.yml": "telemetry: {otlp: '" + receiver.URL + "'}\n"})
	s, root := project(t, nil)
	h := overHTTP(t, s, web.Options{})
	cs := dial(t, h, stateful, "")
	into[replies.Start](t, cs, "start_workflow",
		`{"goal":"canary-goal","job_name":"trip","workflow_name":"dream"}`)
	refusedWith(t, cs, "finished_step", `{"outputs":{"idea":"none"}}`, "ToolError")
	write(t, root, map[string]string{"idea.txt": "canary-output"})
	accepted(t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"},"notes":"canary-notes"}`)
	send(t, httpClient(t, ""), "GET", h.URL(), "", "Origin: http://evil.example.com")
	waitFor(t, "the stream", func() bool { return h.Stats().Streams == 1 && h.Stats().Requests == 0 })
	page := "\n" + send(t, httpClient(t, ""), "GET", at(h, "/metrics"), "").body
	for _, want := range []string{
		`deepwork_calls_total{outcome="ok",tool="start_workflow"} 1`,
		`deepwork_calls_total{outcome="workflow_complete",tool="finished_step"} 1`,
		`deepwork_call_duration_seconds_count{outcome="ok",tool="start_workflow"} 1`,
		`deepwork_call_duration_seconds_bucket{outcome="ok",tool="start_workflow",le="120"} 1`,
		`deepwork_call_errors_total{kind="refused",tool="finished_step"} 1`,
		`deepwork_refused_total{reason="origin"} 1`,
		"deepwork_calls_in_flight 0", "deepwork_mcp_connections 2", /* with that of conforms */
		"deepwork_http_streams 1", "deepwork_http_requests_in_flight 0",
		"deepwork_sessions_active ", "deepwork_sessions_awake ", "deepwork_actors ", "deepwork_mailbox_messages 0",
		"deepwork_mailbox_deepest 0", "deepwork_mailbox_blocked 0",
		"deepwork_reviews_running 0", "deepwork_reviews_waiting 0", "deepwork_review_pool_size 0",
		`deepwork_reviews_total{result="verdict"} 0`, "go_goroutines ",
		`deepwork_sessions_ended_total{status="completed"} 1`,
	} {
		testkit.Contains(t, page, "\n"+want)
	}

	// Dashboards rely on the names, the labels and the types.
	series := map[string]bool{}
	for line := range strings.Lines(page) {
		if strings.Contains(line, "deepwork_") {
			series[regexp.MustCompile(` [0-9.e+-]+\n$`).ReplaceAllString(line, "\n")] = true
		}
	}
	testkit.Golden(t, "testdata/metrics.txt", strings.Join(slices.Sorted(maps.Keys(series)), ""), *update)
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

	for _, secret := range []string{"canary", root, filepath.Base(root)} {
		testkit.True(t, !strings.Contains(raw.String(), secret), "%s was sent", secret)
	}
}

// What a run does that a server leads is counted by that server, while it lasts and after its end.
func TestARunLedByAServerIsCounted(t *testing.T) {
	t.Parallel()
	s, root := bareProject(t, `quality_gate: {agent_review_command: [sh, -c, "echo '{\"passed\": true}'"]}
executors: {MINE: {command: [sh, agent.sh]}}
`, func(o *Options) { o.Toolsets = config.DefaultToolsets })
	told, over := filepath.Join(root, "told"), filepath.Join(root, "over")
	write(t, root, map[string]string{
		"idea.txt": "sea",
		".deepwork/jobs/say/job.yml": `{name: say, version: 1.0.0, summary: S, ` +
			`common_job_info_provided_to_all_steps_at_runtime: C, workflows: [{name: main, summary: S, ` +
			`steps: [say]}], steps: [{id: say, name: N, description: D, instructions: I, ` +
			`outputs: {said: {type: string, description: D}}, ` +
			`reviews: [{run_each: said, quality_criteria: {Good: "Is it good?"}}]}]}`,
		"agent.sh": "cat > prompt.txt\necho \"$" + config.MCPURLEnv + " $" + executors.TokenEnv + "\" > " + told +
			".new\nmv " + told + ".new " + told + "\nwhile [ ! -e " + over + " ]; do sleep 0.05; done\n",
	})
	testkit.Git(t, root, "init", "-q", "-b", "main")
	testkit.Git(t, root, "add", "agent.sh")
	testkit.Git(t, root, "commit", "-q", "-m", "first")
	h := overHTTP(t, s, web.Options{})
	cs := dial(t, h, stateful, "")
	id := into[attempt.RunMade](t, cs, "run_workflow",
		`{"job_name":"say","workflow_name":"main","goal":"g","executor":"MINE"}`).RunID

	var agent []string
	waitFor(t, "the agent", func() bool {
		data, err := os.ReadFile(told)
		agent = strings.Fields(string(data))
		return err == nil
	})
	counted := func(wants ...string) {
		page := "\n" + send(t, httpClient(t, ""), "GET", at(h, "/metrics"), "").body
		for _, want := range wants {
			testkit.Contains(t, page, "\ndeepwork_"+want+"\n")
		}
	}
	counted("sessions_started_total 1", "sessions_active 1", "steps_finished_total 0")

	accepted(t, dialAt(t, agent[0], stateful, httpClient(t, agent[1])), "finished_step", `{"outputs":{"said":"it"}}`)
	write(t, root, map[string]string{"over": ""})
	waitFor(t, "the end of the run", func() bool {
		return into[board.RunReply](t, cs, "get_run", `{"run_id":"`+id+`"}`).State == board.Completed
	})
	waitFor(t, "the end of its server", func() bool {
		return strings.Contains(send(t, httpClient(t, ""), "GET", at(h, "/metrics"), "").body,
			"deepwork_sessions_active 0")
	})
	counted("sessions_started_total 1", `sessions_ended_total{status="completed"} 1`, "steps_finished_total 1",
		"tries_total 1", `reviews_total{result="verdict"} 1`, `review_verdicts_total{passed="true"} 1`)
}

// A board that was opened without a server is measured as the user's config says, whatever is wrong with the project's.
func TestABoardIsMeasuredByTheUsersConfig(t *testing.T) {
	var received atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	defer receiver.Close()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	write(t, os.Getenv("XDG_CONFIG_HOME"),
		map[string]string{"deepwork/config.yml": "telemetry: {otlp: '" + receiver.URL + "'}\n"})
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/config.yml": "projects: ["})
	e := testkit.Get(attempt.Open(t.Context(),
		attempt.Options{Options: board.Options{Root: root, State: state.Of(root), Config: config.Open(root).Current}})).
		Must(t)
	MeasureBoard(t.Context(), e, "dev")()
	testkit.Equal(t, received.Load(), 1, "sets of metrics")
	testkit.Same(t, e.Close(t.Context()), nil, "not stopped")
}

// patience is how long a test waits for what must come, on a machine that is busy
// with other things too; it never waits that long for what does not.
const patience = time.Minute

var waitFor, must = testkit.Until, testkit.Must

// The time of a body is not that of the call.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	const within = 500 * time.Millisecond
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*replies.Finish, error) {
			return fullFinish(), sleep(ctx, within+100*time.Millisecond)
		}
	}, withHTTP(nil))
	accepted(t, dial(t, overHTTP(t, s, web.Options{BodyTimeout: within}), stateful, ""), "finished_step",
		`{"outputs":{}}`)
}

// A client that never reads what it asked for is dropped, and holds nothing up.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	const size = 7 << 20 // it is sent twice, and more than the system takes for somebody who does not read
	large := fullFinish()
	large.Notice = new(strings.Repeat("n", size))
	began := make(chan struct{})
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(context.Context, workflow.FinishArgs) (*replies.Finish, error) {
			close(began)
			return large, nil
		}
	}, withHTTP(nil))

	h := overHTTP(t, s, web.Options{WriteTimeout: 100 * time.Millisecond})
	c, id := opened(t, h)
	conn := post(t, h, finishCall(1), id)
	<-began
	works(t, h)
	waitFor(t, "its end", func() bool { return h.Stats().Requests == 0 })
	conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	testkit.Need(t, len(got) != 0, "it was sent %d bytes, then %v: %.500q", len(got), err, got)
	testkit.Need(t, len(got) < 2*size, "it was sent %d bytes, then %v: %.500q", len(got), err, got)
	testkit.True(t, !errors.Is(err, os.ErrDeadlineExceeded), "it was sent %d bytes, then %v: %.500q",
		len(got), err, got)

	send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":2,"method":"ping"}`, id).is(t, 200)
}

// Requests beyond the limit are told to come later; streams take no one's place.
func TestRequestLimit(t *testing.T) {
	t.Parallel()
	b := newBlocked()
	s, _ := fakeServer(t, b.agent, withHTTP(func(c *config.HTTP) { c.MaxRequests = 2 }))
	h := overHTTP(t, s, web.Options{})
	for range 5 {
		dial(t, h, stateful, "") // with a stream each
		dial(t, h, "", "")
	}
	waitFor(t, "the streams", func() bool { return h.Stats().Streams >= 5 && h.Stats().Requests == 0 })
	c, id := opened(t, h)
	for i := range 2 {
		post(t, h, finishCall(i), id)
		<-b.began
	}
	send(t, c, "POST", h.URL(), finishCall(3), id).is(t, 429, "http.max_requests")
	testkit.Need(t, send(t, c, "POST", h.URL(),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`, id).status == 202,
		"no call can be cancelled")
	testkit.Equal(t, <-b.ended, context.Canceled, "the call that its client has cancelled")

	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		send(t, c, "GET", at(h, path), "").is(t, 200)
	}

	close(b.free)
	waitFor(t, "a call later", func() bool { return send(t, c, "POST", h.URL(), finishCall(4), id).status == 200 })
}

// Where as many connections as may be are at work, streams too, a new one waits until one of them has
// ended; /readyz and one connection of the user's own do not wait.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil, withHTTP(func(c *config.HTTP) { c.MaxConnections = 2 }))
	file, token := tokens(t, "ann")
	h := overHTTP(t, s, web.Options{Transport: web.SSE, TokenFile: file})
	open := func() net.Conn {
		return raw(t, h, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token[0]+"\r\n\r\n")
	}
	var streams []net.Conn
	for range 2 {
		conn := open()
		testkit.Get(io.ReadFull(conn, make([]byte, 100))).Must(t)
		streams = append(streams, conn)
	}
	third := open()
	send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").is(t, 200)
	testkit.Equal(t, h.Stats().Streams, 2, "streams")

	const call = "POST /sse?sessionid=x HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
		"application/json\r\nContent-Length: 2\r\nAuthorization: Bearer "
	waiting := raw(t, h, call+token[0]+"\r\n\r\n{}")
	waitFor(t, "a call that waits", func() bool { return h.Stats().Requests == 1 })
	waiting.Close()
	waitFor(t, "the end of the call whose client has left", func() bool { return h.Stats().Requests == 0 })
	streams[0].Close()
	testkit.Works(t, testkit.Get(io.ReadFull(third, make([]byte, 100))).Err(),
		"the third is not served when there is room")

	s, _ = fakeServer(t, nil, withHTTP(func(c *config.HTTP) { c.MaxConnections = 1 }))
	own := overHTTP(t, s, web.Options{Transport: web.SSE})
	for range 2 { // one of the user's, and one that counts
		testkit.Works(t, testkit.Get(
			io.ReadFull(raw(t, own, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n"), make([]byte, 100))).Err())
	}
}

// One identity has no more requests in flight than its quota, over each transport; another notices
// nothing, and neither does the user without tokens.
func TestRequestQuota(t *testing.T) {
	t.Parallel()
	const quota = 2
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			b := newBlocked()
			s, _ := fakeServer(t, func(a *fakeAgent) {
				if a.identity == "ann" {
					b.agent(a)
				}
			}, withHTTP(func(c *config.HTTP) { c.Quotas.Requests = quota }))
			file, token := tokens(t, "ann", "bob")
			h := overHTTP(t, s, web.Options{Transport: over, TokenFile: file})
			ann, bob := dial(t, h, stateful, token[0]), dial(t, h, stateful, token[1])
			waitFor(t, "the end of the requests that have their reply", func() bool { return h.Stats().Requests == 0 })
			var calls sync.WaitGroup
			for range quota {
				calls.Go(func() { accepted(t, ann, "finished_step", `{"outputs":{}}`) })
				<-b.began
			}
			url := h.URL()
			if over == web.SSE {
				url += "?sessionid=any" // it is refused before that is looked at
			}
			r := send(t, httpClient(t, token[0]), "POST", url, `{"jsonrpc":"2.0","id":9,"method":"ping"}`)
			r.is(t, 429, "http.quotas")
			testkit.True(t, r.header.Get("Retry-After") != "", "it does not say when to come again")

			for range 3 * quota {
				accepted(t, bob, "finished_step", `{"outputs":{}}`)
			}

			send(t, httpClient(t, token[1]), "GET", at(h, "/metrics"), "").is(t, 200,
				`deepwork_refused_total{reason="quota"} 1`)
			close(b.free)
			calls.Wait()
			accepted(t, ann, "get_workflows", `{}`)
		})
	}
}

// A token is replaced while its caller works, without an interruption: neither a call fails nor does
// the MCP session change, over each transport. Other rights make another session.
func TestTokenIsReplacedWithoutAnInterruption(t *testing.T) {
	t.Parallel()
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			s, f := fakeServer(t, nil, withHTTP(nil))
			file, old := tokens(t, "ann")
			h := overHTTP(t, s, web.Options{Transport: over, TokenFile: file})
			var current atomic.Value // the token that the client sends
			current.Store(old[0])
			rotating := httpClient(t, "")
			plain := rotating.Transport.(bearer).RoundTripper
			rotating.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				return bearer{plain, current.Load().(string)}.RoundTrip(r)
			})
			cs := dialAt(t, h.URL(), stateful, rotating)
			put := func(text string) {
				t.Helper()
				must(t, errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
			}
			token, next, err := web.NewToken(config.Token{Name: "ann"})
			must(t, err)
			put(string(testkit.Get(os.ReadFile(file)).Must(t)) + "\n" + next)
			accepted(t, cs, "get_workflows", `{}`)
			current.Store(token)
			accepted(t, cs, "get_workflows", `{}`)
			put(next)
			accepted(t, cs, "get_workflows", `{}`)
			send(t, httpClient(t, old[0]), "GET", at(h, "/metrics"), "").is(t, 401)
			testkit.Equal(t, len(f.agents), 1, "MCP sessions")

			if over == web.SSE {
				return
			}

			token, next, err = web.NewToken(config.Token{Name: "ann", Rights: config.RightAgents})
			must(t, err)
			put(next)
			send(t, httpClient(t, token), "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
				"Mcp-Session-Id: "+cs.ID()).is(t, 404)
			waitFor(t, "its end", func() bool { return s.conns.Len() == 0 })
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
