package transport

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// event is a message as the SDK writes it.
func event(message string) string { return eventHead + message + eventTail }

// written is what comes of events that are written and flushed, each, as the SDK
// does.
func written(w *replyWriter, events ...string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.ResponseWriter = rec
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if n, err := w.Write([]byte(e)); n != len(e) || err != nil {
			panic(fmt.Sprint(n, err))
		}
		_ = http.NewResponseController(w).Flush()
	}
	return rec
}

func TestAnAnswerAloneIsPlainJSON(t *testing.T) {
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`,
		`{"jsonrpc":"2.0","id":"a\",\"result\":{b\\","result":{}}`,
		`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no"}}`,
	} {
		rec := written(&replyWriter{single: true}, event(message))
		if got := rec.Body.String(); got != message {
			t.Errorf("%s became %s", message, got)
		}
		h := rec.Result().Header
		if h.Get("Content-Type") != "application/json" || h.Get("Content-Length") != strconv.Itoa(len(message)) || !rec.Flushed {
			t.Errorf("%s: %v, flushed %v", message, h, rec.Flushed)
		}
	}
}

// What is not the answer to the one call of its request, or comes before it,
// stays an event, and is sent at once.
func TestOtherMessagesStayEvents(t *testing.T) {
	progress := event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"result":2}}`)
	ask := event(`{"jsonrpc":"2.0","id":"1,\"result\":{}","method":"ping","params":{"id":1,"result":{}}}`)
	answer := event(`{"jsonrpc":"2.0","id":7,"result":{}}`)
	odd := "event: message\nid: s_1\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n"
	for name, c := range map[string]struct {
		single bool
		events []string
	}{
		"a notification":              {true, []string{progress}},
		"a request of the server":     {true, []string{ask}},
		"an answer after progress":    {true, []string{progress, answer}},
		"the answers of a batch":      {false, []string{answer, progress, answer}},
		"an event of another shape":   {true, []string{odd}},
		"something that is no event":  {true, []string{"malformed payload"}},
		"an event that is cut short":  {true, []string{eventHead + `{"jsonrpc":"2.0","id":` + eventTail}},
		"an id that does not end":     {true, []string{event(`{"jsonrpc":"2.0","id":"\"}`)}},
		"an id that is nothing at al": {true, []string{event(`{"jsonrpc":"2.0","id":}`)}},
	} {
		rec := written(&replyWriter{single: c.single}, c.events...)
		if got, want := rec.Body.String(), strings.Join(c.events, ""); got != want {
			t.Errorf("%s: %q became %q", name, want, got)
		}
		if ct := rec.Result().Header.Get("Content-Type"); ct != "text/event-stream" || !rec.Flushed {
			t.Errorf("%s: %s, flushed %v", name, ct, rec.Flushed)
		}
	}
}

// A parcel takes the place of a result that is nothing but its stand-in, once.
func TestParcelsOfAReply(t *testing.T) {
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", parcelFrom) + `"}]}`
	for name, single := range map[string]bool{"alone": true, "in a batch": false} {
		w := &replyWriter{single: single}
		stand := string(w.parcels.pack([]byte(large)))
		inside := `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":` + stand + `}}`
		got := written(w, event(inside), event(`{"jsonrpc":"2.0","id":2,"result":`+stand+`}`)).Body.String()
		if !strings.Contains(got, inside) || !strings.Contains(got, `{"jsonrpc":"2.0","id":2,"result":`+large+`}`) {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}

// Over the wire: a large reply and a small one, each whole, and known by its id.
func TestCallsAreAnsweredInPlainJSON(t *testing.T) {
	s, _ := project(t, nil)
	h := overHTTP(t, s, HTTPOptions{})
	c := httpClient(t, "")
	header := open(t, c, h)
	for _, tool := range []string{"get_workflows", "get_step"} { // a large one, and a refusal
		r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":"x\",\"y","method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`, header)
		var got struct {
			ID     string             `json:"id"`
			Result mcp.CallToolResult `json:"result"`
		}
		if err := json.Unmarshal([]byte(r.body), &got); err != nil {
			t.Fatalf("%s: %v: %.300s", tool, err, r.body)
		}
		if got.ID != `x","y` || len(got.Result.Content) != 1 || r.header.Get("Content-Type") != "application/json" || r.header.Get("Content-Length") != strconv.Itoa(len(r.body)) {
			t.Errorf("%s: %v, %d bytes: %.300s", tool, r.header, len(r.body), r.body)
		}
	}
	// The client has the reply a moment before the request is over.
	left := func() (n int) {
		s.replies.open.Range(func(any, any) bool { n++; return true })
		return n
	}
	for end := time.Now().Add(time.Minute); left() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d replies are still open", left())
		}
	}
}
