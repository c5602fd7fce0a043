package transport

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	for _, e := range events {
		if n, err := w.Write([]byte(e)); n != len(e) || err != nil {
			panic(fmt.Sprint(n, err))
		}
		_ = http.NewResponseController(w).Flush()
	}
	return rec
}

// Whatever is written without a parcel stays as it is.
func TestEventsStayAsTheyAre(t *testing.T) {
	for _, e := range []string{
		event(`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`),
		event(`{"jsonrpc":"2.0","id":"a\",\"result\":{b\\","result":{}}`),
		event(`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no"}}`),
		event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"result":2}}`),
		event(`{"jsonrpc":"2.0","id":"1,\"result\":{}","method":"ping","params":{"id":1,"result":{}}}`),
		"event: message\nid: s_1\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n",
		"malformed payload",
		eventHead + `{"jsonrpc":"2.0","id":` + eventTail,
		event(`{"jsonrpc":"2.0","id":"\"}`),
		event(`{"jsonrpc":"2.0","id":}`),
	} {
		if got := written(&replyWriter{}, e); got.Body.String() != e || !got.Flushed {
			t.Errorf("%q became %q, flushed %v", e, got.Body, got.Flushed)
		}
	}
}

// A parcel takes the place of a result that is nothing but its stand-in, once.
func TestParcelsOfAReply(t *testing.T) {
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", parcelFrom) + `"}]}`
	w := &replyWriter{}
	stand := string(w.parcels.pack([]byte(large)))
	inside := `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":` + stand + `}}`
	answer := event(`{"jsonrpc":"2.0","id":2,"result":` + stand + `}`)
	want := event(inside) + event(`{"jsonrpc":"2.0","id":2,"result":`+large+`}`) + answer
	if got := written(w, event(inside), answer, answer).Body.String(); got != want {
		t.Errorf("%.300s", got)
	}
}

// Over the wire: a large reply and a small one, each whole, and known by its id.
func TestParcelsArrive(t *testing.T) {
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
		if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(r.body, eventHead), eventTail)), &got); err != nil {
			t.Fatalf("%s: %v: %.300s", tool, err, r.body)
		}
		if got.ID != `x","y` || len(got.Result.Content) != 1 || strings.Contains(r.body, parcelMark) {
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
