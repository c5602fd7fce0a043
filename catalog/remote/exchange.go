package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
)

// An exchange is one call of a poster's: a request, and what comes back.
type exchange struct {
	*poster
	id    int64
	last  string           // the id of the last event that had one
	retry time.Duration    // how long to wait before the stream is taken up again; 0: not said
	asked chan wireMessage // requests of the source's own that wait for their answers; nil: there was none
}

// call sends the request and reads on until its answer has come. body is what is still
// to be read and closed, or nil.
func (x *exchange) call(ctx context.Context, params []byte) (answer *reply, body io.ReadCloser, err error) {
	defer x.endAnswers()
	id := strconv.AppendInt(nil, x.id, 10)
	resp, err := x.send(ctx, &wireMessage{Version: "2.0", ID: id, Method: "tools/call", Params: params})
	if err != nil {
		return nil, nil, transportError{err}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, nil, x.refusal(resp)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		answer, err = x.single(ctx, resp.Body)
		return answer, nil, err
	case "text/event-stream":
		return x.follow(ctx, resp)
	}
	resp.Body.Close()
	return nil, nil, transportError{fmt.Errorf("it answered with the content type %q and the status %s", jsontext.Clip(kind, 100), resp.Status)}
}

// single reads an answer that is all there is in a response.
func (x *exchange) single(ctx context.Context, body io.ReadCloser) (*reply, error) {
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxMessage+1))
	if err == nil && len(data) > maxMessage {
		err = fmt.Errorf("it is larger than %d bytes, the most that is read", maxMessage)
	}
	if err != nil {
		return nil, transportError{fmt.Errorf("reading its answer: %w", err)}
	}
	if answer, err := x.take(ctx, data); answer != nil || err != nil {
		return answer, err
	}
	var m wireMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, transportError{fmt.Errorf("its answer cannot be read: %w", err)}
	}
	if m.isRefusal() && jsontext.IsNull(m.ID) {
		return answerOf(&m) // whom else should it refuse
	}
	return nil, transportError{errors.New("it answered with a message that does not answer the call")}
}

// isRefusal tells whether a message is an error of JSON-RPC.
func (m *wireMessage) isRefusal() bool {
	return m.Version == "2.0" && m.Method == "" && !jsontext.IsNull(m.Error)
}

// maxRefusal is how much is read of the body of a response that is an error, in bytes.
const maxRefusal = 64 << 10

// refusal makes an error of a response that is one. What an error of JSON-RPC says
// is the source's answer; but those of servers in between, which do not know what has
// become of the call, look like one too, so where it has no id the status is to say
// that nothing was done.
func (x *exchange) refusal(resp *http.Response) error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what there is of it
	if x.session != "" && sessionUnknown(resp.StatusCode, body) {
		return sessionUnknownError{fmt.Errorf("calling a tool: %s", resp.Status)}
	}
	var m wireMessage
	if json.Unmarshal(body, &m) == nil && m.isRefusal() {
		switch mine := x.isMine(m.ID); {
		case mine, jsontext.IsNull(m.ID) && resp.StatusCode < 500 && resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden:
			_, err := answerOf(&m)
			return err
		}
	}
	return transportError{fmt.Errorf("calling a tool: %s", resp.Status)}
}

// isMine tells whether an id is the call's; some sources make a float of it, or a text.
func (x *exchange) isMine(id json.RawMessage) bool {
	text := strings.Trim(string(bytes.TrimSpace(id)), `"`)
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && n == float64(x.id)
}

// A sessionUnknownError says that the source does not know our session. Whoever says
// so has done nothing of what it was asked for.
type sessionUnknownError struct{ error }

// Unwrap returns what the source answered.
func (e sessionUnknownError) Unwrap() error { return e.error }

// sessionWords are how a session that is not known is spoken of where the status does
// not say it.
var sessionWords = regexp.MustCompile(`(?i)(no|no valid|invalid|unknown|missing|expired) (mcp[- ])?session|session([- ]id)?( header)?( is| was| has)? (not found|unknown|invalid|expired|missing|required|not valid|terminated)|(server|session|transport)( is)? not (yet )?initialized`)

// sessionUnknown tells whether a response to a request of a session says that this is
// not known: by 404, as MCP asks, or, as many do, by 400 and words to that effect ("No
// valid session ID provided", "Server not initialized"). An error that has the id of
// its request answers that, and says nothing of the session.
func sessionUnknown(status int, body []byte) bool {
	if status != http.StatusNotFound && status != http.StatusBadRequest {
		return false
	}
	said := string(body)
	var m wireMessage
	if json.Unmarshal(body, &m) == nil && !jsontext.IsNull(m.Error) {
		if !jsontext.IsNull(m.ID) {
			return false
		}
		var fault struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(m.Error, &fault) == nil {
			said = fault.Message
		}
	}
	return status == http.StatusNotFound || len(said) < 300 && sessionWords.MatchString(said)
}
