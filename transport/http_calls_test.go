package transport

import (
	"context"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// While an idle session is being closed it is as unknown as it will be: a call
// would be carried out, and its reply dropped.
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
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + web.StatelessSince + `","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + can + `}`
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
		testkit.True(t, r["resultType"] == "complete" && r["_meta"].(map[string]any)["io.modelcontextprotocol/serverInfo"] != nil, "%s: %+v", tool, r)
		for _, way := range []string{"Accept: application/*, text/*", "Accept: */*"} {
			r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`, open(t, c, h), way)
			testkit.True(t, r.status == 200 && !strings.Contains(r.body, "resultType") && !strings.Contains(r.body, "serverInfo"), "%s: %+v", tool, r)
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
	go func() { <-b.began; b.free <- struct{}{} }()
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
	var wg sync.WaitGroup
	for range callers {
		cs := dial(t, h, "2024-11-05", "")
		wg.Go(func() { accepted(t, cs, "finished_step", `{"outputs":{}}`) })
		<-b.began
	}
	waitFor(t, "the replies to be owed", func() bool { return h.Stats().Owed == callers })
	tell()
	waitFor(t, "it stops", func() bool { return send(t, httpClient(t, ""), "GET", at(h, "/readyz"), "").status == 503 })
	close(b.free)
	wg.Wait()
	testkit.Works(t, <-stopped)
	testkit.Equal(t, h.Stats().Owed, 0, "replies are owed at the end")
}
