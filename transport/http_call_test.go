package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
	"deepwork/session/workflow"
)

// byTheSDK has a call go the SDK's way: for the same thing said in another manner.
const byTheSDK = "Accept: application/*, text/*"

// A call that is carried out past the SDK is answered as on its way, to the byte.
func TestDirectCallsAreAnsweredAsTheSDKs(t *testing.T) {
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.start = func(_ context.Context, args workflow.StartArgs) (*workflow.StartReply, error) {
			if args.Goal == "panic" {
				panic("no")
			}
			return &workflow.StartReply{BeginStep: fullStep(strings.Repeat("<&>\u2028é", 20_000)), Stack: a.stack}, nil
		}
	}, withHTTP(nil))
	h := overHTTP(t, s, HTTPOptions{})
	c := httpClient(t, "")
	id := open(t, c, h)
	for i, params := range []string{
		`{"name":"get_workflows","arguments":{}META}`,
		`{"name":"get_workflows"META}`,
		`{"arguments":{},"name":"get_workflows"META}`,
		`{"name":"start_workflow","arguments":{"goal":"g","job_name":"j","workflow_name":"w"}META}`,
		`{"name":"start_workflow","arguments":{"goal":"panic","job_name":"j","workflow_name":"w"}META}`,
		`{"name":"start_workflow","arguments":{"goal":7,"x":"\u0000"}META}`,
		`{"name":"nobody","arguments":{}META}`,
		`{"name":"\u0067et_workflows","arguments":{"a":1,"a":2}META}`,
	} {
		for _, callID := range []string{"1", "9007199254740992", "-5", "1.0", `"x\"\\,\u00e9\n"`, `""`} {
			for version, headers := range map[string][]string{
				"":             {id},
				stateful:       {id, "Mcp-Protocol-Version: " + stateful},
				statelessSince: newestHeaders(params),
			} {
				meta := `,"_meta":{"mine":{"a":1}}`
				if version == statelessSince {
					meta = `,"_meta":{"mine":{"a":1},` + newestTriple + `}`
				}
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, callID, strings.Replace(params, "META", meta, 1))
				before := h.direct.Load()
				ours := send(t, c, "POST", h.URL(), body, headers...)
				if h.direct.Load() != before+1 {
					t.Errorf("%s: it went the SDK's way", body)
				}
				theirs := send(t, c, "POST", h.URL(), body, append(headers, byTheSDK)...)
				if h.direct.Load() != before+1 {
					t.Errorf("%s: it did not go the SDK's way", body)
				}
				if ours.status != theirs.status || ours.body != theirs.body || ours.header.Get("Content-Type") != theirs.header.Get("Content-Type") || ours.header.Get("Cache-Control") != theirs.header.Get("Cache-Control") {
					t.Errorf("%d, id %s, version %q:\n%d %v %.300s\n%d %v %.300s", i, callID, version, ours.status, ours.header, ours.body, theirs.status, theirs.header, theirs.body)
				}
			}
		}
	}
}

