package source_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

// A rawWeb is a source over HTTP that answers calls as the test writes it, byte for byte; no SDK would.
type rawWeb struct {
	*httptest.Server
	call func(w http.ResponseWriter, r *http.Request, id string) // of the execute tool
	// unknown answers a request of a session that is not known
	unknown        func(w http.ResponseWriter, id string)
	session, conns atomic.Int64 // count those that were begun
}

func newRawWeb(t *testing.T) *rawWeb {
	s := &rawWeb{unknown: func(w http.ResponseWriter, id string) {
		http.Error(w, "session not found", http.StatusNotFound)
	}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// open opens a catalog on the source, which offers one workflow.
func (s *rawWeb) open(t *testing.T) (*rig, *source.Workflow) {
	c := settings(named(config.WorkflowSource{Name: "web", URL: s.URL, Headers: map[string]string{"X-Mine": "yes"}}))
	c.WorkflowTools.RefreshInterval = 0
	r := open(t, c)
	return r, &r.tools(t, "raw").Tools[0].Workflow
}

func (s *rawWeb) sessionID() string { return fmt.Sprintf("session-%d", s.session.Load()) }
func (s *rawWeb) forget()           { s.session.Add(1000) } // it does not know its sessions any more

func (s *rawWeb) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}

	var m struct {
		ID, Params json.RawMessage
		Method     string
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if m.Method == "initialize" {
		s.session.Add(1)
		w.Header().Set("Mcp-Session-Id", s.sessionID())
	} else if r.Header.Get("Mcp-Session-Id") != s.sessionID() {
		s.unknown(w, string(m.ID))
		return
	}

	result := `{}`
	switch {
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
		return
	case m.Method == "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},` +
			`"serverInfo":{"name":"raw","version":"1"}}`
	case m.Method == "tools/list":
		result = `{"tools":[{"name":"workflows-list-tool","inputSchema":{"type":"object"}},` +
			`{"name":"workflows-execute-tool","inputSchema":{"type":"object"}}]}`
	case m.Method == "tools/call" && bytes.Contains(m.Params, []byte(`"workflows-execute-tool"`)):
		s.call(w, r, string(m.ID))
		return
	case m.Method == "tools/call":
		result = `{"content":[],"structuredContent":[{"id":"r","name":"raw","description":"d","executionType":"sync"}]}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func answers(w http.ResponseWriter, _ *http.Request, id string) {
	reply(w, id, 200, isStream, "data: "+rawAnswer+"\n\n")
}

const rawAnswer = `{"jsonrpc":"2.0","id":%ID%,"result":{"content":[],"structuredContent":{"z":1,` +
	`"a":12345678901234567890}}}`

// reply answers with a status, a content type and a text in which %ID% is replaced by the id of the call.
func reply(w http.ResponseWriter, id string, code int, kind, text string) {
	if kind != "" {
		w.Header().Set("Content-Type", kind)
	}
	w.WriteHeader(code)
	io.WriteString(w, strings.ReplaceAll(text, "%ID%", id))
}

const isJSON, isText, isStream = "application/json", "text/plain", "text/event-stream; charset=utf-8"

// What goes wrong with one call is told of that call, as lost where the source may have begun; the session goes on.
func TestWhatGoesWrongWithACallOverHTTPCostsItAlone(t *testing.T) {
	s := newRawWeb(t)
	r, w := s.open(t)
	for name, c := range map[string]struct {
		code       int
		kind, body string
		lost       bool
		says       string
	}{
		"an error": {200, isJSON,
			`{"jsonrpc":"2.0","id":%ID%,"error":{"code":-32602,"message":"no such region"}}`, false, "no such region"},
		"an error in between": {504, isJSON, `{"error":{"code":504,"message":"upstream request timeout"}}`,
			true, "504"},
		"an error like JSON-RPC's": {502, isJSON,
			`{"jsonrpc":"2.0","id":null,"error":{"code":502,"message":"bad gateway"}}`, true, "502"},
		"its own error, with 500": {500, isJSON,
			`{"jsonrpc":"2.0","id":%ID%,"error":{"code":-32603,"message":"it broke"}}`, false, "it broke"},
		"a token that is not known": {401, isJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}`,
			true, "401"},
		"there is no such thing": {404, isJSON,
			`{"jsonrpc":"2.0","id":%ID%,"error":{"code":1,"message":"there is no order 7"}}`, false, "no order 7"},
		"a bad request, Python": {400, isJSON,
			`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32602,"message":"too many words"}}`, false,
			"too many words"},
		"words about a session": {400, isJSON,
			`{"jsonrpc":"2.0","id":%ID%,"error":{"code":1,"message":"no valid session"}}`, false, "no valid session"},
		"other words about one": {400, isText, "the database session was closed after the order was placed",
			true, "400"},
		"words about an end": {400, isText, "the shop session has expired while booking", true, "400"},
		"busy":               {503, isText, "later", true, "503"},
		"busy, in JSON": {429, isJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"slow down"}}`,
			true, "429"},
		"a bad request": {400, isJSON,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too many words"}}`, true, "400"},
		"not allowed": {403, isText, "no", true, "403"},
		"a stream that ends": {200, isStream, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n", true,
			"without response"},
	} {
		executed := 0
		s.call = func(w http.ResponseWriter, _ *http.Request, id string) {
			executed++
			reply(w, id, c.code, c.kind, c.body)
		}
		got, err := r.Execute(t.Context(), w, nil, nil)
		refused, _ := errors.AsType[*source.RefusedError](err)
		testkit.Need(t, err != nil, "%s: %+v %v", name, got, err)
		testkit.Equal(t, errors.Is(err, source.ErrLost), c.lost)
		testkit.Equal(t, (refused == nil), c.lost)
		testkit.Contains(t, err.Error(), c.says)
		testkit.Equal(t, executed, 1, "%s: executed … times", name)
	}
	s.call = answers
	testkit.Works(t, testkit.Get(r.Execute(t.Context(), w, nil, nil)).Err())
	testkit.Equal(t, s.session.Load(), 1)
}

