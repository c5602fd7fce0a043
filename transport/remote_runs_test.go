package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/remote"
	"deepwork/session/replies"
	remotetools "deepwork/transport/tools/remote"
	"deepwork/transport/tools/source"
	"deepwork/transport/web"
)

// onStdio serves a client over the stdio transport, and returns it with what stops the server and how serving ended.
func onStdio(t *testing.T, s *Server) (cs *mcp.ClientSession, stop func(), served <-chan error) {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeStdio(ctx, in, out) }()
	t.Cleanup(stop)
	return connect(t, &mcp.IOTransport{Reader: fromServer, Writer: toServer}, "", nil), stop, ended
}

// ways are how a client reaches the server.
var ways = map[string]func(*testing.T, *Server) *mcp.ClientSession{
	"stdio": func(t *testing.T, s *Server) *mcp.ClientSession {
		cs, _, _ := onStdio(t, s)
		return cs
	},
	"http stateful": func(t *testing.T, s *Server) *mcp.ClientSession {
		return dial(t, overHTTP(t, s, web.Options{}), stateful, "")
	},
	"http stateless": func(t *testing.T, s *Server) *mcp.ClientSession {
		return dial(t, overHTTP(t, s, web.Options{}), "", "")
	},
	"sse": func(t *testing.T, s *Server) *mcp.ClientSession {
		return dial(t, overHTTP(t, s, web.Options{Transport: web.SSE}), stateful, "")
	},
}

// inBackground makes a call and returns what ends it, as its caller would, and what came of it, nil for an error.
func inBackground(
	t *testing.T, cs *mcp.ClientSession, name, arguments string,
) (cancel func(), done <-chan *mcp.CallToolResult) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan *mcp.CallToolResult, 1)
	go func() {
		res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
		if err != nil {
			res = nil
		}
		ended <- res
	}()
	t.Cleanup(cancel)
	return cancel, ended
}

// only is the one run there is, as its source's id finds it.
func only(t *testing.T, s *Server) *remote.Run {
	t.Helper()
	return testkit.Get(s.remote.Runs.Status(t.Context(), session.LocalIdentity, "x-1")).Must(t)
}

// A call that its caller cancels ends the workflow at its source, over every transport.
func TestReq003_7_5_ACancelledCallIsCancelledAtTheSource(t *testing.T) {
	t.Parallel()
	for name, connect := range ways {
		t.Run(name, func(t *testing.T) {
			f := newFactory(standardWorkflows...)
			s, _ := withSource(t, f, "")
			cs := connect(t, s)
			for _, name := range []string{"hang", "block"} {
				cancel, _ := inBackground(t, cs, name, `{}`)
				f.until(t, "the start of "+name, func() bool {
					return slices.Contains(f.started, "w-"+name) && (name == "block" || f.looked())
				})
				cancel()
				f.until(t, "the end of "+name, func() bool {
					return len(f.cancelled) == 1 && (name == "hang" || len(f.ended) == 1)
				})
			}

			s.quiet(t)
			testkit.Equal(t, only(t, s).State, remote.Cancelled)
		})
	}
}

func (f *factory) looked() bool {
	r := f.runs["x-1"]
	return r != nil && r.looks > 0
}

func (s *Server) quiet(t *testing.T) {
	t.Helper()
	waitFor(t, "the end of all calls", func() bool { return s.tools.InFlight.Len() == 0 })
}

// goesOn checks that a run goes on, by letting it end and finding its result.
func (f *factory) goesOn(t *testing.T, s *Server) {
	t.Helper()
	testkit.Equal(t, only(t, s).State, remote.Running)

	// who started it may have its reply before that
	f.until(t, "the start", func() bool { return f.runs["x-1"] != nil })
	f.mu.Lock()
	f.runs["x-1"].workflow, f.runs["x-1"].looks = "w-steps", 10
	f.mu.Unlock()
	waitFor(t, "completed", func() bool { return only(t, s).State == remote.Completed }) // it is asked at intervals
	f.mu.Lock()
	defer f.mu.Unlock()
	testkit.True(t, len(f.cancelled) == 0 && len(f.started) == 1, "cancelled %v, started %v", f.cancelled, f.started)
}

