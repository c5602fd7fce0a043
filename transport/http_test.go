package transport

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/replies"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

var network = []struct{ name, transport, version string }{
	{"http", web.HTTP, stateful},
	{"http, oldest", web.HTTP, "2025-03-26"},
	{"http, newest", web.HTTP, ""},
	{"sse", web.SSE, "2024-11-05"},
}

// A workflow goes from start to end over each transport, with real clients. On another connection it is on no stack.
func TestWorkflowOverTheNetwork(t *testing.T) {
	t.Parallel()
	for _, n := range network {
		t.Run(n.name, func(t *testing.T) {
			s, _ := project(t, nil)
			h := overHTTP(t, s, web.Options{Transport: n.transport})
			cs := dial(t, h, n.version, "")
			testkit.Contains(t, cs.InitializeResult().Instructions, "failed to load", "instructions")

			start := into[replies.Start](t, cs, "start_workflow",
				`{"goal":"g","job_name":"trip","workflow_name":"dream"}`)
			testkit.Contains(t, refusedWith(t, cs, "finished_step", `{"outputs":{"idea":"none.txt"}}`, "ToolError"),
				"none.txt")

			if n.version != "" {
				refusedWith(t, dial(t, h, n.version, ""), "get_step", `{}`, "StateError")
				testkit.Equal(t, len(into[replies.Start](t, cs, "start_workflow",
					`{"goal":"g","job_name":"trip","workflow_name":"dream"}`).Stack), 2, "the stack")
			}
			done := into[replies.Finish](t, cs, "finished_step",
				`{"outputs":{"idea":"idea.txt"},"step_id":"idea","session_id":"`+start.BeginStep.SessionID+`"}`)
			testkit.Equal(t, done.Status, replies.WorkflowComplete, "%+v", done)
		})
	}
}

// The requests of the newest version have no connection: each has an agent, made by another constructor.
func TestStatelessRequestsHaveTheirOwnAgents(t *testing.T) {
	t.Parallel()
	var shared fakes
	s, own := fakeServer(t, nil, withHTTP(nil), func(p *engines) { p.connectStateless = shared.agent })
	h := overHTTP(t, s, web.Options{})
	for range 3 {
		cs := dial(t, h, "", "")
		callTool(t, cs, "get_workflows", `{}`)
		callTool(t, cs, "get_workflows", `{}`)
	}
	for _, a := range shared.agents {
		testkit.True(t, isClosed(a) && a.identity == "local", "an agent of %s; closed: %v", a.identity, isClosed(a))
	}
	testkit.True(t, len(shared.agents) >= 6 && len(own.agents) == 0, "%d agents of requests and %d of connections",
		len(shared.agents), len(own.agents))

	dial(t, h, stateful, "")
	testkit.Equal(t, len(own.agents), 1, "agents of connections")
}

// A DELETE ends the session, what it runs, and nothing else; its agent is closed when its calls are over, and
// not before.
func TestDeleteEndsASession(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan error, 1)
	s, f := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*replies.Finish, error) {
			close(began)
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond) // so that a server that does not wait is caught
			ended <- context.Cause(ctx)
			testkit.True(t, !isClosed(a), "its agent was closed in the middle of a call")
			return nil, ctx.Err()
		}
	}, withHTTP(nil))

	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	post(t, h, finishCall(1), id)
	<-began
	send(t, c, "DELETE", h.URL(), "", id).is(t, 204)
	testkit.FailsWith(t, <-ended, errGone)

	<-f.agents[0].closed
	for _, method := range []string{"POST", "GET", "DELETE"} {
		send(t, c, method, h.URL(), finishCall(2), id).is(t, 404, "session_id")
	}
	works(t, h)
}