// An answer that cannot be read costs its call, as lost. In a stream it costs the session, too; later calls
// go on in the next one.
func TestAnAnswerThatCannotBeReadIsLost(t *testing.T) {
	for _, answer := range []string{
		`{"jsonrpc":"2.0","id":%ID%,"result":{"x":NaN}}`, "", `{"jsonrpc":"2.0","id":%ID%,"result":{"content":[`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot read you"}}`, strings.Repeat(" ", 17<<20),
		"data: {\"jsonrpc\":\"2.0\",\"id\":%ID%,\"result\":{\"x\":NaN}}\n\n",
		"data: nonsense\n\ndata: " + rawAnswer + "\n\n",
		"data: {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"x\"}}\n\n",
		"data: " + rawAnswer[:len(rawAnswer)-3], "data: " + strings.Repeat("x", 65<<20) + "\n\n", "text",
	} {
		s := newRawWeb(t)
		r, w := s.open(t)
		kind, want := isJSON, source.ErrUnreadable
		if strings.HasPrefix(answer, "data:") {
			kind = isStream
		} else if answer == "text" { // perhaps of a proxy
			kind, want = isText, source.ErrLost
		}
		s.call = func(w http.ResponseWriter, _ *http.Request, id string) { reply(w, id, 200, kind, answer) }
		testkit.FailsWith(t, testkit.Get(r.Execute(t.Context(), w, nil, nil)).Err(), want, "%.60q", answer)
		s.call = answers
		testkit.Works(t, testkit.Get(r.Execute(t.Context(), w, nil, nil)).Err(), "after %.60q", answer)
		testkit.Equal(t, s.session.Load() == 1, kind != isStream, "sessions after %.60q: %d", answer, s.session.Load())
	}
}