// hangingCall calls a workflow that goes on until it is cancelled.
var hangingCall = strings.TrimSpace(toolsCallOf("1", "hang", `{}`))

// A caller that is gone, and did not cancel, leaves its run going.
func TestAVanishedCallersRunGoesOn(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, s *Server) (vanish func()){
		"stdio":                        vanishesOverStdio,
		"http stateful, hung up":       hangsUpOverHTTP,
		"http stateful, session ended": endsItsHTTPSession,
		"sse":                          vanishesOverSSE,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFactory(standardWorkflows...)
			s, _ := withSource(t, f, "")
			vanish := begin(t, s)
			f.until(t, "the start", f.looked)
			vanish()
			f.goesOn(t, s)
		})
	}
}

func vanishesOverStdio(t *testing.T, s *Server) (vanish func()) {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), in, out) }()
	go io.Copy(io.Discard, fromServer)
	fmt.Fprintln(toServer, hello+hangingCall)
	t.Cleanup(func() { <-served })
	return func() {
		fromServer.Close() // and with it every caller that could be answered
		toServer.Close()
	}
}

func hangsUpOverHTTP(t *testing.T, s *Server) (vanish func()) {
	h := overHTTP(t, s, web.Options{})
	_, header := opened(t, h)
	conn := post(t, h, hangingCall, header)
	return func() { conn.Close() }
}

func endsItsHTTPSession(t *testing.T, s *Server) (vanish func()) {
	h := overHTTP(t, s, web.Options{})
	_, header := opened(t, h)
	post(t, h, hangingCall, header)
	return func() {
		send(t, httpClient(t, ""), "DELETE", h.URL(), "", header)
		s.quiet(t)
	}
}

func vanishesOverSSE(t *testing.T, s *Server) (vanish func()) {
	h := overHTTP(t, s, web.Options{Transport: web.SSE})
	stream := raw(t, h, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	endpoint := "http://" + address(h) + endpointOf(t, stream)
	for _, body := range []string{initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, hangingCall} {
		send(t, httpClient(t, ""), "POST", endpoint, body).is(t, 202)
	}
	return func() {
		stream.Close()
		s.quiet(t)
	}
}

func endpointOf(t *testing.T, stream io.Reader) string {
	t.Helper()
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if endpoint, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return endpoint
		}
	}
	t.Fatal("the stream has no endpoint")
	return ""
}

// In the newest protocol over HTTP hanging up is how a call is cancelled.
func TestHangingUpCancelsAStatelessCall(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	h := overHTTP(t, s, web.Options{})
	conn := post(t, h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","arguments":{},`+
		newestMeta(`{}`)+`}}`,
		"Mcp-Protocol-Version: "+web.StatelessSince, "Mcp-Method: tools/call", "Mcp-Name: hang")
	f.until(t, "the start", f.looked)
	conn.Close()
	f.until(t, "the cancel", func() bool { return len(f.cancelled) == 1 })
	s.quiet(t)
	waitFor(t, "the end of the request", func() bool { return h.Stats().Requests == 0 && h.Stats().Connections == 0 })
	testkit.Equal(t, only(t, s).State, remote.Cancelled)
}

// A server that stops leaves runs going at their sources, and says how they are found again.
func TestAStoppedServersRunsGoOn(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, root := withSource(t, f, "")
	cs, stop, served := onStdio(t, s)
	_, done := inBackground(t, cs, "hang", `{}`)
	f.until(t, "the start", f.looked)
	stop()
	res := <-done
	testkit.Need(t, res != nil, "the call was not answered")
	testkit.Works(t, <-served)

	id, _ := errorMetaOf(t, res)["execution_id"].(string)
	testkit.Contains(t, text(res), "workflow_status")
	testkit.Equal(t, len(id), 36)
	testkit.Works(t, s.Close(t.Context()))

	next := serverOn(t, root, nil)
	next.connected(t)
	testkit.Equal(t, into[remote.Run](t, client(t, next), "workflow_status", `{"execution_id":"`+id+`"}`).State,
		remote.Running)
	f.goesOn(t, next)
}

