package transport

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

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
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), there, &mcp.ClientSessionOptions{ProtocolVersion: stateful})
		must(t, err)
		defer func() { cs.Close(); <-ran }()
		call := func(tool, args string) {
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)}); err != nil {
				t.Error(err)
			}
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
		if isClosed(a) {
			t.Fatal("closed during a call")
		}
		close(b.free)
		synctest.Wait()
		time.Sleep(time.Hour - time.Second)
		if synctest.Wait(); isClosed(a) {
			t.Fatal("closed before its time")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); !isClosed(a) {
			t.Fatal("still there after its time")
		}
		if n := s.conns.Len(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, f := fakeServer(t, nil, withHTTP(nil))
		cs := client(t, s)
		synctest.Wait()
		time.Sleep(100 * time.Hour)
		callTool(t, cs, "get_workflows", `{}`)
		if isClosed(f.agents[0]) {
			t.Error("a local connection was closed")
		}
	})
}

// A request without a session is a connection until it ends, for which the end of the server waits.
func TestRequestsWithoutASession(t *testing.T) {
	s, f := fakeServer(t, nil, withHTTP(nil))
	ctx := fromNetwork("ann", true)
	conn, done, err := s.conns.acquire(ctx, nil)
	must(t, err)
	over, cancel := context.WithCancel(ctx)
	cancel()
	if left := s.conns.Close(over); left != 1 || conn.ctx.Err() == nil {
		t.Errorf("%d are left, the call's context has ended: %v", left, conn.ctx.Err())
	}
	if isClosed(f.agents[0]) {
		t.Error("closed during its call")
	}
	done()
	if left := s.conns.Close(ctx); left != 0 || !isClosed(f.agents[0]) {
		t.Errorf("%d are left", left)
	}
	if _, _, err := s.conns.acquire(ctx, nil); err != tool.ErrStopping {
		t.Errorf("after the end: %v", err)
	}
}