// A source that was restarted does not know our session, however it says so: the call had no effect, and is
// made once more in its own session.
func TestEveryWayToSayThatASessionIsNotKnown(t *testing.T) {
	const ownID = "with the id of the request"
	for name, c := range map[string]struct {
		code       int
		kind, body string
	}{
		"the status": {404, "", ""},
		"with an error of JSON-RPC": {404, isJSON,
			`{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`},
		"with an id that no call has": {404, "",
			`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`},
		ownID: {404, "",
			`{"jsonrpc":"2.0","id":%ID%,"error":{"code":-32600,"message":"Session not found"}}`},
		"as a bad request with such an id": {400, "",
			`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ` +
				`ID"}}`},
		"as a bad request": {400, isJSON,
			`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},` +
				`"id":null}`},
		"as a text": {400, "", "Bad Request: No valid session ID provided"},
		"as not initialized": {400, "",
			`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRawWeb(t)
			s.unknown = func(w http.ResponseWriter, id string) { reply(w, id, c.code, c.kind, c.body) }
			s.call = answers
			r, w := s.open(t)
			if name != ownID { // a call's own error may be about another session
				s.forget()
				testkit.Equal(t, testkit.Get(r.Execute(t.Context(), w, nil, nil)).Must(t).State, source.Completed)
			}

			// So does it end the session where no call was made: a query finds out.
			s.forget()
			before := s.session.Load()
			r.refresh(t)
			r.until(t, "another session", func(*source.Snapshot) bool { return s.session.Load() > before })
		})
	}
}

// A call that is under way when another one's session is not known may be carried out all the same: it is not
// made again.
func TestACallIsNotRepeatedForAnother(t *testing.T) {
	s := newRawWeb(t)
	began := make(chan struct{}, 10)
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		began <- struct{}{}
		<-r.Context().Done()
	}
	r, w := s.open(t)
	failed := make(chan error, 1)
	go func() { failed <- testkit.Get(r.Execute(t.Context(), w, nil, nil)).Err() }()
	<-began
	s.call = answers
	s.forget()
	testkit.Works(t, testkit.Get(r.Execute(t.Context(), w, nil, nil)).Err())
	testkit.FailsWith(t, <-failed, source.ErrLost)
	testkit.Equal(t, len(began), 0, "it was made again")
}

// The connection that brought an answer brings the next one.
func TestConnectionsAreUsedAgain(t *testing.T) {
	s := newRawWeb(t)
	s.call = answers
	r, w := s.open(t)
	const calls = 40

	// The end of a stream comes after the answer, and nothing announces it: on a busy machine, late.
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		before := s.conns.Load()
		for range calls {
			testkit.Get(r.Execute(t.Context(), w, nil, nil)).Must(t)
			time.Sleep(pause)
		}
		n := s.conns.Load() - before
		if n <= calls/2 {
			return
		}
		testkit.Need(t, pause < 160*time.Millisecond, "%d connections for %d calls", n, calls)
	}
}

// An order is what the raw source is asked for, as a workflow's input.
type order struct {
	Before []byte `json:"before,omitempty"` // is written before the answer
	Result []byte `json:"result,omitempty"` // is the answer's result, whatever it is
	Size   int    `json:"size,omitempty"`   // is about the size of the answer, in bytes
	// is not answered before this file is there; .began beside it says that it has begun
	Await  string `json:"await,omitempty"`
	Filler string `json:"filler,omitempty"` // says nothing
}

// beRaw is a source that writes, byte for byte, what it is ordered to; no SDK would.
func beRaw() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	fmt.Println("raw source, version 1\n[INFO] listening on standard input\n✓ ready")
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProtocolVersion string
				Name            string
				Arguments       struct{ Input order }
			}
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil || m.ID == nil {
			continue
		}

		result := "{}"
		switch m.Method {
		case "initialize":
			result = fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"raw",`+
				`"version":"1"}}`, m.Params.ProtocolVersion)
		case "tools/list":
			result = `{"nextCursor":null,"tools":[null,{"name":"odd","inputSchema":null},` +
				`{"name":"workflows-list-tool","inputSchema":{"type":"object"}},{"name":"workflows-execute-tool",` +
				`"inputSchema":{"type":"object"}}]}`
		case "tools/call":
			if m.Params.Name == "workflows-list-tool" {
				result = "{\"content\":[],\"structuredContent\":[{\"id\":\"r\",\"name\":\"raw\"," +
					"\"description\":\"d\xff\",\"executionType\":\"sync\",\"metadata\":{\"m\":\"\xff\"}," +
					"\"inputSchema\":{\"type\":\"object\",\"title\":\"\xff\"}}]}"
				break
			}
			o := m.Params.Arguments.Input
			if o.Await != "" {
				os.WriteFile(o.Await+".began", nil, 0o600)
				for exists := false; !exists; time.Sleep(2 * time.Millisecond) {
					_, err := os.Stat(o.Await)
					exists = err == nil
				}
			}
			os.Stdout.Write(o.Before)
			result = string(o.Result)
			if o.Size > 0 {
				result = largeResult(o.Size)
			}
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", m.ID, result)
	}
}

