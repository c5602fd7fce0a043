package source_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

// A rawWeb is a source over HTTP that answers calls as the test writes it, byte for
// byte; no SDK would.
type rawWeb struct {
	*httptest.Server
	call func(w http.ResponseWriter, r *http.Request, id string) // of the execute tool

	mu      sync.Mutex
	session int // counts those that were begun
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

// unknown answers a request of a session that is not known.
var unknown = func(w http.ResponseWriter, id string) { http.Error(w, "session not found", http.StatusNotFound) }

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
	s.mu.Lock()
	if m.Method == "initialize" {
		s.session++
		w.Header().Set("Mcp-Session-Id", s.sessionID())
	} else if r.Header.Get("Mcp-Session-Id") != s.sessionID() {
		s.mu.Unlock()
		unknown(w, string(m.ID))
		return
	}
	s.mu.Unlock()
	result := `{}`
	switch {
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

// What goes wrong with one call is told of that call, as lost where the source may
// have begun; the session goes on.
func TestWhatGoesWrongWithACallOverHTTPCostsItAlone(t *testing.T) {
	t.Parallel()
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
		"a bad request, Python":     {status(400, isJSON, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32602,"message":"too many words"}}`), false, "too many words"},
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
		testkit.True(t, err != nil && errors.Is(err, source.ErrLost) == c.lost && (refused == nil) == c.lost && strings.Contains(err.Error(), c.says), "%s: %+v %v", name, got, err)
	}
	s.call = events("data: " + rawAnswer + "\n\n")
	if _, err := r.Execute(t.Context(), w, nil, nil); err != nil || s.sessions() != 1 {
		t.Errorf("%v, %d sessions", err, s.sessions())
	}
}

// An answer that cannot be read costs the calls in flight, as lost, and the session;
// later calls go on in the next one.
func TestAnAnswerThatCannotBeReadCostsItsSession(t *testing.T) {
	t.Parallel()
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
		got, err := r.Execute(t.Context(), w, nil, nil)
		testkit.True(t, errors.Is(err, source.ErrLost), "%.60q: %+v %v", answer, got, err)
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
	const ownID = "with the id of the request"
	for name, answer := range map[string]func(w http.ResponseWriter, id string){
		"the status": func(w http.ResponseWriter, _ string) { w.WriteHeader(404) },
		"with an error of JSON-RPC": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(404)
			io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
		},
		"with an id that no call has": func(w http.ResponseWriter, _ string) {
			w.WriteHeader(404)
			io.WriteString(w, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`)
		},
		ownID: func(w http.ResponseWriter, id string) {
			w.WriteHeader(404)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"Session not found"}}`, id)
		},
		"as a bad request with such an id": func(w http.ResponseWriter, _ string) {
			w.WriteHeader(400)
			io.WriteString(w, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}`)
		},
		"as a bad request": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
		},
		"as a text": func(w http.ResponseWriter, _ string) {
			w.WriteHeader(400)
			io.WriteString(w, "Bad Request: No valid session ID provided")
		},
		"as not initialized": func(w http.ResponseWriter, _ string) {
			w.WriteHeader(400)
			io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			unknown = answer
			s := newRawWeb(t)
			s.call = func(w http.ResponseWriter, r *http.Request, id string) { stream(w, id, "data: "+rawAnswer+"\n\n") }
			r, w := s.open(t)
			if name != ownID { // a call's own error may be about another session
				s.forget()
				testkit.Equal(t, testkit.Get(r.Execute(t.Context(), w, nil, nil)).Must(t).State, source.Completed)
			}
			// So does it end the session where no call was made: a query finds out.
			s.forget()
			before := s.sessions()
			testkit.Works(t, testkit.Get(r.Refresh(t.Context(), patience)).Err())
			r.until(t, "another session", func(*source.Snapshot) bool { return s.sessions() > before })
		})
	}
}

// A call that is under way when another one's session is not known may be carried out
// all the same: it is not made again.
func TestACallIsNotRepeatedForAnother(t *testing.T) {
	t.Parallel()
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
	testkit.Works(t, testkit.Get(r.Execute(t.Context(), w, nil, nil)).Err())
	if err := <-failed; !errors.Is(err, source.ErrLost) || long.Load() != 1 {
		t.Errorf("%v, carried out %d times", err, long.Load())
	}
}

// The connection that brought an answer brings the next one.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	s := newRawWeb(t)
	s.call = func(w http.ResponseWriter, r *http.Request, id string) { stream(w, id, "data: "+rawAnswer+"\n\n") }
	r, w := s.open(t)
	const calls = 40
	var n int64
	// The end of a stream comes after the answer, and nothing announces it: on a busy machine, late.
	for pause := 5 * time.Millisecond; pause <= 160*time.Millisecond; pause *= 2 {
		before := s.conns.Load()
		for range calls {
			testkit.Get(r.Execute(t.Context(), w, nil, nil)).Must(t)
			time.Sleep(pause)
		}
		if n = int64(s.conns.Load() - before); n <= calls/2 {
			return
		}
	}
	t.Errorf("%d connections for %d calls", n, calls)
}

// A refusal with words about another session is not repeated, and costs no other call.
func TestACallThatIsRefusedInALivingSessionIsNotRepeated(t *testing.T) {
	t.Parallel()
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
