package source_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

// A posted message is one that the source got.
type posted struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// A rawWeb is a source over HTTP that answers calls as the test writes it, byte for
// byte; no SDK would.
type rawWeb struct {
	*httptest.Server
	call   func(w http.ResponseWriter, r *http.Request, id string) // of the execute tool
	resume func(w http.ResponseWriter, r *http.Request)            // of a GET with Last-Event-Id
	deaf   chan struct{}                                           // answers and cancellations are not taken before it is closed; nil: they are

	mu      sync.Mutex
	session int // counts those that were begun
	got     []posted
	conns   atomic.Int64
}

func newRawWeb(t *testing.T) *rawWeb {
	s := &rawWeb{}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// open opens a catalog on the source, which offers one workflow.
func (s *rawWeb) open(t *testing.T) (*rig, *source.Workflow) {
	c := settings(named(config.WorkflowSource{Name: "web", URL: s.URL, Headers: map[string]string{"X-Mine": "yes"}}))
	c.WorkflowTools.RefreshInterval = 0
	r := open(t, c)
	return r, &r.tools(t, "raw").Tools[0].Workflow
}

func (s *rawWeb) sessionID() string { return fmt.Sprintf("session-%d", s.session) }

// forget has the source not know its sessions any more.
func (s *rawWeb) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session += 1000
}

func (s *rawWeb) sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// until waits for a message that the source gets.
func (s *rawWeb) until(t *testing.T, what string, is func(posted) bool) {
	t.Helper()
	testkit.Until(t, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.got, is)
	})
}

// unknown answers a request of a session that is not known.
var unknown = func(w http.ResponseWriter) { http.Error(w, "session not found", http.StatusNotFound) }

