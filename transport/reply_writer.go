package transport

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A replyWriter is the response to one POST of streamable HTTP. The SDK writes every
// message as an event of a stream. Where the one message of a response is the answer
// to its call, which it mostly is, it goes out as plain JSON, with its length: that
// is one packet in place of two, nothing is left to be read behind it, and the client
// need not look for events. Results travel past the SDK as parcels. What is written
// is sent off at once, as the SDK does it: a server that stops waits for no more.
type replyWriter struct {
	http.ResponseWriter
	parcels parcels
	single  bool // the request is one message, so that the first answer is the last message
	begun   bool // the header is out, or is not to be changed
}

// Unwrap is for http.ResponseController.
func (r *replyWriter) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *replyWriter) WriteHeader(status int) {
	r.begun = true
	r.ResponseWriter.WriteHeader(status)
}

// FlushError is what http.ResponseController calls to flush.
func (r *replyWriter) FlushError() error {
	r.begun = true
	return http.NewResponseController(r.ResponseWriter).Flush()
}

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
	var result []byte
	if ok {
		result, ok = answerIn(message)
	}
	if !ok { // no event, or one of a notification
		r.begun = true
		return r.ResponseWriter.Write(event)
	}
	head := message[:len(message)-len(result)]
	result = r.parcels.unpack(result[:len(result)-1]) // without the brace that ends the message
	plain := r.single && !r.begun
	whole := make([]byte, 0, len(eventHead)+len(head)+len(result)+len("}")+len(eventTail))
	if !plain {
		whole = append(whole, eventHead...)
	}
	whole = append(append(append(whole, head...), result...), '}')
	if plain {
		h := r.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(whole)))
		r.begun = true
	} else {
		whole = append(whole, eventTail...)
	}
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
	if body, ok := r.Body.(*readBody); ok {
		made.single = !isBatch(body.data)
	}
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