// newestTriple is what each request of the newest version of the protocol says.
const newestTriple = `"io.modelcontextprotocol/protocolVersion":"` + statelessSince + `","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

// newestHeaders are the headers that go with a call in it.
func newestHeaders(params string) []string {
	var p struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(strings.Replace(params, "META", "", 1)), &p); err != nil {
		panic(err)
	}
	return []string{"Mcp-Protocol-Version: " + statelessSince, "Mcp-Method: tools/call", "Mcp-Name: " + p.Name}
}

// In the newest protocol a result says what it is, and who gives it; in the others it
// does not. Clients of the newest one refuse a result that does not say so.
func TestResultsAreTypedInTheNewestProtocol(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, HTTPOptions{})
	c := httpClient(t, "")
	const typed = `,"resultType":"complete"}`
	for _, tool := range []string{"get_workflows", "start_workflow"} { // an answer and a refusal
		r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{},"_meta":{`+newestTriple+`}}}`,
			newestHeaders(`{"name":"`+tool+`"}`)...)
		if r.status != 200 || !strings.Contains(r.body, typed) || !strings.Contains(r.body, `"io.modelcontextprotocol/serverInfo"`) {
			t.Errorf("%s: %+v", tool, r)
		}
		for _, way := range []string{byTheSDK, "Accept: */*"} {
			r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`, open(t, c, h), way)
			if r.status != 200 || strings.Contains(r.body, "resultType") || strings.Contains(r.body, "serverInfo") {
				t.Errorf("%s: %+v", tool, r)
			}
		}
	}
}

// What is out of the ordinary is the SDK's to answer, as it did.
func TestWhatIsLeftToTheSDK(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, HTTPOptions{})
	c := httpClient(t, "")
	id := open(t, c, h)
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	plain := call(`{"name":"get_workflows","arguments":{}}`)
	for name, test := range map[string]struct {
		body    string
		headers []string
		status  int
	}{
		"another method":      {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, 200},
		"a notification":      {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"get_workflows"}}`, nil, 400},
		"no version":          {`{"id":1,"method":"tools/call","params":{"name":"get_workflows"}}`, nil, 400},
		"no params":           {`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, nil, 400},
		"params are a list":   {call(`[]`), nil, 200},
		"no name":             {call(`{"arguments":{}}`), nil, 200},
		"the name is none":    {call(`{"name":7}`), nil, 200},
		"arguments are none":  {call(`{"name":"get_workflows","arguments":null}`), nil, 200},
		"arguments are a 7":   {call(`{"name":"get_workflows","arguments":7}`), nil, 200},
		"meta is none":        {call(`{"name":"get_workflows","_meta":7}`), nil, 200},
		"meta of MCP's own":   {call(`{"name":"get_workflows","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`), nil, 400},
		"more than it needs":  {call(`{"name":"get_workflows","requestState":"x"}`), nil, 200},
		"a batch":             {"[" + plain + "]", nil, 200},
		"no JSON wanted":      {plain, []string{"Accept: text/event-stream"}, 400},
		"not JSON":            {plain, []string{"Content-Type: text/plain"}, 415},
		"an unknown version":  {plain, []string{"Mcp-Protocol-Version: 1999-01-01"}, 400},
		"a stream to take up": {plain, []string{"Last-Event-Id: 1"}, 400},
	} {
		if r := send(t, c, "POST", h.URL(), test.body, append([]string{id}, test.headers...)...); r.status != test.status || h.direct.Load() != 0 {
			t.Errorf("%s, of which %d went past the SDK: %+v", name, h.direct.Load(), r)
		}
	}
}

// In the newest version of the protocol, too; there headers repeat the body.
func TestWhatIsLeftToTheSDKInTheNewestProtocol(t *testing.T) {
	s, _ := fakeServer(t, nil, withHTTP(nil))
	h := overHTTP(t, s, HTTPOptions{})
	c := httpClient(t, "")
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	with := func(meta string) string { return call(`{"name":"get_workflows","_meta":{` + meta + `}}`) }
	plain := with(newestTriple)
	headers := newestHeaders(`{"name":"get_workflows"}`)
	for name, test := range map[string]struct {
		body    string
		headers []string
		status  int
	}{
		"no method":            {plain, []string{"Mcp-Method: "}, 400},
		"another method":       {plain, []string{"Mcp-Method: tools/list"}, 400},
		"no name":              {plain, []string{"Mcp-Name: "}, 400},
		"another name":         {plain, []string{"Mcp-Name: get_step"}, 400},
		"another version":      {plain, []string{"Mcp-Protocol-Version: 2027-01-01"}, 400},
		"no triple":            {with(""), nil, 400},
		"a version of its own": {with(strings.Replace(newestTriple, statelessSince, "2027-01-01", 1)), nil, 400},
		"no capabilities":      {with(newestTriple[:strings.LastIndex(newestTriple, ",")]), nil, 400},
		"capabilities are 7":   {with(strings.Replace(newestTriple, `ilities":{}`, `ilities":7`, 1)), nil, 400},
		"the client is 7":      {with(strings.Replace(newestTriple, `{"name":"t","version":"1"}`, "7", 1)), nil, 400},
		"more of MCP's own":    {with(newestTriple + `,"io.modelcontextprotocol/logLevel":"debug"`), nil, 200},
	} {
		if r := send(t, c, "POST", h.URL(), test.body, append(append([]string{}, headers...), test.headers...)...); r.status != test.status || h.direct.Load() != 0 {
			t.Errorf("%s, of which %d went past the SDK: %+v", name, h.direct.Load(), r)
		}
	}
}