func (s *rawWeb) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") != "" && s.resume != nil {
		s.resume(w, r)
		return
	}
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m posted
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.got = append(s.got, m)
	if m.Method == "initialize" {
		s.session++
		w.Header().Set("Mcp-Session-Id", s.sessionID())
	} else if r.Header.Get("Mcp-Session-Id") != s.sessionID() {
		s.mu.Unlock()
		unknown(w)
		return
	}
	s.mu.Unlock()
	result := `{}`
	switch {
	case (m.Method == "" || m.Method == "notifications/cancelled") && s.deaf != nil:
		select {
		case <-s.deaf:
		case <-r.Context().Done():
		}
		return
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
		return
	case m.Method == "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"1"}}`
	case m.Method == "tools/list":
		result = `{"tools":[{"name":"workflows-list-tool","inputSchema":{"type":"object"}},{"name":"workflows-execute-tool","inputSchema":{"type":"object"}}]}`
	case m.Method == "tools/call" && bytes.Contains(m.Params, []byte(`"workflows-execute-tool"`)):
		s.call(w, r, string(m.ID))
		return
	case m.Method == "tools/call":
		result = `{"content":[],"structuredContent":[{"id":"r","name":"raw","description":"d","executionType":"sync"}]}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// stream answers with events; %ID% is replaced by the id of the call.
func stream(w http.ResponseWriter, id, events string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	io.WriteString(w, strings.ReplaceAll(events, "%ID%", id))
	_ = http.NewResponseController(w).Flush()
}

const rawAnswer = `{"jsonrpc":"2.0","id":%ID%,"result":{"content":[],"structuredContent":{"z":1,"a":12345678901234567890}}}`

// A call over HTTP takes its answer in whatever form MCP and the standard of
// server-sent events allow, and what comes before it is handled.
func TestAnAnswerOverHTTPInEveryForm(t *testing.T) {
	s := newRawWeb(t)
	r, w := s.open(t)
	for name, c := range map[string]struct{ kind, body string }{
		"JSON":                {"application/json", rawAnswer},
		"JSON with a charset": {"application/json; charset=utf-8", " " + rawAnswer + "\r\n"},
		"comments, others' events, an empty event with an id": {"text/event-stream",
			": hello\n\nevent: ping\ndata: {}\n\nid: 1\ndata:\n\n:\n\nfoo: bar\ndata: " + rawAnswer + "\n\n"},
		"other messages first": {"text/event-stream",
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n" +
				"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\ndata: " + rawAnswer + "\n\n"},
		"no blank line at the end":        {"text/event-stream", "id: 7\ndata: " + rawAnswer + "\n"},
		"the id as a float":               {"text/event-stream", "data: " + strings.Replace(rawAnswer, "%ID%", "%ID%.0", 1) + "\n\n"},
		"what comes after it is nobody's": {"text/event-stream", "data: " + rawAnswer + "\n\ndata: nonsense\n\n"},
	} {
		s.call = func(w http.ResponseWriter, r *http.Request, id string) {
			if r.Header.Get("Mcp-Protocol-Version") != "2025-11-25" || r.Header.Get("X-Mine") != "yes" || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("the header of the call: %v", r.Header)
			}
			if strings.HasPrefix(c.kind, "text/event-stream") {
				stream(w, id, c.body)
				return
			}
			w.Header().Set("Content-Type", c.kind)
			io.WriteString(w, strings.ReplaceAll(c.body, "%ID%", id))
		}
		got, err := r.Execute(t.Context(), w, json.RawMessage(`{"a":"<&>"}`), func(source.Progress) {})
		if err != nil || strings.ReplaceAll(string(got.Output), "\n", "") != `{"z":1,"a":12345678901234567890}` {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	s.until(t, "the input as it was", func(m posted) bool { return bytes.Contains(m.Params, []byte(`"input":{"a":"<&>"}`)) })
	if n := s.sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// What a source says in the middle of a call: its progress goes to that call, its
// requests are answered, and news of its tools make it asked for them.
func TestWhatASourceSaysInTheMiddleOfACall(t *testing.T) {
	s := newRawWeb(t)
	asked := func(id, method string) string {
		return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":%q,\"params\":{}}\n\n", id, method)
	}
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		var token string
		s.until(t, "the call", func(m posted) bool {
			var p struct {
				Meta struct {
					ProgressToken string `json:"progressToken"`
				} `json:"_meta"`
			}
			if m.Method == "tools/call" && json.Unmarshal(m.Params, &p) == nil {
				token = p.Meta.ProgressToken
			}
			return token != ""
		})
		stream(w, id, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%q,\"progress\":2,\"total\":4,\"message\":\"half\"}}\n\n", token)+
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":7}\n\n"+
			asked(`"p-1"`, "ping")+asked("77", "sampling/createMessage")+
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
		s.until(t, "the answer to its ping", func(m posted) bool { return string(m.ID) == `"p-1"` && string(m.Result) == `{}` })
		s.until(t, "the answer to its question", func(m posted) bool {
			return string(m.ID) == `77` && m.Result == nil && bytes.Contains(m.Error, []byte("not support"))
		})
		for i := range 200 {
			stream(w, id, asked(fmt.Sprint(1000+i), "ping"))
		}
		s.until(t, "the answer to the last ping", func(m posted) bool { return string(m.ID) == "1199" })
		stream(w, id, "data: "+rawAnswer+"\n\n")
	}
	r, w := s.open(t)
	var told []source.Progress
	if _, err := r.Execute(t.Context(), w, nil, func(p source.Progress) { told = append(told, p) }); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || *told[0].Value != 2 || *told[0].Total != 4 || told[0].Message != "half" {
		t.Errorf("told %+v", told)
	}
	lists := 0
	s.until(t, "its tools to be asked for again", func(m posted) bool {
		if m.Method == "tools/list" {
			lists++
		}
		return lists > 1
	})
}

// A source that does not take the answers to what it asks has its own answer read all
// the same.
func TestAnAnswerBehindRequestsThatAreNotAnswered(t *testing.T) {
	s := newRawWeb(t)
	s.deaf = make(chan struct{})
	t.Cleanup(func() { close(s.deaf) })
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		for i := range 3 {
			stream(w, id, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n\n", i))
		}
		stream(w, id, "data: "+rawAnswer+"\n\n")
	}
	r, w := s.open(t)
	began := time.Now()
	if _, err := r.Execute(t.Context(), w, nil, nil); err != nil || time.Since(began) >= noticeTimeout {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// noticeTimeout is how long an answer to a source may take.
const noticeTimeout = 5 * time.Second

// A stream that breaks off is taken up again where its source has said how.
func TestAStreamThatBreaksOffIsTakenUpAgain(t *testing.T) {
	s := newRawWeb(t)
	executed, resumed := 0, 0
	var callID string
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		executed++
		callID = id
		stream(w, id, "id: e-1\nretry: 1\ndata:\n\n")
	}
	s.resume = func(w http.ResponseWriter, r *http.Request) {
		resumed++
		if r.Header.Get("Mcp-Session-Id") != "session-1" || r.Header.Get("Last-Event-Id") != fmt.Sprintf("e-%d", resumed) {
			t.Errorf("taken up with %v", r.Header)
		}
		if resumed < 5 { // as often as there is something new
			stream(w, callID, fmt.Sprintf("id: e-%d\ndata:\n\n", resumed+1))
			return
		}
		stream(w, callID, "data: "+rawAnswer+"\n\n")
	}
	r, w := s.open(t)
	if got, err := r.Execute(t.Context(), w, nil, nil); err != nil || got.State != source.Completed || executed != 1 || resumed != 5 {
		t.Errorf("%+v %v, executed %d, resumed %d", got, err, executed, resumed)
	}
	resumed = 0
	s.resume = func(w http.ResponseWriter, r *http.Request) {
		resumed++
		stream(w, callID, "retry: 1\n\n")
	}
	if _, err := r.Execute(t.Context(), w, nil, nil); !errors.Is(err, source.ErrLost) || resumed != 1 || executed != 2 {
		t.Errorf("%v, executed %d, resumed %d", err, executed, resumed)
	}
	s.resume = nil // 405
	if _, err := r.Execute(t.Context(), w, nil, nil); !errors.Is(err, source.ErrLost) || !strings.Contains(err.Error(), "Not Allowed") {
		t.Error(err)
	}
}

// What goes wrong with one call is told of that call, as lost where the source may
// have begun; the session goes on.
func TestWhatGoesWrongWithACallOverHTTPCostsItAlone(t *testing.T) {
	s := newRawWeb(t)
	r, w := s.open(t)
	status := func(code int, kind, body string) func(http.ResponseWriter, *http.Request, string) {
		return func(w http.ResponseWriter, _ *http.Request, id string) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			io.WriteString(w, strings.ReplaceAll(body, "%ID%", id))
		}
	}
	events := func(all string) func(http.ResponseWriter, *http.Request, string) {
		return func(w http.ResponseWriter, _ *http.Request, id string) { stream(w, id, all) }
	}
	const isJSON = "application/json"
	for name, c := range map[string]struct {
		call func(http.ResponseWriter, *http.Request, string)
		lost bool
		says string
	}{
		"an error":                  {status(200, isJSON, `{"jsonrpc":"2.0","id":%ID%,"error":{"code":-32602,"message":"no such region"}}`), false, "no such region"},
		"an error in between":       {status(504, isJSON, `{"error":{"code":504,"message":"upstream request timeout"}}`), true, "504"},
		"an error like JSON-RPC's":  {status(502, isJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":502,"message":"bad gateway"}}`), true, "502"},
		"its own error, with 500":   {status(500, isJSON, `{"jsonrpc":"2.0","id":%ID%,"error":{"code":-32603,"message":"it broke"}}`), false, "it broke"},
		"a token that is not known": {status(401, isJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}`), true, "401"},
		"there is no such thing":    {status(404, isJSON, `{"jsonrpc":"2.0","id":%ID%,"error":{"code":1,"message":"there is no order 7"}}`), false, "no order 7"},
		"words about a session":     {status(400, isJSON, `{"jsonrpc":"2.0","id":%ID%,"error":{"code":1,"message":"no valid session"}}`), false, "no valid session"},
		"other words about one":     {status(400, "text/plain", "the database session was closed after the order was placed"), true, "400"},
		"busy":                      {status(503, "text/plain", "later"), true, "503"},
		"busy, in JSON":             {status(429, isJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"slow down"}}`), true, "429"},
		"a bad request":             {status(400, isJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too many words"}}`), true, "400"},
		"not allowed":               {status(403, "text/plain", "no"), true, "403"},
		"a stream that ends":        {events("data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n"), true, "without response"},
	} {
		s.call = c.call
		got, err := r.Execute(t.Context(), w, nil, nil)
		refused, _ := errors.AsType[*source.RefusedError](err)
		if err == nil || errors.Is(err, source.ErrLost) != c.lost || (refused == nil) != c.lost || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	s.call = events("data: " + rawAnswer + "\n\n")
	if _, err := r.Execute(t.Context(), w, nil, nil); err != nil || s.sessions() != 1 {
		t.Errorf("%v, %d sessions", err, s.sessions())
	}
}

// An answer that cannot be read costs the calls in flight, as lost, and the session;
// later calls go on in the next one.
func TestAnAnswerThatCannotBeReadCostsItsSession(t *testing.T) {
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
		s.call = func(w http.ResponseWriter, r *http.Request, id string) {
			switch {
			case strings.HasPrefix(answer, "data:"):
				stream(w, id, answer)
				return
			case answer != "text":
				w.Header().Set("Content-Type", "application/json")
			}
			io.WriteString(w, strings.ReplaceAll(answer, "%ID%", id))
		}
		if got, err := r.Execute(t.Context(), w, nil, nil); !errors.Is(err, source.ErrLost) {
			t.Errorf("%.60q: %+v %v", answer, got, err)
		}
		s.call = func(w http.ResponseWriter, r *http.Request, id string) { stream(w, id, "data: "+rawAnswer+"\n\n") }
		if _, err := r.Execute(t.Context(), w, nil, nil); err != nil || s.sessions() != 2 {
			t.Errorf("after %.60q: %v, %d sessions", answer, err, s.sessions())
		}
	}
}