// A session that is idle for longer than http.idle_timeout ends, and its agent with it, also while a stream is open;
// the timeout is that of the config when the connection was made.
func TestIdleSessionsEnd(t *testing.T) {
	for _, n := range network {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			var idle atomic.Int64
			s, f := fakeServer(t, nil, func(p *engines) {
				p.check = func(context.Context) (*config.Config, error) {
					c := config.Default()
					c.HTTP.IdleTimeout = time.Duration(idle.Load())
					return c, nil
				}
			})

			h := overHTTP(t, s, web.Options{Transport: n.transport})
			if n.version != "" { // stateless requests have one connection, whose time is set
				callTool(t, dial(t, h, n.version, ""), "get_workflows", `{}`)
			}
			before := len(f.agents)
			idle.Store(int64(time.Second))
			callTool(t, dial(t, h, n.version, ""), "get_workflows", `{}`)
			<-f.agents[before].closed
			testkit.True(t, before == 0 || !isClosed(f.agents[0]), "the connection without a timeout was closed, too")
			works(t, overHTTP(t, s, web.Options{}))
		})
	}
}

func fromNetwork(identity string, stateless bool) context.Context {
	ctx := session.WithCaller(context.Background(), session.Caller{Identity: identity, Channel: session.ChannelHTTP})
	if stateless {
		ctx = web.WithStateless(ctx)
	}
	return ctx
}

func isClosed(a *fakeAgent) bool {
	select {
	case <-a.closed:
		return true
	default:
		return false
	}
}

// The time of a connection counts from the end of its last call, and does not pass during one. A connection
// that is not a network's lives for ever.
func TestIdleTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		s, f := fakeServer(t, b.agent, withHTTP(func(c *config.HTTP) { c.IdleTimeout = time.Hour }))
		here, there := mcp.NewInMemoryTransports()
		ran := make(chan error, 1)
		go func() { ran <- s.mcp.Run(fromNetwork("ann", false), here) }()
		cs := connect(t, there, stateful, nil)
		defer func() {
			cs.Close()
			<-ran
		}()
		synctest.Wait()
		a := f.agents[0]
		for range 3 { // calls, each just in time
			time.Sleep(time.Hour - time.Second)
			accepted(t, cs, "get_workflows", `{}`)
		}
		inBackground(t, cs, "finished_step", `{"outputs":{}}`)
		time.Sleep(5 * time.Hour) // one call that takes long
		synctest.Wait()
		testkit.Need(t, !isClosed(a), "closed during a call")

		close(b.free)
		synctest.Wait()
		for _, pause := range []time.Duration{time.Hour - time.Second, 2 * time.Second} {
			time.Sleep(pause)
			synctest.Wait()
			testkit.Equal(t, isClosed(a), pause == 2*time.Second, "it is closed")
		}
		testkit.Equal(t, s.conns.Len(), 0, "connections are left")

		local := client(t, s)
		synctest.Wait()
		time.Sleep(100 * time.Hour)
		accepted(t, local, "get_workflows", `{}`)
	})
}

// A request without a session is a connection until it ends, for which the end of the server waits.
func TestRequestsWithoutASession(t *testing.T) {
	t.Parallel()
	s, f := fakeServer(t, nil, withHTTP(nil))
	ctx := fromNetwork("ann", true)
	conn, done, err := s.conns.acquire(ctx, nil)
	must(t, err)
	over, cancel := context.WithCancel(ctx)
	cancel()
	testkit.Equal(t, s.conns.Close(over), 1, "are left")
	testkit.True(t, conn.ctx.Err() != nil && !isClosed(f.agents[0]),
		"its context goes on, or it was closed during its call")

	done()
	testkit.Equal(t, s.conns.Close(ctx), 0, "are left")
	testkit.True(t, isClosed(f.agents[0]), "it is not closed")

	_, _, err = s.conns.acquire(ctx, nil)
	testkit.Equal(t, err, tool.ErrStopping, "after the end")
}

// While an idle session is being closed it is as unknown as it will be: a call would be carried out, and its
// reply dropped.
func TestSessionThatEndsIdle(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	s.conns.mu.Lock()
	conn := s.conns.byKey[strings.TrimPrefix(id, "Mcp-Session-Id: ")]
	conn.over = true
	s.conns.mu.Unlock()
	_, _, err := s.conns.acquire(context.Background(), conn.ss)
	testkit.Equal(t, err, errIdle, "a call")
	send(t, c, "POST", h.URL(), finishCall(1), id).is(t, 404)
}

