package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// patience is how long a test waits for what must come, on a machine that is busy
// with other things too; it never waits that long for what does not.
const patience = time.Minute

var (
	waitFor = testkit.Until
	must    = testkit.Must
)

// A body that does not come is not waited for.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, web.Options{BodyTimeout: 50 * time.Millisecond})
	conn := raw(t, h, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if r := answer(t, conn); r.status != 408 {
		t.Errorf("%+v", r)
	}
	// The time of the body is not that of the call.
	began := make(chan struct{})
	slow, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*machine.FinishReply, error) {
			close(began)
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(1200 * time.Millisecond):
				return fullFinish(), nil
			}
		}
	}, withHTTP(nil))
	h = overHTTP(t, slow, web.Options{BodyTimeout: time.Second})
	if res := callTool(t, dial(t, h, stateful, ""), "finished_step", `{"outputs":{}}`); res.IsError {
		t.Errorf("%s", text(res))
	}
	<-began
	works(t, h)
}

// A client that never reads what it asked for is dropped, and holds nothing up.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	const size = 7 << 20 // it is sent twice, and more than the system takes for somebody who does not read
	large := fullFinish()
	large.Notice = new(strings.Repeat("n", size))
	began := make(chan struct{})
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(context.Context, workflow.FinishArgs) (*machine.FinishReply, error) {
			close(began)
			return large, nil
		}
	}, withHTTP(nil))
	h := overHTTP(t, s, web.Options{WriteTimeout: 100 * time.Millisecond})
	c, id := opened(t, h)
	body := finishCall(1)
	conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body))
	<-began
	works(t, h)
	waitFor(t, "its end", func() bool { return h.Stats().Requests == 0 })
	conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	testkit.True(t, len(got) != 0 && len(got) < 2*size && !errors.Is(err, os.ErrDeadlineExceeded), "it was sent %d bytes, then %v: %.500q", len(got), err, got)
	if r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":2,"method":"ping"}`, id); r.status != 200 {
		t.Errorf("the session: %+v", r)
	}
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
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if r := send(t, c, "POST", h.URL(), finishCall(i), id); r.status != 200 {
				t.Errorf("within the limit: %+v", r)
			}
		})
		<-b.began
	}
	if r := send(t, c, "POST", h.URL(), finishCall(3), id); r.status != 429 || r.header.Get("Retry-After") != "1" || !strings.Contains(r.body, "http.max_requests") {
		t.Errorf("beyond it: %+v", r)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if r := send(t, c, "GET", at(h, path), ""); r.status != 200 {
			t.Errorf("%s: %+v", path, r)
		}
	}
	close(b.free)
	wg.Wait()
	if r := send(t, c, "POST", h.URL(), finishCall(4), id); r.status != 200 {
		t.Errorf("later: %+v", r)
	}
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
	if r := send(t, httpClient(t, ""), "GET", at(h, "/readyz"), ""); r.status != 200 {
		t.Errorf("/readyz: %+v", r)
	}
	testkit.Equal(t, h.Stats().Streams, 2, "streams")
	streams[0].Close()
	testkit.Works(t, testkit.Get(io.ReadFull(third, make([]byte, 100))).Err(), "the third is not served when there is room")

	s, _ = fakeServer(t, nil, withHTTP(func(c *config.HTTP) { c.MaxConnections = 1 }))
	own := overHTTP(t, s, web.Options{Transport: web.SSE})
	for range 2 { // one of the user's, and one that counts
		testkit.Works(t, testkit.Get(io.ReadFull(raw(t, own, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n"), make([]byte, 100))).Err())
	}
}

// MCP sessions that nobody ends are bounded, too; those that are there go on.
func TestSessionLimit(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil, withHTTP(func(c *config.HTTP) { c.MaxConnections = 3 }))
	h := overHTTP(t, s, web.Options{})
	c := httpClient(t, "")
	var id string
	for range 6 {
		id = open(t, c, h)
	}
	if r := send(t, c, "POST", h.URL(), initialize); r.status != 503 || !strings.Contains(r.body, "6 MCP sessions are open") {
		t.Errorf("one too many: %+v", r)
	}
	if r := send(t, c, "DELETE", h.URL(), "", id); r.status != 204 {
		t.Errorf("%+v", r)
	}
	waitFor(t, "its end", func() bool { return s.conns.Len() == 5 })
	open(t, c, h)
}

// One identity has no more requests in flight than its quota, over each transport; another notices
// nothing, and neither does the user without tokens.
func TestRequestQuota(t *testing.T) {
	t.Parallel()
	const quota = 2
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			b := newBlocked()
			s, _ := fakeServer(t, func(a *fakeAgent) {
				if a.identity == "ann" {
					b.agent(a)
				}
			}, withHTTP(func(c *config.HTTP) { c.Quotas.Requests = quota }))
			file, token := tokens(t, "ann", "bob")
			h := overHTTP(t, s, web.Options{Transport: over, TokenFile: file})
			ann, bob := dial(t, h, stateful, token[0]), dial(t, h, stateful, token[1])
			ended := make(chan error, quota)
			for range quota {
				go func() {
					_, err := ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "finished_step", Arguments: json.RawMessage(`{"outputs":{}}`)})
					ended <- err
				}()
				select {
				case <-b.began:
				case err := <-ended:
					t.Fatalf("a call ended before it was let go: %v", err)
				}
			}
			url := h.URL()
			if over == web.SSE {
				url += "?sessionid=any" // it is refused before that is looked at
			}
			if r := send(t, httpClient(t, token[0]), "POST", url, `{"jsonrpc":"2.0","id":9,"method":"ping"}`); r.status != 429 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, "http.quotas") {
				t.Errorf("beyond it: %+v", r)
			}
			for range 3 * quota {
				callTool(t, bob, "finished_step", `{"outputs":{}}`)
			}
			if r := send(t, httpClient(t, token[1]), "GET", at(h, "/metrics"), ""); !strings.Contains(r.body, `deepwork_refused_total{reason="quota"} 1`) {
				t.Errorf("it is not counted: %d", r.status)
			}
			close(b.free)
			for range quota {
				testkit.Works(t, <-ended)
			}
			callTool(t, ann, "get_workflows", `{}`)
		})
	}
}