// A source that was restarted does not know our session, however it says so: the
// call had no effect, and is made once more in its own session.
func TestEveryWayToSayThatASessionIsNotKnown(t *testing.T) {
	was := unknown
	defer func() { unknown = was }()
	for name, answer := range map[string]func(http.ResponseWriter){
		"the status": func(w http.ResponseWriter) { w.WriteHeader(404) },
		"with an error of JSON-RPC": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(404)
			io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
		},
		"as a bad request": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
		},
		"as not initialized": func(w http.ResponseWriter) {
			w.WriteHeader(400)
			io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			unknown = answer
			s := newRawWeb(t)
			s.call = func(w http.ResponseWriter, r *http.Request, id string) { stream(w, id, "data: "+rawAnswer+"\n\n") }
			r, w := s.open(t)
			s.forget()
			if got, err := r.Execute(t.Context(), w, nil, nil); err != nil || got.State != source.Completed {
				t.Errorf("%+v %v", got, err)
			}
			// So does it end the session where no call was made: a query finds out.
			s.forget()
			before := s.sessions()
			if _, err := r.Refresh(t.Context(), patience); err != nil {
				t.Error(err)
			}
			r.until(t, "another session", func(*source.Snapshot) bool { return s.sessions() > before })
		})
	}
}

// A call that is under way when another one's session is not known may be carried out
// all the same: it is not made again.
func TestACallIsNotRepeatedForAnother(t *testing.T) {
	s := newRawWeb(t)
	began := make(chan struct{}, 10)
	var long atomic.Int64
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		long.Add(1)
		began <- struct{}{}
		<-r.Context().Done()
	}
	r, w := s.open(t)
	failed := make(chan error, 1)
	go func() {
		_, err := r.Execute(t.Context(), w, nil, nil)
		failed <- err
	}()
	<-began
	s.call = func(w http.ResponseWriter, r *http.Request, id string) { stream(w, id, "data: "+rawAnswer+"\n\n") }
	s.forget()
	if _, err := r.Execute(t.Context(), w, nil, nil); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, source.ErrLost) || long.Load() != 1 {
		t.Errorf("%v, carried out %d times", err, long.Load())
	}
}

