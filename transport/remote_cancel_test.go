package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

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

// A way is how a client reaches the server.
type way struct {
	name    string
	connect func(*testing.T, *Server) *mcp.ClientSession
}

var ways = []way{
	{"stdio", func(t *testing.T, s *Server) *mcp.ClientSession { cs, _, _ := onStdio(t, s); return cs }},
	{"http stateful", func(t *testing.T, s *Server) *mcp.ClientSession {
		return dial(t, overHTTP(t, s, web.Options{}), stateful, "")
	}},
	{"http stateless", func(t *testing.T, s *Server) *mcp.ClientSession {
		return dial(t, overHTTP(t, s, web.Options{}), "", "")
	}},
	{"sse", func(t *testing.T, s *Server) *mcp.ClientSession {
		return dial(t, overHTTP(t, s, web.Options{Transport: web.SSE}), stateful, "")
	}},
}

// inBackground makes a call and returns what ends it, as its caller would, and
// what came of it.
func inBackground(t *testing.T, cs *mcp.ClientSession, name string) (cancel func(), done <-chan *mcp.CallToolResult) {
	t.Helper()
	return inBackgroundWith(t, cs, name, `{}`)
}

func inBackgroundWith(t *testing.T, cs *mcp.ClientSession, name, arguments string) (cancel func(), done <-chan *mcp.CallToolResult) {
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
	got := testkit.Get(s.remote.Runs.Status(t.Context(), session.LocalIdentity, "x-1")).Must(t)
	return got
}