// newestMeta is what each request of the newest version of the protocol says, of a client that has these capabilities.
func newestMeta(can string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + web.StatelessSince +
		`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":` + can + `}`
}

// In the newest protocol a result says what it is, and who gives it; in the others it
// does not. Clients of the newest one refuse a result that does not say so.
func TestResultsAreTypedInTheNewestProtocol(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, web.Options{})
	c := httpClient(t, "")
	for _, tool := range []string{"get_workflows", "start_workflow"} { // an answer and a refusal
		r := (&taker{t, c, h.URL(), `{}`}).call(tool, `{}`)
		testkit.True(t, r["resultType"] == "complete" &&
			r["_meta"].(map[string]any)["io.modelcontextprotocol/serverInfo"] != nil, "%s: %+v", tool, r)

		for _, way := range []string{"Accept: application/*, text/*", "Accept: */*"} {
			r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+
				`","arguments":{}}}`, open(t, c, h), way)
			testkit.Equal(t, r.status, 200)
			testkit.True(t, !strings.Contains(r.body, "resultType"), "%s: %+v", tool, r)
			testkit.True(t, !strings.Contains(r.body, "serverInfo"), "%s: %+v", tool, r)
		}
	}
}

// A client that hangs up has its connection closed, and its call goes on and is one of those that count.
func TestACallWhoseClientHangsUp(t *testing.T) {
	t.Parallel()
	b := newBlocked()
	s, _ := fakeServer(t, b.agent, withHTTP(func(c *config.HTTP) { c.MaxRequests = 1 }))
	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	conn := post(t, h, strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{"progressToken":1},`, 1), id)
	<-b.began
	conn.Close()
	waitFor(t, "the connection to close", func() bool { return h.Stats().Connections == 1 }) // the other one is kept
	testkit.Equal(t, s.tools.InFlight.Len(), 1, "calls in flight")
	send(t, c, "POST", h.URL(), finishCall(2), id).is(t, 429)
	b.free <- struct{}{}
	testkit.Works(t, <-b.ended)
	waitFor(t, "the end of the call", func() bool { return s.tools.InFlight.Len() == 0 && h.Stats().Requests == 0 })

	// Its id is free again.
	go func() {
		<-b.began
		b.free <- struct{}{}
	}()
	waitFor(t, "the answer to a call of the same id", func() bool {
		r := send(t, c, "POST", h.URL(), finishCall(1), id)
		return r.status == 200 && strings.Contains(r.body, `"id":1,"result"`)
	})
}

// What was carried out before the server stops is answered, over SSE too, where the request that brought
// a call is over long before, and clients drop what they have not looked at when the stream ends.
func TestStopAnswersOverSSE(t *testing.T) {
	t.Parallel()
	const callers = 30
	b := newBlocked()
	s, _ := fakeServer(t, b.agent, withHTTP(nil))
	h, tell, stopped := stopping(t, s, web.Options{Transport: web.SSE})
	answered := make(chan error, callers)
	for range callers {
		cs := dial(t, h, "2024-11-05", "")
		go func() {
			_, err := cs.CallTool(t.Context(),
				&mcp.CallToolParams{Name: "finished_step", Arguments: map[string]any{"outputs": map[string]any{}}})
			answered <- err
		}()
		<-b.began
	}
	waitFor(t, "the replies to be owed", func() bool { return h.Stats().Owed == callers })
	tell()
	waitFor(t, "it stops", func() bool { return send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").status == 503 })
	for range callers - 1 {
		b.free <- struct{}{}
		testkit.Works(t, <-answered)
	}
	close(b.free) // the SDK's client may give up the last reply, since the connection ends at once
	testkit.Works(t, <-stopped)
	testkit.Equal(t, h.Stats().Owed, 0, "replies are owed at the end")
}

// Tokens of the user's config count as those of the file do, also on loopback, as long as they are there.
func TestTokensOfTheConfig(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	s, _ := project(t, nil)
	h := overHTTP(t, s, web.Options{})
	old := dial(t, h, stateful, "")
	callTool(t, old, "get_workflows", `{}`)
	token, line, err := web.NewToken(config.Token{Name: "ann"})
	must(t, err)
	write(t, os.Getenv("XDG_CONFIG_HOME"),
		map[string]string{"deepwork/config.yml": "http: {tokens: [{name: ann, sha256: " + line[len("ann:"):] + "}]}\n"})
	send(t, httpClient(t, ""), "POST", h.URL(), initialize).is(t, 401)
	c := httpClient(t, token)
	open(t, c, h)
	// The session that was there before is nobody's any more.
	send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+old.ID()).is(t, 404)
}

// A workflow is reached from another connection by its session_id, and by its own caller alone; it outlives its
// connection. Stateless requests name it as soon as there is more than one. Of another identity an execution
// is not there.
func TestWorkflowsOfCallers(t *testing.T) {
	t.Parallel()
	s, _ := project(t, asSource)
	file, token := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	const start = `{"goal":"g","job_name":"trip","workflow_name":"plan"}`
	first := dial(t, h, stateful, token[0])
	second := dial(t, h, stateful, token[0])
	bob := dial(t, h, stateful, token[1])
	stateless := dial(t, h, "", token[0])
	id := into[replies.Start](t, stateless, "start_workflow", start).BeginStep.SessionID
	named := `{"session_id":"` + id + `"}`
	into[replies.Step](t, first, "get_step", named)

	refusedWith(t, second, "get_step", `{}`, "StateError")
	testkit.True(t, !strings.Contains(refusedWith(t, bob, "get_step", `{}`, "StateError"), id),
		"another caller is told of it")
	refusedWith(t, bob, "get_step", named, "StateError")
	refusedWith(t, dial(t, h, "", token[1]), "abort_workflow", `{"explanation":"e","session_id":"`+id+`"}`,
		"StateError")
	testkit.Equal(t, into[replies.Step](t, second, "get_step", named).BeginStep.StepID, "idea",
		"on its caller's other connection")

	must(t, first.Close())
	must(t, second.Close())

	testkit.Equal(t, into[replies.Step](t, stateless, "get_step", `{}`).BeginStep.SessionID, id, "the only one")
	other := into[replies.Start](t, stateless, "start_workflow", start).BeginStep.SessionID
	testkit.ContainsAll(t, refusedWith(t, stateless, "get_step", `{}`, "StateError"), []string{id, other, "session_id"})
	testkit.Equal(t, into[replies.Step](t, stateless, "get_step", named).BeginStep.SessionID, id, "named")

	about := `{"workflow_id":"trip/plan","execution_id":"` + id + `"}`
	for _, tool := range []string{"workflows-status-tool", "workflows-cancel-tool"} {
		testkit.Contains(t, refusedWith(t, bob, tool, about, "StateError"), "not found")
	}
	testkit.Contains(t, accepted(t, stateless, "workflows-status-tool", about), `"status":"running"`)
}

// The context of a call has its caller, over each transport.
func TestEachCallHasItsCaller(t *testing.T) {
	t.Parallel()
	got := make(chan session.Caller, 1)
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.start = func(ctx context.Context, _ workflow.StartArgs) (*replies.Start, error) {
			got <- session.CallerOf(ctx)
			return &replies.Start{BeginStep: fullStep("a"), Stack: a.stack}, nil
		}
	}, withHTTP(nil))

	file, token := tokens(t, "ann")
	check := func(cs *mcp.ClientSession, name string, want session.Caller) {
		t.Helper()
		callTool(t, cs, "start_workflow", `{"goal":"g","job_name":"j","workflow_name":"w"}`)
		testkit.Equal(t, <-got, want, "%s: the caller", name)
	}
	cs, stop, served := onStdio(t, s)
	check(cs, "stdio", session.LocalCaller(session.ChannelStdio))
	stop()
	<-served
	for name, transport := range map[string]string{"http": web.HTTP, "sse": web.SSE} {
		for _, version := range []string{stateful, ""} {
			check(dial(t, overHTTP(t, s, web.Options{Transport: transport}), version, ""), name+version,
				session.LocalCaller(name))
			check(dial(t, overHTTP(t, s, web.Options{Transport: transport, TokenFile: file}), version, token[0]),
				name+version+" with a token", session.Caller{Identity: "ann", Channel: name})
		}
	}
}

// A call of nobody knows whom is not one of the user: it is refused.
func TestACallWithoutACallerIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	here, there := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.mcp.Run(ctx, here) }()
	_, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), there, nil)
	testkit.Fails(t, err, "it is not known who makes this call")
	testkit.Equal(t, s.conns.Len(), 0, "connections")

	cancel()
	<-ran
}

// The server is found with a slash at the end of its address, and below the path of a proxy, which may leave
// it in requests or remove it.
func TestField10_AddressesOfTheServer(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	file, token := tokens(t, "ann")
	h := overHTTP(t, s, web.Options{TokenFile: file, BasePath: "/deep/work"})
	sse := overHTTP(t, s, web.Options{Transport: web.SSE, TokenFile: file, BasePath: "/deep/work"})
	for _, path := range []string{"/mcp", "/mcp/", "/mcp//", "/deep/work/mcp", "/deep/work/mcp/"} {
		accepted(t, dialAt(t, at(h, path), "", httpClient(t, token[0])), "get_workflows", `{}`)
	}

	for path, want := range map[string]int{
		"/healthz/":          200,
		"/deep/work/healthz": 200,
		"/deep/workmcp":      404,
		"/deep/mcp":          404,
		"/other/":            404,
	} {
		testkit.Equal(t, send(t, httpClient(t, token[0]), "GET", at(h, path), "").status, want, "%s", path)
	}

	for _, test := range []struct{ path, header, endpoint string }{
		{"/deep/work/sse/", "", "/deep/work/sse?sessionid="},
		{"/sse", "", "/deep/work/sse?sessionid="},
		{"/sse", "X-Forwarded-Prefix: /a-b/\r\n", "/a-b/sse?sessionid="},
		{"/sse", "X-Forwarded-Prefix: //evil.example.com\r\n", "/deep/work/sse?sessionid="},
	} {
		conn := raw(t, sse, "GET "+test.path+" HTTP/1.1\r\nHost: localhost\r\n"+test.header+"Authorization: Bearer "+
			token[0]+"\r\n\r\n")
		endpoint := endpointOf(t, conn)
		testkit.True(t, strings.HasPrefix(endpoint, test.endpoint), "%+v: the endpoint is %s", test, endpoint)
	}
}

// What may be kept of a reply says for how long, and that it's its caller's alone; the server says what it supports.
func TestWhatMayBeKeptInTheNewestProtocol(t *testing.T) {
	t.Parallel()
	_, c := taking(t, slowProject(t), takesTasks)
	for method, params := range map[string]string{
		"server/discover":          "",
		"tools/list":               "",
		"prompts/list":             "",
		"resources/list":           "",
		"resources/templates/list": "",
		"resources/read":           fmt.Sprintf(`"uri":"deepwork://sessions/%s"`, c.start()),
	} {
		name := strings.Split(params+`""""`, `"`)[3] // the URI, "" without one
		r, fault := c.request(method, name, params)
		ttl, ok := r["ttlMs"].(float64)
		testkit.Equal(t, fault, "", "%s: %s, type %v, scope %v, ttlMs %v", method, fault, r["resultType"],
			r["cacheScope"], r["ttlMs"])
		testkit.True(t, r["resultType"] == "complete", "%s: %s, type %v, scope %v, ttlMs %v", method, fault,
			r["resultType"], r["cacheScope"], r["ttlMs"])
		testkit.True(t, r["cacheScope"] == "private", "%s: %s, type %v, scope %v, ttlMs %v", method, fault,
			r["resultType"], r["cacheScope"], r["ttlMs"])
		testkit.Need(t, ok, "%s: %s, type %v, scope %v, ttlMs %v", method, fault, r["resultType"], r["cacheScope"],
			r["ttlMs"])
		testkit.True(t, ttl >= 0, "%s: %s, type %v, scope %v, ttlMs %v", method, fault, r["resultType"],
			r["cacheScope"], r["ttlMs"])

		if method != "server/discover" {
			continue
		}
		can, _ := r["capabilities"].(map[string]any)
		extensions, _ := can["extensions"].(map[string]any)
		versions, _ := r["supportedVersions"].([]any)
		testkit.Need(t, extensions["io.modelcontextprotocol/tasks"] != nil, "server/discover: %v", r)
		testkit.Need(t, can["tools"] != nil, "server/discover: %v", r)
		testkit.True(t, slices.Contains(versions, "2026-07-28"), "server/discover: %v", r)
		testkit.True(t, r["instructions"] != "", "server/discover: %v", r)
	}
	r := c.call("get_workflows", `{}`)
	testkit.True(t, r["ttlMs"] == nil && r["cacheScope"] == nil, "a call may not be kept: %v", r)
}

// Clients that don't declare the extension for tasks get, byte for byte, what they got before there were
// tasks: the golden file was made by the server of then. Only ids, times and folders are written anew.
func TestRepliesWithoutTasks(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	var all strings.Builder
	for _, version := range []string{"2026-07-28", stateful} {
		root := t.TempDir()
		write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, "text"))
		write(t, root, map[string]string{
			"review.sh": "while ! test -e go.txt; do sleep 0.05; done\nprintf '%s\\n' " +
				"'{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"{\\\"passed\\\": " +
				"true, \\\"feedback\\\": \\\"ok\\\"}\"}'\n",
			".deepwork/config.yml": "version: \"1.0\"\nquality_gate: {reviewer_executor: CLAUDE_LIKE, reply_within: " +
				"100ms}\nexecutors: {CLAUDE_LIKE: {command: [sh, review.sh, claude]}}\n" +
				"workflow_tools:\n  reply_within: 100ms\n  status_interval: 20ms\n  sources: [{name: factory, url: " +
				f.overWeb(t) + "}]\n",
		})
		s := serverOn(t, root, nil)
		s.connected(t)
		h := overHTTP(t, s, web.Options{})
		c := httpClient(t, "")
		headers, meta := []string{"Mcp-Protocol-Version: " + version, "Mcp-Method: tools/call"}, newestMeta(`{}`)
		if version == stateful {
			headers, meta = []string{open(t, c, h), ""}, `"_meta":{}`
			testkit.Contains(t, send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tasks/get"}`,
				headers[0]).body, "taskId", "a request about a task needs one")
		}
		call := func(name, args string) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`,
				name, args, meta)
			r := send(t, c, "POST", h.URL(), body, append(headers, "Mcp-Name: "+name)...)
			fmt.Fprintf(&all, "%s %s %s\n%d %s\n\n", version, name, args, r.status, strings.TrimSpace(r.body))
			return r.body
		}
		id := regexp.MustCompile(`"session_id":"([0-9a-f]{8})"`).
			FindStringSubmatch(call("start_workflow", `{"goal":"g","job_name":"checked","workflow_name":"full"}`))[1]
		call("finished_step", finishText(id))
		call("get_step", fmt.Sprintf(`{"session_id":%q}`, id))
		call("finished_step", fmt.Sprintf(`{"outputs":{"other":"text.txt"},"session_id":%q,"step_id":"text"}`, id))
		call("hang", `{}`)
		write(t, root, map[string]string{"go.txt": ""})
		kept := all.String()
		waitFor(t, "the review has passed", func() bool {
			all.Reset()
			all.WriteString(kept)
			return strings.Contains(call("finished_step", finishText(id)), `next_step`)
		})
		text := all.String()
		all.Reset()
		for _, r := range [][2]string{
			{regexp.QuoteMeta(root), "/project"}, {id, "0a1b2c3d"}, {`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`, "<uuid>"},
			{`20\d\d-\d\d-\d\dT[0-9:.]+Z`, "<time>"}, {`full-20\d\d-\d\d-\d\d`, "full-<day>"},
			{`begun \d+s ago`, "begun 0s ago"},
			{`event: message\n(id: \S+\n)?`, ""}, {`(\\?"source_execution_id\\?":).*?,`, "$1<id>,"},
			{`(\\?"progress\\?":)(null|\{.*?\})`, "$1<progress>"},
		} {
			text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
		}
		all.WriteString(text)
	}
	testkit.Golden(t, "testdata/without_tasks.txt", all.String(), *update)
}