// A token is replaced while its caller works, without an interruption: neither a call fails nor does
// the MCP session change, over each transport.
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
			cs := dialWith(t, h, stateful, rotating)
			first := testkit.Get(os.ReadFile(file)).Must(t)
			put := func(text string) {
				t.Helper()
				temp := file + ".new"
				must(t, os.WriteFile(temp, []byte(text), 0o600))
				must(t, os.Rename(temp, file))
			}
			token, next, err := web.NewToken(config.Token{Name: "ann"})
			must(t, err)
			put(string(first) + "\n" + next)
			callTool(t, cs, "get_workflows", `{}`)
			current.Store(token)
			callTool(t, cs, "get_workflows", `{}`)
			put(next)
			callTool(t, cs, "get_workflows", `{}`)
			if r := send(t, httpClient(t, old[0]), "GET", at(h, "/metrics"), ""); r.status != 401 {
				t.Errorf("the old token: %+v", r)
			}
			testkit.Equal(t, len(f.agents), 1, "MCP sessions")
			if over == web.SSE {
				return
			}
			// Other rights make another session, which the client opens itself.
			token, next, err = web.NewToken(config.Token{Name: "ann", Rights: config.RightAgents})
			must(t, err)
			put(next)
			r := send(t, httpClient(t, token), "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, fmt.Sprintf("Mcp-Session-Id: %s", cs.ID()))
			testkit.Equal(t, r.status, 404, "with other rights: %+v", r)
			waitFor(t, "its end", func() bool { return s.conns.Len() == 0 })
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