// A call that its caller cancels ends the workflow at its source, over every
// transport.
func TestReq003_7_5_ACancelledCallIsCancelledAtTheSource(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			f := newFactory(standardWorkflows...)
			s, _ := withSource(t, f, "")
			cs := w.connect(t, s)
			for _, name := range []string{"hang", "block"} {
				cancel, _ := inBackground(t, cs, name)
				f.until(t, "the start of "+name, func() bool { return contains(f.started, "w-"+name) && (name == "block" || f.looked()) })
				cancel()
				f.until(t, "the end of "+name, func() bool { return len(f.cancelled) == 1 && (name == "hang" || len(f.ended) == 1) })
			}
			s.quiet(t)
			if got := only(t, s); got.State != remote.Cancelled {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// looked reports whether the first execution's status was asked for. The lock is held.
func (f *factory) looked() bool { r := f.runs["x-1"]; return r != nil && r.looks > 0 }

func contains(all []string, s string) bool {
	return strings.Contains(" "+strings.Join(all, " ")+" ", " "+s+" ")
}

// quiet waits until no call is in flight.
func (s *Server) quiet(t *testing.T) {
	t.Helper()
	waitFor(t, "the end of all calls", func() bool { return s.tools.InFlight.Len() == 0 })
}

// finish lets an execution come to its end, once the factory has begun it: who
// started it may have its reply before that.
func (f *factory) finish(t *testing.T, id string) {
	t.Helper()
	f.until(t, "the start of "+id, func() bool {
		r := f.runs[id]
		if r != nil {
			r.workflow, r.looks = "w-steps", 10
		}
		return r != nil
	})
}

// goesOn checks that a run goes on, by letting it end and finding its result.
func (f *factory) goesOn(t *testing.T, s *Server) {
	t.Helper()
	if got := only(t, s); got.State != remote.Running {
		t.Errorf("got %+v", got)
	}
	f.finish(t, "x-1")
	deadline := time.Now().Add(patience)
	for only(t, s).State != remote.Completed {
		if time.Now().After(deadline) {
			t.Fatalf("got %+v", only(t, s))
		}
		time.Sleep(5 * time.Millisecond) // it is asked at intervals
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	testkit.True(t, len(f.cancelled) <= 0 && len(f.started) == 1, "cancelled %v, started %v", f.cancelled, f.started)
}

// A caller that is gone, and did not cancel, leaves its run going.
func TestAVanishedCallersRunGoesOn(t *testing.T) {
	t.Parallel()
	begun := func(t *testing.T, f *factory) {
		f.until(t, "the start", func() bool { return f.looked() })
	}
	t.Run("stdio", func(t *testing.T) {
		f := newFactory(standardWorkflows...)
		s, _ := withSource(t, f, "")
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.ServeStdio(context.Background(), in, out) }()
		go io.Copy(io.Discard, fromServer)
		fmt.Fprint(toServer, hello+`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}`+"\n")
		begun(t, f)
		fromServer.Close() // and with it every caller that could be answered
		toServer.Close()
		f.goesOn(t, s)
		<-served
	})
	t.Run("http stateful, hung up", func(t *testing.T) {
		f := newFactory(standardWorkflows...)
		s, _ := withSource(t, f, "")
		h := overHTTP(t, s, web.Options{})
		header := open(t, httpClient(t, ""), h)
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}`
		conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Content-Length: %d\r\n%s\r\n\r\n%s", len(body), header, body))
		begun(t, f)
		conn.Close()
		f.goesOn(t, s)
	})
	t.Run("http stateful, session ended", func(t *testing.T) {
		f := newFactory(standardWorkflows...)
		s, _ := withSource(t, f, "")
		h := overHTTP(t, s, web.Options{})
		client := httpClient(t, "")
		header := open(t, client, h)
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}`
		raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Content-Length: %d\r\n%s\r\n\r\n%s", len(body), header, body))
		begun(t, f)
		send(t, client, "DELETE", h.URL(), "", header)
		s.quiet(t)
		f.goesOn(t, s)
	})
	t.Run("sse", func(t *testing.T) {
		f := newFactory(standardWorkflows...)
		s, _ := withSource(t, f, "")
		h := overHTTP(t, s, web.Options{Transport: web.SSE})
		stream := raw(t, h, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		var endpoint string
		for lines := bufio.NewScanner(stream); endpoint == "" && lines.Scan(); {
			endpoint, _ = strings.CutPrefix(lines.Text(), "data: ")
			if !strings.HasPrefix(endpoint, "/sse?") {
				endpoint = ""
			}
		}
		post := strings.TrimSuffix(h.URL(), "/sse") + endpoint
		for _, body := range []string{initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}`} {
			if r := send(t, httpClient(t, ""), "POST", post, body); r.status != 202 {
				t.Fatalf("%+v", r)
			}
		}
		begun(t, f)
		stream.Close()
		s.quiet(t)
		f.goesOn(t, s)
	})
}

// In the newest protocol over HTTP hanging up is how a call is cancelled.
func TestHangingUpCancelsAStatelessCall(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	h := overHTTP(t, s, web.Options{})
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","arguments":{},"_meta":{` + newestTriple + `}}}`
	conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: hang\r\nContent-Length: %d\r\n\r\n%s", web.StatelessSince, len(body), body))
	f.until(t, "the start", func() bool { return f.looked() })
	conn.Close()
	f.until(t, "the cancel", func() bool { return len(f.cancelled) == 1 })
	s.quiet(t)
	waitFor(t, "the end of the request", func() bool { return h.Stats().Requests == 0 && h.Stats().Connections == 0 })
	if got := only(t, s); got.State != remote.Cancelled {
		t.Errorf("got %+v", got)
	}
}

// A server that stops leaves runs going at their sources, and says how they are
// found again.
func TestAStoppedServersRunsGoOn(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, root := withSource(t, f, "")
	cs, stop, served := onStdio(t, s)
	_, done := inBackground(t, cs, "hang")
	f.until(t, "the start", func() bool { return f.looked() })
	stop()
	res := <-done
	testkit.Need(t, res != nil, "the call was not answered")
	noError(t, <-served)
	id, _ := errorMetaOf(t, res)["execution_id"].(string)
	testkit.Contains(t, text(res), "workflow_status")
	testkit.Equal(t, len(id), 36)
	noError(t, s.Close(t.Context()))
	next := serverOn(t, root, nil)
	next.connected(t)
	if got := into[remote.Run](t, client(t, next), "workflow_status", `{"execution_id":"`+id+`"}`); got.State != remote.Running {
		t.Errorf("got %+v", got)
	}
	f.goesOn(t, next)
}
