package transport

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// every transport, and the way a client speaks over it.
var network = []struct{ name, transport, version string }{
	{"http", web.HTTP, stateful},
	{"http, oldest", web.HTTP, "2025-03-26"},
	{"http, newest", web.HTTP, ""},
	{"sse", web.SSE, "2024-11-05"},
}

// A workflow goes from start to end over each transport, with real clients.
func TestWorkflowOverTheNetwork(t *testing.T) {
	t.Parallel()
	for _, n := range network {
		t.Run(n.name, func(t *testing.T) {
			s, _ := project(t, nil)
			h := overHTTP(t, s, web.Options{Transport: n.transport})
			cs := dial(t, h, n.version, "")
			testkit.Contains(t, cs.InitializeResult().Instructions, "failed to load", "instructions")
			start := into[machine.StartReply](t, cs, "start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"dream"}`)
			testkit.Contains(t, refusedWith(t, cs, "finished_step", `{"outputs":{"idea":"none.txt"}}`, "ToolError"), "none.txt")
			done := into[machine.FinishReply](t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"},"step_id":"idea","session_id":"`+start.BeginStep.SessionID+`"}`)
			testkit.Equal(t, done.Status, machine.WorkflowComplete, "%+v", done)
		})
	}
}

// Each MCP connection has its own stack; what is started on one is not on another's.
func TestStacksOfConnections(t *testing.T) {
	t.Parallel()
	for _, n := range network[:2] {
		t.Run(n.name, func(t *testing.T) {
			s, _ := project(t, nil)
			h := overHTTP(t, s, web.Options{Transport: n.transport})
			var wg sync.WaitGroup
			for range 8 {
				cs := dial(t, h, n.version, "")
				wg.Go(func() {
					for depth := range 3 {
						start := into[machine.StartReply](t, cs, "start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"dream"}`)
						testkit.Equal(t, len(start.Stack), depth+1, "the stack at depth %d", depth)
					}
				})
			}
			wg.Wait()
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
	testkit.True(t, len(shared.agents) >= 6 && len(own.agents) == 0, "%d agents of requests and %d of connections", len(shared.agents), len(own.agents))
	dial(t, h, stateful, "")
	testkit.Equal(t, len(own.agents), 1, "agents of connections")
}

// A DELETE ends the session, what it runs, and nothing else; its agent is closed when
// its calls are over, and not before.
func TestDeleteEndsASession(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan error, 1)
	s, f := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*machine.FinishReply, error) {
			close(began)
			<-ctx.Done()
			select {
			case <-a.closed:
				ended <- errors.New("its agent was closed in the middle of a call")
			case <-time.After(20 * time.Millisecond): // so that a server that does not wait is caught
				ended <- context.Cause(ctx)
			}
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

// A session that is idle for longer than http.idle_timeout ends, and its agent
// with it, also while a stream is open; the timeout is that of the config when
// the connection was made.
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

// fromNetwork is the context of a network caller's requests.
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

// The time of a connection counts from the end of its last call, and does not pass
// during one. A connection that is not a network's lives for ever.
func TestIdleTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		s, f := fakeServer(t, b.agent, withHTTP(func(c *config.HTTP) { c.IdleTimeout = time.Hour }))
		here, there := mcp.NewInMemoryTransports()
		ran := make(chan error, 1)
		go func() { ran <- s.mcp.Run(fromNetwork("ann", false), here) }()
		cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), there, &mcp.ClientSessionOptions{ProtocolVersion: stateful})).Must(t)
		defer func() { cs.Close(); <-ran }()
		call := func(tool, args string) {
			testkit.Works(t, testkit.Get(cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})).Err())
		}
		synctest.Wait()
		a := f.agents[0]
		for range 3 { // calls, each just in time
			time.Sleep(time.Hour - time.Second)
			call("get_workflows", `{}`)
		}
		go call("finished_step", `{"outputs":{}}`)
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
	})
	synctest.Test(t, func(t *testing.T) {
		s, f := fakeServer(t, nil, withHTTP(nil))
		cs := client(t, s)
		synctest.Wait()
		time.Sleep(100 * time.Hour)
		callTool(t, cs, "get_workflows", `{}`)
		testkit.True(t, !isClosed(f.agents[0]), "a local connection was closed")
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
	testkit.True(t, conn.ctx.Err() != nil && !isClosed(f.agents[0]), "its context goes on, or it was closed during its call")
	done()
	testkit.Equal(t, s.conns.Close(ctx), 0, "are left")
	testkit.True(t, isClosed(f.agents[0]), "it is not closed")
	_, _, err = s.conns.acquire(ctx, nil)
	testkit.Equal(t, err, tool.ErrStopping, "after the end")
}
