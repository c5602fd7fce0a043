package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/remote"
	"deepwork/transport/web"
)

// onStdio serves a client over the stdio transport, and returns it with what
// stops the server and how serving ended.
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
	"stdio": func(t *testing.T, s *Server) *mcp.ClientSession { cs, _, _ := onStdio(t, s); return cs },
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
func inBackground(t *testing.T, cs *mcp.ClientSession, name, arguments string) (cancel func(), done <-chan *mcp.CallToolResult) {
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

// A call that its caller cancels ends the workflow at its source, over every
// transport.
func TestReq003_7_5_ACancelledCallIsCancelledAtTheSource(t *testing.T) {
	t.Parallel()
	for name, connect := range ways {
		t.Run(name, func(t *testing.T) {
			f := newFactory(standardWorkflows...)
			s, _ := withSource(t, f, "")
			cs := connect(t, s)
			for _, name := range []string{"hang", "block"} {
				cancel, _ := inBackground(t, cs, name, `{}`)
				f.until(t, "the start of "+name, func() bool { return slices.Contains(f.started, "w-"+name) && (name == "block" || f.looked()) })
				cancel()
				f.until(t, "the end of "+name, func() bool { return len(f.cancelled) == 1 && (name == "hang" || len(f.ended) == 1) })
			}
			s.quiet(t)
			testkit.Equal(t, only(t, s).State, remote.Cancelled)
		})
	}
}

// looked reports whether the first execution's status was asked for. The lock is held.
func (f *factory) looked() bool { r := f.runs["x-1"]; return r != nil && r.looks > 0 }

// quiet waits until no call is in flight.
func (s *Server) quiet(t *testing.T) {
	t.Helper()
	waitFor(t, "the end of all calls", func() bool { return s.tools.InFlight.Len() == 0 })
}

// goesOn checks that a run goes on, by letting it end and finding its result.
func (f *factory) goesOn(t *testing.T, s *Server) {
	t.Helper()
	testkit.Equal(t, only(t, s).State, remote.Running)
	f.until(t, "the start", func() bool { return f.runs["x-1"] != nil }) // who started it may have its reply before that
	f.mu.Lock()
	f.runs["x-1"].workflow, f.runs["x-1"].looks = "w-steps", 10
	f.mu.Unlock()
	waitFor(t, "completed", func() bool { return only(t, s).State == remote.Completed }) // it is asked at intervals
	f.mu.Lock()
	defer f.mu.Unlock()
	testkit.True(t, len(f.cancelled) == 0 && len(f.started) == 1, "cancelled %v, started %v", f.cancelled, f.started)
}

// A caller that is gone, and did not cancel, leaves its run going.
func TestAVanishedCallersRunGoesOn(t *testing.T) {
	t.Parallel()
	call := strings.TrimSpace(toolsCallOf("1", "hang", `{}`))
	overWeb := func(t *testing.T, s *Server) (h *web.Server, header string, conn net.Conn) {
		h = overHTTP(t, s, web.Options{})
		_, header = opened(t, h)
		return h, header, post(t, h, call, header)
	}
	for name, begin := range map[string]func(t *testing.T, s *Server) (vanish func()){
		"stdio": func(t *testing.T, s *Server) func() {
			in, toServer := io.Pipe()
			fromServer, out := io.Pipe()
			served := make(chan error, 1)
			go func() { served <- s.ServeStdio(context.Background(), in, out) }()
			go io.Copy(io.Discard, fromServer)
			fmt.Fprintln(toServer, hello+call)
			t.Cleanup(func() { <-served })
			return func() {
				fromServer.Close() // and with it every caller that could be answered
				toServer.Close()
			}
		},
		"http stateful, hung up": func(t *testing.T, s *Server) func() {
			_, _, conn := overWeb(t, s)
			return func() { conn.Close() }
		},
		"http stateful, session ended": func(t *testing.T, s *Server) func() {
			h, header, _ := overWeb(t, s)
			return func() { send(t, httpClient(t, ""), "DELETE", h.URL(), "", header); s.quiet(t) }
		},
		"sse": func(t *testing.T, s *Server) func() {
			h := overHTTP(t, s, web.Options{Transport: web.SSE})
			stream := raw(t, h, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
			endpoint := "http://" + address(h) + endpointOf(t, stream)
			for _, body := range []string{initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, call} {
				send(t, httpClient(t, ""), "POST", endpoint, body).is(t, 202)
			}
			return func() { stream.Close(); s.quiet(t) }
		},
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

// endpointOf reads the endpoint that a stream of the older transport begins with.
func endpointOf(t *testing.T, stream io.Reader) string {
	t.Helper()
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if endpoint, is := strings.CutPrefix(lines.Text(), "data: "); is {
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
	conn := post(t, h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","arguments":{},`+newestMeta(`{}`)+`}}`,
		"Mcp-Protocol-Version: "+web.StatelessSince, "Mcp-Method: tools/call", "Mcp-Name: hang")
	f.until(t, "the start", f.looked)
	conn.Close()
	f.until(t, "the cancel", func() bool { return len(f.cancelled) == 1 })
	s.quiet(t)
	waitFor(t, "the end of the request", func() bool { return h.Stats().Requests == 0 && h.Stats().Connections == 0 })
	testkit.Equal(t, only(t, s).State, remote.Cancelled)
}

// A server that stops leaves runs going at their sources, and says how they are
// found again.
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
	testkit.Equal(t, into[remote.Run](t, client(t, next), "workflow_status", `{"execution_id":"`+id+`"}`).State, remote.Running)
	f.goesOn(t, next)
}