// One deepwork as the source of another: what is called at the outer one is an execution at the inner one,
// which an agent there moves on.
func TestADeepworkIsTheSourceOfAnother(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"stdio", "http"} {
		t.Run(over, func(t *testing.T) {
			inner, root := bareProject(t, "", asSource)
			url := overHTTP(t, inner, web.Options{}).URL()
			source := fmt.Sprintf("{name: inner, url: %q}", url)
			if over == "stdio" { // another server of the project, which agents reach as well
				source = fmt.Sprintf("{name: inner, command: [%q], env: {%s: \"1\", %s: %q}}",
					testkit.Get(os.Executable()).Must(t), sourceEnv, rootEnv, root)
			}
			outer, _ := withConfig(t, "workflow_tools:\n"+fast+"  sources:\n    - "+source+"\n", nil)
			outer.names(t, "trip-dream", "trip-plan")
			conforms(t, outer)
			cs := client(t, outer)
			tool := listed(t, cs)["trip-plan"]
			testkit.True(t, strings.HasPrefix(tool.Description, "[From the source inner; an agent must perform the "+
				"steps there] From idea to booking") &&
				tool.Meta[remotetools.WorkflowMeta].(map[string]any)["id"] == "trip/plan", "got %+v", tool)
			testkit.Contains(t, refusedWith(t, cs, "trip-plan", `{}`, "ToolError"), "goal")

			ended := make(chan *mcp.CallToolResult, 1)
			var progress testkit.Log
			caller := client(t, outer, &mcp.ClientOptions{ProgressNotificationHandler: func(
				_ context.Context, r *mcp.ProgressNotificationClientRequest,
			) {
				fmt.Fprintln(&progress, r.Params.Message)
			}})
			go func() {
				params := &mcp.CallToolParams{Name: "trip-plan", Arguments: json.RawMessage(`{"goal":"a week off"}`)}
				params.SetProgressToken(1)
				res, err := caller.CallTool(context.Background(), params)
				testkit.Works(t, err)
				ended <- res
			}()
			waitFor(t, "the first step is told", func() bool {
				return strings.Contains(progress.String(), "0 of 4, at step 'idea'")
			})
			agent := dialAt(t, url, stateful, httpClient(t, ""))
			id := keptBy(t, agent)
			for _, step := range []string{`"step_id":"idea","outputs":{"idea":"idea.txt"}`,
				`"step_id":"train","outputs":{}`,
				`"step_id":"hotel","outputs":{"hotels":["h1.txt"]}`, `"step_id":"booking","outputs":{}`} {
				into[replies.Finish](t, agent, "finished_step", `{"session_id":"`+id+`",`+step+`}`)
			}

			res := <-ended
			var got remote.Run
			must(t, json.Unmarshal([]byte(text(res)), &got))
			testkit.Equal(t, got.State, remote.Completed, "got %+v, result %s", got, got.Result)
			testkit.Equal(t, string(got.Result), `{"idea":"idea.txt","hotels":["h1.txt"]}`, "got %+v, result %s", got,
				got.Result)
			testkit.Equal(t, *got.SourceExecutionID, id, "got %+v, result %s", got, got.Result)

			// Cancelled there is cancelled here.
			_, done := inBackground(t, cs, "trip-dream", `{"goal":"g"}`)
			into[replies.Abort](t, agent, "abort_workflow",
				`{"explanation":"no money","session_id":"`+keptBy(t, agent)+`"}`)
			res = <-done
			testkit.Need(t, res != nil, "got %+v", res)
			testkit.True(t, res.IsError, "got %+v", res)
			testkit.True(t, errorMetaOf(t, res)["code"] == "workflow_cancelled", "got %+v", res)
			testkit.Contains(t, text(res), "no money", "got %+v", res)
		})
	}
}

// keptBy waits until a server keeps a session that this agent could move on, and returns its id.
func keptBy(t *testing.T, agent *mcp.ClientSession) (id string) {
	t.Helper()
	waitFor(t, "a session has begun at the source", func() bool {
		_, kept, _ := strings.Cut(refusedWith(t, agent, "get_step", `{}`, "StateError"), "\n- ")
		id, _, _ = strings.Cut(kept, ":")
		return id != ""
	})
	return id
}