// A source that cannot be reached any more when its answer is to be taken up again
// had begun.
func TestASourceThatIsGoneBeforeItsAnswer(t *testing.T) {
	s := newRawWeb(t)
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		stream(w, id, "id: 1\nretry: 1\ndata:\n\n")
		s.Listener.Close()
		panic(http.ErrAbortHandler)
	}
	r, w := s.open(t)
	if _, err := r.Execute(t.Context(), w, nil, nil); !errors.Is(err, source.ErrLost) || !errors.Is(err, source.ErrAway) {
		t.Error(err)
	}
}

// The connection that brought an answer brings the next one.
func TestConnectionsAreUsedAgain(t *testing.T) {
	s := newRawWeb(t)
	s.call = func(w http.ResponseWriter, r *http.Request, id string) { stream(w, id, "data: "+rawAnswer+"\n\n") }
	r, w := s.open(t)
	const calls = 40
	var n int64
	// The end of a stream comes after the answer, and nothing announces it: on a busy machine, late.
	for pause := 5 * time.Millisecond; pause <= 160*time.Millisecond; pause *= 2 {
		before := s.conns.Load()
		for range calls {
			if _, err := r.Execute(t.Context(), w, nil, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
		}
		if n = int64(s.conns.Load() - before); n <= calls/2 {
			return
		}
	}
	t.Errorf("%d connections for %d calls", n, calls)
}

// A source that never ends its stream has no call wait for that.
func TestAStreamThatGoesOnBehindTheAnswer(t *testing.T) {
	s := newRawWeb(t)
	ended := make(chan struct{})
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		defer close(ended)
		stream(w, id, "data: "+rawAnswer+"\n\n")
		for r.Context().Err() == nil {
			stream(w, id, ": still here\n\n")
			time.Sleep(time.Millisecond)
		}
	}
	r, w := s.open(t)
	if _, err := r.Execute(t.Context(), w, nil, nil); err != nil {
		t.Error(err)
	}
	select {
	case <-ended: // it was cut off
	case <-time.After(patience):
		t.Error("the stream goes on")
	}
}

