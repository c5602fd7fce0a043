package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"deepwork/catalog/jsontext"
)

// listenWithin is how long a source may take to open the stream of its messages; some only
// respond when there is one. A test shortens it.
var listenWithin = 5 * time.Second

// RoundTrip implements http.RoundTripper for the SDK. It adds the headers of the config, gives raw
// methods their real names, bounds what is read, and lets a response that is an error, or does not
// answer its call, fail that call alone: for most of them the SDK would end the session.
func (w *urlWire) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(w.cutting, cancel)
	release := sync.OnceFunc(func() { stop(); cancel() })
	next := r.Clone(ctx)
	for name, values := range w.headers {
		next.Header[name] = values
	}
	if host := w.headers.Get("Host"); host != "" {
		next.Host = host
	}
	sent, err := renameRequest(next)
	if err != nil {
		release()
		return nil, err
	}
	listening := r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == ""
	late := &time.Timer{}
	if listening {
		late = time.AfterFunc(listenWithin, cancel)
	}
	if call := callIn(ctx); call != nil {
		call.sent.Store(true)
	}
	resp, err := w.base.RoundTrip(next)
	if listening && !late.Stop() && r.Context().Err() == nil && w.cutting.Err() == nil {
		if err == nil {
			resp.Body.Close()
		}
		release()
		return noStream(r), nil
	}
	if err != nil {
		release()
		return nil, err
	}
	limit := int64(maxMessage)
	if mediaType(resp) == "text/event-stream" {
		limit = maxStream // each event is bounded by the SDK
	}
	resp.Body = &body{ReadCloser: resp.Body, left: limit, release: release}
	if r.Method != http.MethodPost {
		return resp, nil
	}
	if !w.ready.Load() {
		status := int32(0)
		if resp.StatusCode >= 400 {
			status = int32(resp.StatusCode)
		}
		w.refusal.Store(status)
		return resp, nil
	}
	return w.examine(next, sent, resp), nil
}

func mediaType(resp *http.Response) string {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind
}

// renameRequest gives a raw method its real name in a request, and returns the id and
// method of its message.
func renameRequest(r *http.Request) (sent wireMessage, err error) {
	if r.Method != http.MethodPost || r.Body == nil {
		return sent, nil
	}
	text, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return sent, fmt.Errorf("reading the request: %w", err)
	}
	setBody(r, renameBody(text))
	if method, ours := strings.CutPrefix(r.Header.Get(methodHeader), rawPrefix); ours {
		r.Header.Set(methodHeader, method)
		if call := callIn(r.Context()); call != nil {
			r.Header.Set(nameHeader, call.tool)
		}
	}
	return sent, json.Unmarshal(text, &sent)
}

func setBody(r *http.Request, text []byte) {
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength = int64(len(text))
}

// examine returns a response that the SDK reads as the answer to the sent message: the original, or
// one that fails the message.
func (w *urlWire) examine(r *http.Request, sent wireMessage, resp *http.Response) *http.Response {
	isCall := sent.Method != "" && !jsontext.IsNull(sent.ID)
	kind := mediaType(resp)
	answered := func(id json.RawMessage) *call {
		if !sameID(id, sent.ID) {
			return nil
		}
		return callIn(r.Context())
	}
	switch {
	case resp.StatusCode >= 400:
	case isCall && kind == "text/event-stream":
		resp.Body = newEventFilter(resp.Body, answered)
		return resp
	case !isCall:
		return resp
	case kind != "application/json":
		resp.Body.Close()
		return answerWith(resp, failure(sent.ID, unansweredCode, "it answered with the content type %q and the status %s", jsontext.Clip(kind, 100), resp.Status))
	}
	text, err := readAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode < 400 {
		text = putAside(text, answered)
	}
	if err != nil {
		return answerWith(resp, failure(sent.ID, unansweredCode, "reading its answer: %v", err))
	}
	if resp.StatusCode >= 400 {
		return w.refused(r, sent, resp, text)
	}
	var got wireMessage
	switch err := json.Unmarshal(text, &got); {
	case err != nil && (len(text) == 0 || !bytes.HasSuffix(bytes.TrimSpace(text), []byte("}"))):
		text = failure(sent.ID, unansweredCode, "its answer cannot be read: %v", err)
	case err != nil:
		text = failure(sent.ID, jsonrpc.CodeParseError, "its answer is not JSON: %v; NaN and Infinity, for example, have no place in it", err)
	case got.Method == "" && jsontext.IsNull(got.ID) && !jsontext.IsNull(got.Error):
		text = answer(sent.ID, got.Error) // there is no other request in it
	case got.Method != "" || !sameID(got.ID, sent.ID):
		text = failure(sent.ID, unansweredCode, "it answered with a message that does not answer the call")
	case !jsontext.IsNull(got.Error):
		text = answer(sent.ID, got.Error)
	case got.Result == nil:
		text = failure(sent.ID, jsonrpc.CodeInternalError, "its answer has no result")
	}
	return answerWith(resp, text)
}

