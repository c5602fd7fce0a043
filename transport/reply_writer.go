package transport

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A replyWriter is the response to one POST of streamable HTTP. Large results travel
// past the SDK as parcels, and take their place in the event that the SDK writes.
//
// An answer alone could be plain JSON in place of a stream of one event, which is
// cheaper. But the SDK's own client takes a call that is cancelled while such a body
// arrives for the end of its connection.
type replyWriter struct {
	http.ResponseWriter
	parcels parcels
}

// Unwrap is for http.ResponseController.
func (r *replyWriter) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// What the SDK writes around a message.
const (
	eventHead = "event: message\ndata: "
	eventTail = "\n\n"
)

// Write implements http.ResponseWriter. The SDK makes one call an event.
func (r *replyWriter) Write(event []byte) (int, error) {
	message, ok := bytes.CutPrefix(event, []byte(eventHead))
	if ok {
		message, ok = bytes.CutSuffix(message, []byte(eventTail))
	}
	var said []byte
	if ok {
		said, ok = answerIn(message)
	}
	if !ok { // no event, or one of a notification
		return r.ResponseWriter.Write(event)
	}
	said = said[:len(said)-1] // without the brace that ends the message
	result := r.parcels.unpack(said)
	head := event[:len(event)-len(eventTail)-1-len(said)]
	whole := make([]byte, 0, len(head)+len(result)+1+len(eventTail))
	whole = append(append(append(whole, head...), result...), '}')
	whole = append(whole, eventTail...)
	if _, err := r.ResponseWriter.Write(whole); err != nil {
		return 0, err
	}
	return len(event), nil
}

// answerIn tells whether a message, as the SDK encodes it, is the answer to a
// call, and returns what it says: the result or the error, and the brace that
// ends the message.
func answerIn(message []byte) (said []byte, ok bool) {
	rest, ok := bytes.CutPrefix(message, []byte(`{"jsonrpc":"2.0","id":`))
	if !ok || !bytes.HasSuffix(rest, []byte("}")) {
		return nil, false
	}
	rest = rest[idLength(rest):]
	if said, ok = bytes.CutPrefix(rest, []byte(`,"result":`)); ok {
		return said, true
	}
	return bytes.CutPrefix(rest, []byte(`,"error":`))
}

// idLength is how many bytes the id takes that a message goes on with.
func idLength(rest []byte) int {
	if rest[0] != '"' {
		return max(0, bytes.IndexByte(rest, ','))
	}
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(rest)
}

// replyWriters are the responses that are being made, so that what answers a call
// finds the one it goes into: the SDK hands the header of its request on and
// nothing else.
type replyWriters struct {
	last atomic.Uint64
	open sync.Map // string to *replyWriter
}

// replyKey stands in the header of a request for the number of its response. It
// is no name that a client could send.
const replyKey = "deepwork reply"

// of makes the response to a request; done is to be called when it is made.
func (rs *replyWriters) of(w http.ResponseWriter, r *http.Request) (made *replyWriter, done func()) {
	key := strconv.FormatUint(rs.last.Add(1), 10)
	made = &replyWriter{ResponseWriter: w}
	r.Header[replyKey] = []string{key}
	rs.open.Store(key, made)
	return made, func() { rs.open.Delete(key) }
}

// parcelsFor are those that go with the response to a request, or nil.
func (rs *replyWriters) parcelsFor(req mcp.Request) *parcels {
	extra := req.GetExtra()
	if extra == nil || len(extra.Header[replyKey]) == 0 {
		return nil
	}
	made, ok := rs.open.Load(extra.Header[replyKey][0])
	if !ok {
		return nil // nobody waits for it any more
	}
	return &made.(*replyWriter).parcels
}
