package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// Two credentials are refused: a proxy may have looked at the other.
func TestSeveralAuthorizationHeaders(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	file, all := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	for _, second := range []string{all[1], "x", all[0]} {
		conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: Bearer %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			all[0], second, len(initialize), initialize))
		if r := answer(t, conn); r.status != 401 || !strings.Contains(r.body, "several") {
			t.Errorf("%+v", r)
		}
	}
}

// A batch is as many requests as it has messages.
func TestBatches(t *testing.T) {
	var mu sync.Mutex
	finished := 0
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(context.Context, workflow.FinishArgs) (*machine.FinishReply, error) {
			mu.Lock()
			defer mu.Unlock()
			finished++
			return fullFinish(), nil
		}
	}, withHTTP(func(c *config.HTTP) { c.MaxRequests = 5 }))
	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	batch := func(ids ...int) string {
		calls := make([]string, len(ids))
		for i, id := range ids {
			calls[i] = finishCall(id)
		}
		return " [" + strings.Join(calls, ",") + "]"
	}
	for _, test := range []struct {
		body   string
		status int
		says   string
		done   int
	}{
		{batch(1, 2, 3, 4, 5), 200, `"id":5`, 5},
		{batch(1, 2, 3, 4, 5, 6), 429, "http.max_requests", 0},
		{batch(7), 200, `"id":7`, 1},
	} {
		finished = 0
		if r := send(t, c, "POST", h.URL(), test.body, id); r.status != test.status || !strings.Contains(r.body, test.says) || finished != test.done {
			t.Errorf("%s: %d, %d carried out, %s", jsontext.Clip(test.body, 60), r.status, finished, jsontext.Clip(r.body, 300))
		}
	}
	if n := h.Stats().Requests; n != 0 {
		t.Errorf("%d requests are counted at the end", n)
	}
}

// What was carried out before the server stops is answered, over SSE too, where the request that brought
// a call is over long before, and clients drop what they have not looked at when the stream ends.
func TestStopAnswersOverSSE(t *testing.T) {
	const callers = 30
	b := newBlocked()
	s, _ := fakeServer(t, b.agent, withHTTP(nil))
	h, tell, stopped := stopping(t, s, web.Options{Transport: web.SSE})
	var wg sync.WaitGroup
	for range callers {
		cs := dial(t, h, "2024-11-05", "")
		wg.Go(func() {
			if res := callTool(t, cs, "finished_step", `{"outputs":{}}`); res.IsError {
				t.Errorf("%s", text(res))
			}
		})
		<-b.began
	}
	waitFor(t, "the replies to be owed", func() bool { return h.Stats().Owed == callers })
	tell()
	waitFor(t, "it stops", func() bool { return send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").status == 503 })
	close(b.free)
	wg.Wait()
	noError(t, <-stopped)
	if n := h.Stats().Owed; n != 0 {
		t.Errorf("%d replies are owed at the end", n)
	}
}

// While an idle session is being closed it is as unknown as it will be: a call
// would be carried out, and its reply dropped.
func TestSessionThatEndsIdle(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	name := strings.TrimPrefix(id, "Mcp-Session-Id: ")
	s.conns.mu.Lock()
	conn := s.conns.byKey[name]
	conn.over = true
	s.conns.mu.Unlock()
	if _, done, err := s.conns.acquire(context.Background(), conn.ss); err != errIdle {
		t.Errorf("a call: %v", err)
		if done != nil {
			done()
		}
	}
	if r := send(t, c, "POST", h.URL(), finishCall(1), id); r.status != 404 {
		t.Errorf("%+v", r)
	}
}

// A client whose network was gone for a moment opens its stream again, while the
// server takes the one before for alive.
func TestNewestStreamWins(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	stream := func() (net.Conn, *http.Response) {
		conn := raw(t, h, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"+id+"\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(patience))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		if res.StatusCode != 200 {
			t.Fatalf("%+v", res)
		}
		return conn, res
	}
	_, first := stream()
	var last *http.Response
	for range 5 {
		_, last = stream()
	}
	if _, err := io.ReadAll(first.Body); err != nil {
		t.Errorf("the first stream does not end in order: %v", err)
	}
	if n := h.Stats().Streams; n != 1 {
		waitFor(t, "the end of the others", func() bool { return h.Stats().Streams == 1 })
	}
	if r := send(t, c, "GET", h.URL(), "", id, "Last-Event-Id: x_1"); r.status != 400 {
		t.Errorf("%+v", r)
	}
	ended := make(chan struct{})
	go func() { io.Copy(io.Discard, last.Body); close(ended) }()
	if r := send(t, c, "POST", h.URL(), finishCall(1), id); r.status != 200 {
		t.Errorf("%+v", r)
	}
	select {
	case <-ended:
		t.Error("the newest stream ended")
	default:
	}
	if r := send(t, c, "DELETE", h.URL(), "", id); r.status != 204 {
		t.Errorf("%+v", r)
	}
	<-ended
}
