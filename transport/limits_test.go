package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// The time of a body is not that of the call.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	const within = 500 * time.Millisecond
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*machine.FinishReply, error) {
			return fullFinish(), sleep(ctx, within+100*time.Millisecond)
		}
	}, withHTTP(nil))
	accepted(t, dial(t, overHTTP(t, s, web.Options{BodyTimeout: within}), stateful, ""), "finished_step", `{"outputs":{}}`)
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
	conn := post(t, h, finishCall(1), id)
	<-began
	works(t, h)
	waitFor(t, "its end", func() bool { return h.Stats().Requests == 0 })
	conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	testkit.True(t, len(got) != 0 && len(got) < 2*size && !errors.Is(err, os.ErrDeadlineExceeded), "it was sent %d bytes, then %v: %.500q", len(got), err, got)
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
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() { send(t, c, "POST", h.URL(), finishCall(i), id).is(t, 200) })
		<-b.began
	}
	send(t, c, "POST", h.URL(), finishCall(3), id).is(t, 429, "http.max_requests")
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		send(t, c, "GET", at(h, path), "").is(t, 200)
	}
	close(b.free)
	wg.Wait()
	send(t, c, "POST", h.URL(), finishCall(4), id).is(t, 200)
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
	streams[0].Close()
	testkit.Works(t, testkit.Get(io.ReadFull(third, make([]byte, 100))).Err(), "the third is not served when there is room")

	s, _ = fakeServer(t, nil, withHTTP(func(c *config.HTTP) { c.MaxConnections = 1 }))
	own := overHTTP(t, s, web.Options{Transport: web.SSE})
	for range 2 { // one of the user's, and one that counts
		testkit.Works(t, testkit.Get(io.ReadFull(raw(t, own, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n"), make([]byte, 100))).Err())
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
			send(t, httpClient(t, token[1]), "GET", at(h, "/metrics"), "").is(t, 200, `deepwork_refused_total{reason="quota"} 1`)
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
				must(t, os.WriteFile(file+".new", []byte(text), 0o600))
				must(t, os.Rename(file+".new", file))
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
			send(t, httpClient(t, token), "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+cs.ID()).is(t, 404)
			waitFor(t, "its end", func() bool { return s.conns.Len() == 0 })
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