func (o order) String() string {
	data, _ := json.Marshal(o)
	return string(data)
}

func rawSource(t *testing.T) (*rig, *source.Workflow) { return offering(t, command("s", "raw"), "raw") }

func TestWhatASourceAnswersIsReadOrRefused(t *testing.T) {
	r, w := rawSource(t)
	testkit.True(t, utf8.ValidString(w.Description), "what is no UTF-8 was passed on: %q", w.InputSchema)
	testkit.True(t, utf8.Valid(w.InputSchema), "what is no UTF-8 was passed on: %q", w.InputSchema)
	testkit.True(t, utf8.Valid(w.Metadata), "what is no UTF-8 was passed on: %q", w.InputSchema)

	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for result, want := range map[string]string{
		"{\"content\":[],\"structuredContent\":{\"x\":\"a\xff\xfeb\"}}": "{\"x\":\"a\uFFFDb\"}",
		`{"content":[],"structuredContent":{"a":1,"a":2}}`:              `{"a":1,"a":2}`,
		`{"content":[],"structuredContent":` + deep(200) + `}`:          deep(200),
		`{"content":[],"structuredContent":` + deep(201) + `}`:          `"` + deep(201) + `"`,
		`{"content":[{"type":"text","text":"` + deep(9000) + `"}]}`:     `"` + deep(9000) + `"`,
		`{"content":[{"type":"text","text":"{\"x\":NaN}"}]}`:            `"{\"x\":NaN}"`,
		`{"content":[{"type":"text","text":7}]}`:                        `[{"type":"text","text":7}]`,
		`{"content":[],"_meta":7}`:                                      ``,
		`{}`:                                                            ``,
	} {
		r.gives(t, w, order{Result: []byte(result)}.String(), want, "%.80q", result)
	}

	for result, want := range map[string]string{
		`null`: "it is null", `7`: "it is a number", `[]`: "it is an array",
		`{"content":"x"}`: "its content is a text", `{"content":[],"isError":"no"}`: "its isError is a text",
		`{"isError":true}`: "an error that says nothing", `{"isError":true,"content":[]}`: "an error that says nothing",
	} {
		_, err := r.execute(t, w, order{Result: []byte(result)}.String())
		e, ok := errors.AsType[*source.RefusedError](err)
		testkit.Need(t, ok, "%s: %v, want %q", result, err, want)
		testkit.Contains(t, e.Error(), want, "%s: %v, want %q", result, err, want)
		testkit.True(t, !errors.Is(err, source.ErrLost), "%s: %v, want %q", result, err, want)
	}
}