// A blocked call lasts until it is let go, or its context ends.
type blocked struct {
	began chan string // the step it is about
	ended chan error  // the cause, or nil
	free  chan struct{}
}

func blocking(t *testing.T) (*Server, *HTTPServer, *blocked) {
	b := &blocked{began: make(chan string, 100), ended: make(chan error, 100), free: make(chan struct{})}
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, args workflow.FinishArgs) (*workflow.FinishReply, error) {
			tellProgress(ctx, "it has begun")
			b.began <- "begun"
			select {
			case <-b.free:
				b.ended <- nil
				return fullFinish(), nil
			case <-ctx.Done():
				b.ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		}
	}, withHTTP(nil))
	return s, overHTTP(t, s, HTTPOptions{}), b
}

// A cancellation reaches the call that it names, of its own session, and no other,
// alone or in a batch; the caller's request ends.
func TestACancellationReachesADirectCall(t *testing.T) {
	_, h, b := blocking(t)
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

// The id of a call is free when it is answered, and belongs then to who uses it next.
func TestAnIDIsUsedAgain(t *testing.T) {
	var a asked
	_, cancelFirst := context.WithCancelCause(t.Context())
	second, cancelSecond := context.WithCancelCause(t.Context())
	id, err := jsonrpc.MakeID("x")
	if err != nil {
		t.Fatal(err)
	}
	remove := a.add(id, cancelFirst)
	if a.add(id, cancelSecond) != nil {
		t.Error("it was given twice")
	}
	remove()
	if a.add(id, cancelSecond) == nil {
		t.Fatal("it was not given again")
	}
	remove()
	a.heed(&enveloped{method: json.RawMessage(`"notifications/cancelled"`), params: json.RawMessage(`{"requestId":"x"}`)})
	if second.Err() == nil {
		t.Error("it cannot be cancelled any more")
	}
}

// Progress comes on the stream that the answer comes on, at once and before it.
func TestProgressOfADirectCall(t *testing.T) {
	_, h, b := blocking(t)
	inSession := []string{open(t, httpClient(t, ""), h)}
	for token, headers := range map[string][]string{`"t-1"`: inSession, `7`: inSession, `"n-1"`: newestHeaders(`{"name":"finished_step"}`)} {
		meta := `"progressToken":` + token
		if len(headers) > 1 {
			meta += "," + newestTriple
		}
		body := strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{`+meta+`},`, 1)
		before := h.direct.Load()
		conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", strings.Join(headers, "\r\n"), len(body), body))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
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
		if h.direct.Load() != before+1 || len(events) != 2 || !strings.HasPrefix(events[0], `{"jsonrpc":"2.0","method":"notifications/progress","params":{`) ||
			!strings.Contains(events[0], `"progressToken":`+token) || !strings.Contains(events[0], "it has begun") || !strings.HasPrefix(events[1], `{"jsonrpc":"2.0","id":1,"result":`) {
			t.Errorf("%q", events)
		}
		<-b.ended
	}
}

// A client that hangs up has its connection closed, and its call goes on.
func TestADirectCallWhoseClientHangsUp(t *testing.T) {
	s, h, b := blocking(t)
	c := httpClient(t, "")
	id := open(t, c, h)
	body := strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{"progressToken":1},`, 1)
	conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body))
	<-b.began
	conn.Close()
	waitFor(t, "the connection to close", func() bool { return h.sockets.len() == 1 }) // the other one is kept
	if n := s.inflight.len(); n != 1 {
		t.Errorf("%d calls in flight", n)
	}
	b.free <- struct{}{}
	if err := <-b.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	waitFor(t, "the end of the call", func() bool { return s.inflight.len() == 0 && h.requests.Load() == 0 })
	// Its id is free again.
	go func() { <-b.began; b.free <- struct{}{} }()
	if r := send(t, c, "POST", h.URL(), finishCall(1), id); r.status != 200 || !strings.Contains(r.body, `"id":1,"result"`) {
		t.Errorf("%+v", r)
	}
}

// In the newest version of the protocol a client that hangs up has cancelled its call.
func TestADirectCallOfTheNewestProtocolWhoseClientHangsUp(t *testing.T) {
	s, h, b := blocking(t)
	body := strings.Replace(finishCall(1), `"params":{`, `"params":{"_meta":{`+newestTriple+`},`, 1)
	conn := raw(t, h, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%s", strings.Join(newestHeaders(`{"name":"finished_step"}`), "\r\n"), len(body), body))
	<-b.began
	conn.Close()
	if err := <-b.ended; err != context.Canceled {
		t.Errorf("the cause is %v", err)
	}
	waitFor(t, "the end of the call", func() bool { return s.inflight.len() == 0 && h.requests.Load() == 0 && h.sockets.len() == 0 })
	if n := h.direct.Load(); n != 1 {
		t.Errorf("%d went past the SDK", n)
	}
}

// A session whose only calls are direct ones is not idle while one goes on.
func TestADirectCallKeepsItsSession(t *testing.T) {
	const idle = 50 * time.Millisecond
	b := make(chan struct{})
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(context.Context, workflow.FinishArgs) (*workflow.FinishReply, error) {
			<-b
			return fullFinish(), nil
		}
	}, withHTTP(func(c *config.HTTP) { c.IdleTimeout = idle }))
	h := overHTTP(t, s, HTTPOptions{})
	c := httpClient(t, "")
	id := open(t, c, h)
	time.AfterFunc(5*idle, func() { close(b) })
	if r := send(t, c, "POST", h.URL(), finishCall(1), id); r.status != 200 || !strings.Contains(r.body, `"id":1,"result"`) {
		t.Errorf("%+v", r)
	}
	waitFor(t, "the session to be let go", func() bool { return s.conns.len() == 0 })
	if r := send(t, c, "POST", h.URL(), finishCall(1), id); r.status != 404 {
		t.Errorf("%+v", r)
	}
}

// Whatever is taken for an ordinary call is what the SDK would take it for.
func FuzzOrdinaryCall(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,"<&>"]},"_meta":{"progressToken":"t"}}}`,
		`{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"x","_meta":{"progressToken":7,"b":null}}}`,
		`{"id":1e3,"jsonrpc":"2.0","method":"tools/call","params":{"name":"x","Name":"y"}}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"x"},"params":{"name":"y"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\ud800","arguments":{}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		messages, fault := inspect(body)
		if fault != "" || len(messages) != 1 || isBatch(body) {
			return
		}
		var ours ordinary
		if !ours.take(&messages[0]) {
			return
		}
		msg, err := jsonrpc.DecodeMessage(body)
		req, is := msg.(*jsonrpc.Request)
		if err != nil || !is || req.Method != toolsCall {
			t.Fatalf("the SDK takes it for %T, %v", msg, err)
		}
		var theirs mcp.CallToolParamsRaw
		if err := json.Unmarshal(req.Params, &theirs); err != nil {
			t.Fatalf("the SDK's params: %v", err)
		}
		if req.ID != ours.id || theirs.Name != ours.name || string(theirs.Arguments) != string(ours.arguments) {
			t.Errorf("ours: %v %q %s\ntheirs: %v %q %s", ours.id, ours.name, ours.arguments, req.ID, theirs.Name, theirs.Arguments)
		}
		want, got := theirs.GetProgressToken(), ours.meta.token
		if f, ok := want.(float64); ok {
			want = int64(f)
		}
		if want != got {
			t.Errorf("the token %v (%T), not %v (%T)", got, got, want, want)
		}
	})
}