// Two that are each other's sources do not pass on what they got for ever.
func TestTwoDeepworksThatAreEachOthersSources(t *testing.T) {
	t.Parallel()
	a, root := bareProject(t, "", asSource)
	of := func(name string, s *Server) string {
		return fmt.Sprintf("workflow_tools:\n  refresh_interval: 100ms\n  sources:\n    - {name: %s, url: %q}\n", name,
			overHTTP(t, s, web.Options{}).URL())
	}
	b, _ := withConfig(t, of("a", a), asSource)
	write(t, root, map[string]string{".deepwork/config.yml": of("b", b)})
	for range 4 {
		for _, s := range []*Server{a, b} {
			s.names(t, "trip-dream", "trip-plan")
			into[remotetools.RefreshReply](t, client(t, s), "refresh_workflow_tools", `{}`)
		}
	}
}

func asSource(o *Options) { o.Toolsets = []string{"workflows", "remote", "source"} }

// The tools for other servers are offered only if the flag or the config asks for them; otherwise a
// call says so, and so does a server that has this one as its source.
func TestToolsForOtherServersAreOfferedOnRequest(t *testing.T) {
	t.Parallel()
	s, root := bareProject(t, "", nil)
	changed := make(chan struct{}, 10)
	cs := client(t, s, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		changed <- struct{}{}
	}})
	names := []string{"workflows-list-tool", "workflows-execute-tool", "workflows-status-tool", "workflows-cancel-tool"}
	offered := func() (all []string) {
		for name := range listed(t, cs) {
			if strings.HasPrefix(name, "workflows-") {
				all = append(all, name)
			}
		}
		return all
	}
	testkit.Same(t, offered(), nil, "listed without being asked for")
	for _, name := range names {
		testkit.ContainsAll(t, refusedWith(t, cs, name, `{}`, "ToolError"),
			[]string{"--toolsets workflows,remote,board,source", "expose_jobs: true"}, "%s", name)
	}

	h := overHTTP(t, s, web.Options{})
	outer, _ := bareProject(t, fmt.Sprintf("workflow_tools: {sources: [{name: inner, url: %q}]}\n", h.URL()), nil)
	until(t, outer, "the source to be refused", func(l *remotetools.Listing) bool {
		return len(l.From.Sources) == 1 && l.From.Sources[0].Err != nil &&
			strings.Contains(l.From.Sources[0].Err.Error(), "--toolsets workflows,source")
	})

	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools: {expose_jobs: true}\n"})
	<-changed
	testkit.Equal(t, len(offered()), len(names), "are listed once jobs are exposed")

	s.names(t, "trip-dream", "trip-plan") // and each workflow is a tool of its own
	got := into[replies.Start](t, cs, "trip-dream", `{"goal":"g","instance_id":"x"}`)
	testkit.Need(t, got.BeginStep != nil, "got %+v", got)
	testkit.Equal(t, got.BeginStep.StepID, "idea", "got %+v", got)
	testkit.True(t, strings.HasSuffix(got.BeginStep.BranchName, "-x"), "got %+v", got)

	tour := strings.NewReplacer("name: trip", "name: tour", "steps: [idea]",
		"steps: [{workflow: trip/dream}]").Replace(tripJob)
	write(t, root, map[string]string{".deepwork/jobs/tour/idea.md": "Think.", ".deepwork/jobs/tour/job.yml": tour})
	id := into[source.StartedReply](t, cs, "workflows-execute-tool",
		`{"workflow_id":"tour/dream","input":{"goal":"g"}}`).ExecutionID
	testkit.Contains(t, accepted(t, cs, "workflows-status-tool", `{"workflow_id":"tour/dream","execution_id":"`+id+
		`"}`), `"running"`, "the workflow, whose first step is another one")

	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools: {expose_jobs: false}\n"})
	testkit.True(t, listed(t, cs)["trip-dream"] == nil && len(offered()) == 0, "jobs are listed still")

	testkit.Fails(t, testkit.Get(NewServer(Options{ProjectRoot: root, Toolsets: []string{"remote", "source"}})).Err(),
		"needs the toolset workflows", "source without workflows")
}