// answer returns a message with the source's error.
func answer(id, fault json.RawMessage) []byte {
	var e jsonrpc.Error
	if json.Unmarshal(fault, &e) != nil {
		return failure(id, jsonrpc.CodeInternalError, "its answer is an error that is not what JSON-RPC asks of one: %s", jsontext.Clip(string(fault), 200))
	}
	return failure(id, e.Code, "%s", e.Message)
}

// sameID reports whether an id is that of the call; some sources turn it into a float.
func sameID(got, sent json.RawMessage) bool {
	a, err := strconv.ParseFloat(string(got), 64)
	b, other := strconv.ParseFloat(string(sent), 64)
	return err == nil && other == nil && a == b
}

// answerWith replaces the body of a response by a text.
func answerWith(resp *http.Response, text []byte) *http.Response {
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Set("Content-Type", "application/json")
	if resp.StatusCode >= 400 {
		resp.StatusCode = http.StatusBadRequest // the SDK does not read others, such as 500
	} else {
		resp.StatusCode = http.StatusOK
	}
	return resp
}

// refused returns the failure of a call whose response is an error. A JSON-RPC error is the
// source's answer; but proxies, which do not know the outcome of the call, send such errors too, so
// without an id the status must show that the call had no effect.
func (w *urlWire) refused(r *http.Request, sent wireMessage, resp *http.Response, text []byte) *http.Response {
	var got wireMessage
	isError := json.Unmarshal(text, &got) == nil && got.Version == "2.0" && got.Method == "" && !jsontext.IsNull(got.Error)
	ours := isError && sameID(got.ID, sent.ID)
	if !ours && r.Header.Get("Mcp-Session-Id") != "" && speaksOfSession(resp.StatusCode, got, text) && (sent.Method == "ping" || w.isForgotten(r)) {
		if call := callIn(r.Context()); call != nil {
			call.forgotten.Store(true)
		}
		resp.StatusCode, resp.Status = http.StatusNotFound, "404 Not Found"
		resp.Body = http.NoBody
		return resp
	}
	anonymous := isError && jsontext.IsNull(got.ID) && resp.StatusCode < 500 &&
		!slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, resp.StatusCode)
	if ours || anonymous {
		return answerWith(resp, answer(sent.ID, got.Error))
	}
	return answerWith(resp, failure(sent.ID, unansweredCode, "calling a tool: %s", resp.Status))
}

// sessionWords match messages of servers about an unknown session.
var sessionWords = regexp.MustCompile(`(?i)(no|no valid|invalid|unknown|missing|expired) (mcp[- ])?session|session([- ]id)?( header)?( is| was| has)? (not found|unknown|invalid|expired|missing|required|not valid|terminated)|(server|session|transport)( is)? not (yet )?initialized`)

// speaksOfSession reports whether a response seems to say that the session is unknown: by 404, as
// MCP requires, or, as many do, by 400 and a text to that effect ("No valid session ID provided",
// "Server not initialized"). An error with an id answers its request, and says nothing about the
// session.
func speaksOfSession(status int, m wireMessage, text []byte) bool {
	said := string(text)
	if !jsontext.IsNull(m.Error) {
		if !jsontext.IsNull(m.ID) {
			return false
		}
		said = errorText(m.Error)
	}
	return status == http.StatusNotFound || status == http.StatusBadRequest && len(said) < 300 && sessionWords.MatchString(said)
}

// isForgotten pings the source to confirm that it does not know the session: the answer to a ping
// is about nothing else. A source that does not know the session has not executed the call. No
// answer confirms nothing.
func (w *urlWire) isForgotten(r *http.Request) bool {
	ctx, cancel := context.WithTimeout(w.cutting, noticeTimeout)
	defer cancel()
	ping := r.Clone(ctx)
	setBody(ping, []byte(`{"jsonrpc":"2.0","id":0,"method":"ping"}`))
	resp, err := w.base.RoundTrip(ping)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	var got wireMessage
	_ = json.Unmarshal(text, &got) // many answer in plain text
	return err == nil && speaksOfSession(resp.StatusCode, got, text)
}

// noStream returns the answer of a server without its own stream.
func noStream(r *http.Request) *http.Response {
	return &http.Response{
		Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, Request: r,
	}
}

// A body is the bounded body of a response.
type body struct {
	io.ReadCloser
	left    int64 // bytes
	release func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the answer is larger than %d bytes, which is the limit", maxMessage)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
