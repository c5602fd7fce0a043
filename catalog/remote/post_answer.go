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
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

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
	switch err := json.Unmarshal(data, &m); {
	case err == nil:
	case json.Valid(data):
		return nil, &RefusedError{Text: fmt.Sprintf("its answer is not what JSON-RPC asks of one: %v", err)}
	default:
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