func TestStrayLinesDoNotCostTheConnection(t *testing.T) {
	r, w := rawSource(t)
	r.logged(t, "a source writes what is no message", "raw source, version 1")
	var logged strings.Builder // objects with the id of every call that there may be
	for id := range 90 {
		fmt.Fprintf(&logged, "{\"id\":%d,\"result\":NaN}\n", id)
	}

	answer := []byte(`{"content":[{"type":"text","text":"ok"}]}`)
	for _, before := range []string{
		"working…\n", "\n\n", strings.Repeat("x", 200<<10) + "\n", strings.Repeat("noise\n", 100), logged.String(),
		`{"level":"info","msg":"an object that is logged"}` + "\n", strings.Repeat("{ x\n", 60),
		"{ starting\n", "{\n  a: 1,\n}\n", "{\n", "[1, 2]\n", "  indented\n", "{\"open\n", "{'python': True}\n", "[\n",
		"{\"a\": [\n", "12\n", "\"a\"\n",
	} {
		r.gives(t, w, order{Before: []byte(before), Result: answer}.String(), `"ok"`, "%.40q", before)
	}
	testkit.Equal(t, r.connected(), 1, "it was connected to … times")
}

// A message that cannot be read costs the calls in flight, as lost, and the connection; later calls go on
// over the next one.
func TestAMessageThatIsNotJSONCostsItsConnection(t *testing.T) {
	for result, says := range map[string]string{
		`{"content":[],"structuredContent":{"mean":NaN}}`:                                           "'N'",
		`{"content":[],"structuredContent":{"max":Infinity,"min":-Infinity,"says":"a \\ \"NaN\""}}`: "'I'",
		`{"content":[]` + "\n" + `}`:                                                                "unexpected end",
		`{"content":[]}} trailing {`:                                                                "not JSON",
		`{"content":['a']}`:                                                                         "not JSON",
		`{"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`:                   "max depth",
	} {
		r, w := rawSource(t)
		began := time.Now()
		_, err := r.execute(t, w, order{Result: []byte(result)}.String())
		testkit.FailsWith(t, err, source.ErrLost, "%.60s", result)
		testkit.FailsWith(t, err, source.ErrUnreadable, "%.60s", result)
		testkit.Fails(t, err, says, "%.60s", result)
		testkit.True(t, time.Since(began) <= 30*time.Second, "%.60s took %v", result, time.Since(began))

		r.gives(t, w, order{Result: []byte(`{"content":[],"structuredContent":{"a":1}}`)}.String(), `{"a":1}`,
			"after %.60s", result)
	}

	// An error that answers nothing ends the connection, and is not taken for what the source says of the
	// calls that are under way.
	r, w := rawSource(t)
	_, err := r.execute(t, w, order{
		Before: []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}` + "\n"),
		Result: []byte("{}"),
	}.String())
	_, refused := errors.AsType[*source.RefusedError](err)
	testkit.True(t, !refused && errors.Is(err, source.ErrLost), "%v", err)
	r.back(t, "raw")
}

// A source that does one thing at a time does not read while it works: a call that is
// given up before it could be written returns at once, and costs the other nothing.
func TestACallIsGivenUpWhileItsSourceWorks(t *testing.T) {
	r, w := rawSource(t)
	gate := filepath.Join(t.TempDir(), "gate")
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.gives(t, w, order{Await: gate, Result: []byte(`{"content":[],"structuredContent":{"a":1}}`)}.String(),
			`{"a":1}`, "the other call")
	}()
	testkit.Until(t, "begun", func() bool {
		_, err := os.Stat(gate + ".began")
		return err == nil
	})

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	long := order{Filler: strings.Repeat("x", 1<<20)}.String() // more than a pipe holds
	testkit.FailsWith(t, testkit.Get(r.Execute(ctx, w, []byte(long), nil)).Err(), context.DeadlineExceeded)
	testkit.True(t, time.Since(began) <= writePatience, "it took %v", time.Since(began))

	testkit.Must(t, os.WriteFile(gate, nil, 0o600))
	<-done
}

// writePatience is well below the time that a write to a command may take.
const writePatience = 20 * time.Second