// Who gives a call up does not wait until the source has taken the word of it.
func TestACallIsGivenUpThoughTheSourceDoesNotListen(t *testing.T) {
	s := newRawWeb(t)
	s.deaf = make(chan struct{})
	t.Cleanup(func() { close(s.deaf) })
	began := make(chan struct{})
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		close(began)
		<-r.Context().Done()
	}
	r, w := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var given time.Time
	go func() {
		<-began
		given = time.Now()
		cancel()
	}()
	if _, err := r.Execute(ctx, w, nil, nil); !errors.Is(err, context.Canceled) || time.Since(given) >= noticeTimeout {
		t.Errorf("%v after %v", err, time.Since(given))
	}
}

// A call that is given up is told of with its id, and its request ends, wherever it
// is: before the answer, in a stream, and in the wait before it is taken up again.
func TestACallOverHTTPIsGivenUp(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter, string){
		"before the answer": func(http.ResponseWriter, string) {},
		"in a stream":       func(w http.ResponseWriter, id string) { stream(w, id, ": hello\n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newRawWeb(t)
			began, ended := make(chan string, 1), make(chan struct{})
			s.call = func(w http.ResponseWriter, r *http.Request, id string) {
				defer close(ended)
				begin(w, id)
				began <- id
				<-r.Context().Done()
			}
			r, w := s.open(t)
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := r.Execute(ctx, w, nil, nil)
				failed <- err
			}()
			id := <-began
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			<-ended
			s.until(t, "the word of it", func(m posted) bool {
				return m.Method == "notifications/cancelled" && bytes.Contains(m.Params, []byte(`"requestId":`+id))
			})
		})
	}
	t.Run("before it is taken up again", func(t *testing.T) {
		s := newRawWeb(t)
		s.call = func(w http.ResponseWriter, r *http.Request, id string) {
			stream(w, id, "id: 1\nretry: 3600000\ndata:\n\n")
		}
		r, w := s.open(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := r.Execute(ctx, w, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A refusal with words about another session is not repeated, and costs no other call.
func TestACallThatIsRefusedInALivingSessionIsNotRepeated(t *testing.T) {
	s := newRawWeb(t)
	executed := 0
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		executed++
		http.Error(w, "the shop session has expired while booking", 400)
	}
	r, w := s.open(t)
	before := s.sessions()
	if _, err := r.Execute(t.Context(), w, nil, nil); !errors.Is(err, source.ErrLost) || executed != 1 || s.sessions() != before {
		t.Errorf("%v, executed %d times, %d sessions more", err, executed, s.sessions()-before)
	}
}
