package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
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
	testkit.Equal(t, h.Stats().Requests, 0, "requests are counted at the end")
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
	testkit.Equal(t, h.Stats().Owed, 0, "replies are owed at the end")
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
		res := testkit.Get(http.ReadResponse(bufio.NewReader(conn), nil)).Must(t)
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
	testkit.Works(t, testkit.Get(io.ReadAll(first.Body)).Err(), "the first stream does not end in order")
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

// newestTriple is what each request of the newest version of the protocol says.
const newestTriple = `"io.modelcontextprotocol/protocolVersion":"` + web.StatelessSince + `","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

// newestHeaders are the headers that go with a call in it.
func newestHeaders(params string) []string {
	var p struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(strings.Replace(params, "META", "", 1)), &p); err != nil {
		panic(err)
	}
	return []string{"Mcp-Protocol-Version: " + web.StatelessSince, "Mcp-Method: tools/call", "Mcp-Name: " + p.Name}
}

// In the newest protocol a result says what it is, and who gives it; in the others it
// does not. Clients of the newest one refuse a result that does not say so.
func TestResultsAreTypedInTheNewestProtocol(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, web.Options{})
	c := httpClient(t, "")
	const typed = `,"resultType":"complete"}`
	for _, tool := range []string{"get_workflows", "start_workflow"} { // an answer and a refusal
		r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{},"_meta":{`+newestTriple+`}}}`,
			newestHeaders(`{"name":"`+tool+`"}`)...)
		if r.status != 200 || !strings.Contains(r.body, typed) || !strings.Contains(r.body, `"io.modelcontextprotocol/serverInfo"`) {
			t.Errorf("%s: %+v", tool, r)
		}
		for _, way := range []string{"Accept: application/*, text/*", "Accept: */*"} {
			r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`, open(t, c, h), way)
			if r.status != 200 || strings.Contains(r.body, "resultType") || strings.Contains(r.body, "serverInfo") {
				t.Errorf("%s: %+v", tool, r)
			}
		}
	}
}

// blocking serves blocked calls over HTTP.
func blocking(t *testing.T, set func(*config.HTTP)) (*Server, *web.Server, *blocked) {
	b := newBlocked()
	s, _ := fakeServer(t, b.agent, withHTTP(set))
	return s, overHTTP(t, s, web.Options{}), b
}

// A cancellation reaches the call that it names, of its own session, and no other,
// alone or in a batch; the caller's request ends.
func TestACancellationReachesItsCall(t *testing.T) {
	_, h, b := blocking(t, nil)
	c := httpClient(t, "")
	mine, other := open(t, c, h), open(t, c, h)
	cancel := func(id string) string {
		return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"enough"}}`
	}
	answers := make(chan reply, 2)
	for _, id := range []string{`"1"`, `1`} { // which are two
		go func() {
			answers <- send(t, c, "POST", h.URL(), strings.Replace(finishCall(1), `"id":1`, `"id":`+id, 1), mine)
		}()
		<-b.began
	}
	accepted := func(body string, headers ...string) {
		t.Helper()
		if r := send(t, c, "POST", h.URL(), body, headers...); r.status != 202 {
			t.Errorf("%s: %+v", body, r)
		}
	}
	accepted(cancel(`1`), other) // another session's
	accepted(cancel(`2`), mine)
	if r := send(t, c, "POST", h.URL(), strings.Replace(cancel(`1`), "{", `{"id":7,`, 1), mine); r.status != 400 { // no notification
		t.Errorf("%+v", r)
	}
	if r := send(t, c, "POST", h.URL(), cancel(`1`), mine, "Content-Type: text/plain"); r.status != 415 {
		t.Errorf("%+v", r)
	}
	accepted(cancel(`"2"`), mine)
	accepted(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, mine)
	select {
	case err := <-b.ended:
		t.Fatalf("a call ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	accepted(strings.Replace(cancel(`1`), "s/c", `s\/c`, 1), mine) // as PHP writes it
	if err := <-b.ended; err != context.Canceled {
		t.Errorf("the cause is %v", err)
	}
	if r := <-answers; r.status != 200 || !strings.Contains(r.body, `"id":1,"error"`) {
		t.Errorf("the cancelled one: %+v", r)
	}
	accepted("["+cancel(`"1"`)+"]", strings.Replace(mine, stateful, "2025-03-26", 1), "Mcp-Protocol-Version: 2025-03-26")
	if err := <-b.ended; err != context.Canceled {
		t.Errorf("the cause is %v", err)
	}
	if r := <-answers; r.status != 200 || !strings.Contains(r.body, `"id":"1","error"`) {
		t.Errorf("the other: %+v", r)
	}
}

// Progress comes on the stream that the answer comes on, at once and before it.
func TestProgressOfACall(t *testing.T) {
	_, h, b := blocking(t, nil)
	inSession := []string{open(t, httpClient(t, ""), h)}
	for token, headers := range map[string][]string{`"t-1"`: inSession, `7`: inSession, `"n-1"`: newestHeaders(`{"name":"finished_step"}`)} {
		meta := `"progressToken":` + token
		if len(headers) > 1 {
			meta += "," + newestTriple
		}
		body := strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{`+meta+`},`, 1)
		conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", strings.Join(headers, "\r\n"), len(body), body))
		resp := testkit.Get(http.ReadResponse(bufio.NewReader(conn), nil)).Must(t)
		var events []string
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if events = append(events, data); len(events) == 1 {
					<-b.began
					b.free <- struct{}{} // it is still going on
				}
			}
		}
		if len(events) != 2 || !strings.HasPrefix(events[0], `{"jsonrpc":"2.0","method":"notifications/progress","params":{`) ||
			!strings.Contains(events[0], `"progressToken":`+token) || !strings.Contains(events[0], "it has begun") || !strings.HasPrefix(events[1], `{"jsonrpc":"2.0","id":1,"result":`) {
			t.Errorf("%q", events)
		}
		<-b.ended
	}
}

// A client that hangs up has its connection closed, and its call goes on and is one of those that count.
func TestACallWhoseClientHangsUp(t *testing.T) {
	s, h, b := blocking(t, func(c *config.HTTP) { c.MaxRequests = 1 })
	c, id := opened(t, h)
	body := strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{"progressToken":1},`, 1)
	conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body))
	<-b.began
	conn.Close()
	waitFor(t, "the connection to close", func() bool { return h.Stats().Connections == 1 }) // the other one is kept
	testkit.Equal(t, s.tools.InFlight.Len(), 1, "calls in flight")
	if r := send(t, c, "POST", h.URL(), finishCall(2), id); r.status != 429 {
		t.Errorf("another call: %+v", r)
	}
	b.free <- struct{}{}
	testkit.Works(t, <-b.ended)
	waitFor(t, "the end of the call", func() bool { return s.tools.InFlight.Len() == 0 && h.Stats().Requests == 0 })
	// Its id is free again.
	go func() { <-b.began; b.free <- struct{}{} }()
	waitFor(t, "the answer to a call of the same id", func() bool {
		r := send(t, c, "POST", h.URL(), finishCall(1), id)
		return r.status == 200 && strings.Contains(r.body, `"id":1,"result"`)
	})
}
