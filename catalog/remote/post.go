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
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A poster calls the tools of a source behind a URL with requests of its own, in the
// session that the SDK began and keeps: on the SDK's way a call is encoded and decoded
// four times and handed on between three goroutines, which is most of what a call
// costs. It is for the versions of MCP that begin with initialize.
type poster struct {
	link     *link
	wire     *urlWire
	session  string // "" where the source has none
	version  string // of MCP
	requests atomic.Int64
}

// firstID keeps a poster's ids apart from the SDK's, which counts from 1.
const firstID = 1 << 40

const (
	// resumes is how often a stream that broke off is taken up again without anything
	// new in it.
	resumes = 2
	// resumeAfter is how long to wait before that where the source does not say.
	resumeAfter = time.Second
	// maxResumeAfter bounds what a source may say.
	maxResumeAfter = time.Minute
	// maxRefusal is how much is read of the body of a response that is an error, in bytes.
	maxRefusal = 64 << 10
	// noticeTimeout bounds a message that is not answered.
	noticeTimeout = 5 * time.Second
	// drainTime and drainBytes bound what is read behind an answer.
	drainTime  = time.Second
	drainBytes = 4 << 10
	// maxAsked is how many requests of the source's own are answered in one call.
	maxAsked = 100
)

// What a message is to whom it is sent.
type wireMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// callTool calls a tool and waits for the answer, until ctx ends; then the source is
// told. The error is a *RefusedError, a transportError, or ctx's. What is left to do
// when the caller has its answer is for rest, which may block for drainTime.
func (p *poster) callTool(ctx context.Context, r *request) (answer *reply, rest func(), err error) {
	params, err := encodeExact(r)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the call of %q: %w", r.Name, err)
	}
	id := strconv.AppendInt(nil, firstID+p.requests.Add(1), 10)
	// The request outlives the call: what follows the answer, the end of the stream as
	// a rule, has to be read for its connection to be used again.
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	attached := context.AfterFunc(ctx, cancel)
	answer, body, err := p.exchange(asking, &wireMessage{Version: "2.0", ID: id, Method: "tools/call", Params: params})
	attached()
	if err != nil && ctx.Err() != nil {
		p.cancelled(ctx, id)
	}
	if body == nil {
		cancel()
		return answer, nil, err
	}
	return answer, func() {
		late := time.AfterFunc(drainTime, cancel)
		_, _ = io.CopyN(io.Discard, body, drainBytes)
		late.Stop()
		body.Close()
		cancel()
	}, err
}

// encodeExact is json.Marshal without the escapes for HTML.
func encodeExact(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// cancelled tells the source that a call is given up. It is a courtesy.
func (p *poster) cancelled(ctx context.Context, id []byte) {
	params, err := json.Marshal(struct {
		RequestID json.RawMessage `json:"requestId"`
		Reason    string          `json:"reason"`
	}{id, ctx.Err().Error()})
	if err == nil {
		_ = p.notify(ctx, &wireMessage{Version: "2.0", Method: "notifications/cancelled", Params: params})
	}
}

// notify sends what is not answered, also when ctx has ended.
func (p *poster) notify(ctx context.Context, m *wireMessage) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noticeTimeout)
	defer cancel()
	resp, err := p.send(ctx, m)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// send sends a message and returns the response to it.
func (p *poster) send(ctx context.Context, m *wireMessage) (*http.Response, error) {
	data, err := encodeExact(m)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.wire.endpoint, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["Accept"] = []string{"application/json, text/event-stream"}
	return p.do(req)
}

// do sends a request in the session.
func (p *poster) do(req *http.Request) (*http.Response, error) {
	req.Header["Mcp-Protocol-Version"] = []string{p.version}
	if p.session != "" {
		req.Header["Mcp-Session-Id"] = []string{p.session}
	}
	return p.wire.plain.Do(req)
}

// exchange sends a call and reads on until its answer has come. body is what is still
// to be read and closed, or nil.
func (p *poster) exchange(ctx context.Context, m *wireMessage) (answer *reply, body io.ReadCloser, err error) {
	resp, err := p.send(ctx, m)
	if err != nil {
		return nil, nil, transportError{err}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, nil, p.refusal(resp)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, nil, transportError{fmt.Errorf("reading its answer: %w", err)}
		}
		answer, err := p.take(ctx, m.ID, data, new(int))
		if answer == nil && err == nil {
			err = transportError{errors.New("it answered with a message that does not answer the call")}
		}
		return answer, nil, err
	case "text/event-stream":
		return p.follow(ctx, m.ID, resp)
	}
	resp.Body.Close()
	return nil, nil, transportError{fmt.Errorf("it answered with the content type %q and the status %s", clip(kind, 100), resp.Status)}
}

// refusal makes an error of a response that is one, and ends the link where that is
// of no use any more.
func (p *poster) refusal(resp *http.Response) error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what there is of it
	if p.session != "" && sessionUnknown(resp.StatusCode, body) {
		err := fmt.Errorf("calling a tool: %w", mcp.ErrSessionMissing)
		p.link.cancel(err)
		return transportError{err}
	}
	var said struct {
		Error *jsonrpc.Error `json:"error"`
	}
	if json.Unmarshal(body, &said) == nil && said.Error != nil {
		return &RefusedError{Text: clip(said.Error.Message, maxErrorText)}
	}
	return transportError{fmt.Errorf("calling a tool: %s", resp.Status)}
}

