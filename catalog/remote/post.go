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
	asking, cancel := context.WithCancel(p.wire.cutting)
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
		_ = p.notify(p.wire.cutting, &wireMessage{Version: "2.0", Method: "notifications/cancelled", Params: params})
	}
}

// notify sends what is not answered.
func (p *poster) notify(ctx context.Context, m *wireMessage) error {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
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
	p.wire.dress(req)
	return p.wire.own.Do(req)
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
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage+1))
		if err == nil && len(data) > maxMessage {
			err = fmt.Errorf("it is larger than %d bytes, the most that is read", maxMessage)
		}
		if err != nil {
			return nil, nil, transportError{fmt.Errorf("reading its answer: %w", err)}
		}
		answer, err := p.take(ctx, m.ID, data, new(int))
		if answer == nil && err == nil {
			err = unasked(data)
		}
		return answer, nil, err
	case "text/event-stream":
		return p.follow(ctx, m.ID, resp)
	}
	resp.Body.Close()
	return nil, nil, transportError{fmt.Errorf("it answered with the content type %q and the status %s", clip(kind, 100), resp.Status)}
}

// unasked is the error of a response that does not answer the call it is a response
// to: one that says what is wrong, without an id, is about the call all the same.
func unasked(data []byte) error {
	var m wireMessage
	if err := json.Unmarshal(data, &m); err == nil && !given(m.ID) && given(m.Error) {
		_, err := answerOf(&m)
		return err
	}
	return transportError{errors.New("it answered with a message that does not answer the call")}
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