// sessionUnknown tells whether a response says that a session is not known: by its
// status, as MCP asks, or, as many do, by 400 and words to that effect ("No valid
// session ID provided", "Server not initialized"). Whoever says so has done nothing.
func sessionUnknown(status int, body []byte) bool {
	if status != http.StatusBadRequest {
		return status == http.StatusNotFound
	}
	said := bytes.ToLower(body)
	return bytes.Contains(said, []byte("session")) || bytes.Contains(said, []byte("initialized"))
}

// follow reads a stream until the answer is there. One that breaks off is taken up
// again where the source has said how. What it returns is as of exchange.
func (p *poster) follow(ctx context.Context, id []byte, resp *http.Response) (*reply, io.ReadCloser, error) {
	s := &answerStream{id: id}
	after := resumeAfter
	for again, before := 0, ""; ; {
		answer, err := p.read(ctx, s, resp.Body)
		if answer != nil || err != nil {
			return answer, resp.Body, err
		}
		resp.Body.Close()
		if s.retry > 0 {
			after = min(s.retry, maxResumeAfter)
		}
		if again++; s.last != before {
			before, again = s.last, 0
		}
		if s.last == "" || again > resumes {
			return nil, nil, transportError{errors.New("its answer broke off")}
		}
		if resp, err = p.resume(ctx, s.last, after); err != nil {
			return nil, nil, err
		}
	}
}

// An answerStream is what is known of the stream that a call is answered by.
type answerStream struct {
	id    []byte        // of the call
	last  string        // the id of the last event that had one
	retry time.Duration // how long to wait before it is taken up again; 0: not said
	asked int           // requests of the source's own
}

// read reads a stream until the answer is there, or to its end (nil and nil).
func (p *poster) read(ctx context.Context, s *answerStream, body io.Reader) (*reply, error) {
	events := newEventReader(body)
	for {
		e, err := events.next()
		switch {
		case errors.Is(err, errEventTooLarge):
			return nil, transportError{err}
		case ctx.Err() != nil:
			return nil, transportError{ctx.Err()}
		case err != nil:
			return nil, nil
		}
		if e.id != "" {
			s.last = e.id
		}
		if e.retry > 0 {
			s.retry = e.retry
		}
		if len(e.data) == 0 || e.name != "" && e.name != "message" {
			continue
		}
		if answer, err := p.take(ctx, s.id, e.data, &s.asked); answer != nil || err != nil {
			return answer, err
		}
	}
}

// resume takes a stream up again.
func (p *poster) resume(ctx context.Context, last string, after time.Duration) (*http.Response, error) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, transportError{ctx.Err()}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.wire.endpoint, nil)
	if err != nil {
		return nil, transportError{err}
	}
	req.Header["Accept"] = []string{"text/event-stream"}
	req.Header["Last-Event-Id"] = []string{last}
	resp, err := p.do(req)
	if err != nil {
		return nil, transportError{err}
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		resp.Body.Close()
		return nil, transportError{fmt.Errorf("its answer broke off, and it does not go on with it: %s", resp.Status)}
	}
	return resp, nil
}

// take deals with one message of the source's: the answer to the call ends it, what
// else may come on the way is seen to.
func (p *poster) take(ctx context.Context, id, data []byte, asked *int) (*reply, error) {
	var m wireMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, &RefusedError{Text: fmt.Sprintf("its answer is not JSON: %v; NaN and Infinity, for example, have no place in it", err)}
	}
	switch {
	case m.Method == "" && bytes.Equal(bytes.TrimSpace(m.ID), id):
		return answerOf(&m)
	case m.Method == "":
		return nil, nil // of another call; nobody waits for it here
	case given(m.ID):
		if *asked++; *asked <= maxAsked {
			p.answer(ctx, &m)
		}
	case m.Method == "notifications/progress":
		var params mcp.ProgressNotificationParams
		if json.Unmarshal(m.Params, &params) == nil {
			p.link.route(&params)
		}
	case m.Method == "notifications/tools/list_changed":
		p.link.hearChange()
	}
	return nil, nil
}

// answerOf is what the answer to a call says.
func answerOf(m *wireMessage) (*reply, error) {
	if given(m.Error) {
		var e jsonrpc.Error
		if err := json.Unmarshal(m.Error, &e); err != nil {
			return nil, &RefusedError{Text: "its answer is an error that is not what JSON-RPC asks of one: " + clip(string(m.Error), 200)}
		}
		return nil, &RefusedError{Text: clip(e.Message, maxErrorText)}
	}
	answer := &reply{}
	if err := answer.UnmarshalJSON(m.Result); err != nil {
		return nil, &RefusedError{Text: fmt.Sprintf("its answer cannot be read: %v", err)}
	}
	return answer, nil
}

// answer answers a request of the source's own: it may ask whether we are there, and
// has been told that we offer nothing else.
func (p *poster) answer(ctx context.Context, m *wireMessage) {
	back := &wireMessage{Version: "2.0", ID: m.ID, Result: json.RawMessage(`{}`)}
	if m.Method != "ping" {
		fault, err := json.Marshal(&jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + strconv.Quote(clip(strings.ToValidUTF8(m.Method, "?"), 100))})
		if err != nil {
			return
		}
		back.Result, back.Error = nil, fault
	}
	_ = p.notify(ctx, back) // a source that does not take its answer has none
}
