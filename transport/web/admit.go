package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/transport/wire"
)

// timely bounds the time of any request's body, also of a refused one: net/http reads the rest of a
// body before it answers.
func (h *Server) timely(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasBody(r) {
			// it is offered by net/http
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.options.BodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// admit bounds the number and size of requests, and reads the body of a request within its time.
func (h *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, ok := h.enter(w, r, isStream(r))
		if !ok {
			return
		}
		defer leave()
		if body, ok := r.Body.(*readBody); ok {
			all := messages(body.data)
			for _, message := range all {
				if answer := wire.RefusalOfID(message); answer != nil {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusBadRequest)
					_, _ = w.Write(answer)
					return
				}
			}

			if more := len(all) - 1; more > 0 {
				leave, ok := h.count(w, r, more)
				if !ok {
					return
				}
				defer leave()
			}
		}
		next.ServeHTTP(w, r)
	})
}

// messages returns the messages of a body: several in a batch, which older versions of MCP allow.
func messages(body []byte) (batch []json.RawMessage) {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) || json.Unmarshal(body, &batch) != nil {
		return []json.RawMessage{body} // the SDK reports what is wrong
	}
	return batch
}

// enter counts a request, reads its body, and waits until it may be served; the caller calls leave in the end. If the
// server is stopping, or the request is one too many, enter refuses it and reports false.
func (h *Server) enter(w http.ResponseWriter, r *http.Request, stream bool) (leave func(), ok bool) {
	counted := func() {}
	if !stream { // streams last until their client ends them
		if counted, ok = h.count(w, r, 1); !ok {
			return nil, false
		}
	}
	if _, known := r.Body.(*readBody); !known && hasBody(r) && h.stopping.Err() == nil {
		body, ok := h.read(w, r) // before it waits: net/http notices only then that a client has left
		if !ok {
			counted()
			return nil, false
		}
		r.Body = newReadBody(body)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.stopping, cancel)()
	release, ok := h.slots.take(ctx, session.CallerOf(ctx).Owner)
	if h.stopping.Err() != nil {
		if ok {
			release()
		}

		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		h.refuse(w, r, http.StatusServiceUnavailable, refusedStopping,
			"the server is stopping: connect again when it is back; workflow sessions are resumed by their session_id")
		ok = false
	}

	if !ok {
		counted()
		return nil, false
	}
	if stream {
		h.streams.Add(1)
		counted = func() { h.streams.Add(-1) }
	}
	return func() {
		release()
		counted()
	}, true
}

// smallBody is the size up to which the bodies of excess requests are read.
const smallBody = 64 << 10

// count adds n to the requests in flight of the server and of the caller until leave is called. If they are too many,
// it refuses the request and reports false; but it lets a request without a call pass uncounted, since that cancels a
// call or answers its question. A call whose request has ended, over SSE or because its client hung up, continues and
// counts. The user has no quota.
func (h *Server) count(w http.ResponseWriter, r *http.Request, n int) (leave func(), ok bool) {
	settings, who := h.LastSettings(), session.CallerOf(r.Context())
	all, own := h.requests.add(who.Identity, n)
	leave = func() { h.requests.add(who.Identity, -n) }
	reason, message := "", ""
	switch {
	case max(all, h.InFlight.Len()+n) > settings.MaxRequests:
		reason = refusedRequests
		message = fmt.Sprintf("%d requests are in flight, as many as are allowed at once: try again in a moment, or "+
			"raise http.max_requests in .deepwork/config.yml", settings.MaxRequests)
	case !who.Owner && max(own, h.InFlight.Of(who.Identity)+n) > settings.Quotas.Requests:
		reason = refusedQuota
		message = fmt.Sprintf("%s has %d requests in flight, as many as one caller may have: wait and try again; the "+
			"person who runs the server can raise http.quotas in their own config", who.Identity,
			settings.Quotas.Requests)
	default:
		return leave, true
	}

	leave()
	if _, known := r.Body.(*readBody); !known && r.ContentLength > 0 && r.ContentLength <= smallBody {
		body, ok := h.read(w, r)
		if !ok {
			return nil, false
		}
		r.Body = newReadBody(body)
		if !hasCall(body) {
			return func() {}, true
		}
	}

	w.Header().Set("Retry-After", "1")
	h.refuse(w, r, http.StatusTooManyRequests, reason, message)
	return nil, false
}

// hasCall reports whether a body is not just an answer of the client or a notification.
func hasCall(body []byte) bool {
	msg, err := jsonrpc.DecodeMessage(body)
	call, ok := msg.(*jsonrpc.Request)
	return err != nil || ok && call.IsCall()
}

// requests counts those in flight, streams not counted.
type requests struct {
	mu       sync.Mutex
	total    int
	byCaller map[string]int // by the identity of their caller
}

// add adds n, and returns the new counts of all callers and of this one.
func (q *requests) add(identity string, n int) (all, own int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byCaller == nil {
		q.byCaller = map[string]int{}
	}
	q.total += n
	if q.byCaller[identity] += n; q.byCaller[identity] == 0 {
		delete(q.byCaller, identity)
	}
	return q.total, q.byCaller[identity]
}

// isStream reports whether the response of a request lasts: a GET and, in the newest version, a
// subscription, for which the SDK checks that the header is correct.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet ||
		r.Header.Get("Mcp-Method") == wire.ListenMethod && r.Header.Get("Mcp-Protocol-Version") >= StatelessSince
}

// A readBody is the body of a request that admit has read. It is not put into the context, which
// lives as long as the MCP session.
type readBody struct {
	bytes.Reader
	data []byte
}

func newReadBody(data []byte) *readBody { return &readBody{*bytes.NewReader(data), data} }

// Close implements io.Closer.
func (*readBody) Close() error { return nil }

// read reads the body of a request. It reports false if it refused the request.
func (h *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	limit := int64(h.LastSettings().MaxBodyBytes)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		// The deadline must not pass during the call: the connection would be considered broken.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, true
	}

	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		h.refuse(w, r, http.StatusRequestEntityTooLarge, refusedBody,
			fmt.Sprintf("the body of the request is larger than %d bytes: give files by their paths, or raise "+
				"http.max_body_bytes in .deepwork/config.yml", limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.refuse(w, r, http.StatusRequestTimeout, refusedSlow,
			fmt.Sprintf("the body of the request did not come within %v", h.options.BodyTimeout))
	default:
		http.Error(w, "the body of the request could not be read", http.StatusBadRequest)
	}

	return nil, false
}

// refuse answers a request that is not served and counts it.
func (h *Server) refuse(w http.ResponseWriter, r *http.Request, status int, reason, message string) {
	http.Error(w, message, status)
	h.countRefused(r, status, reason)
}

// countRefused counts a refused request and logs it.
func (h *Server) countRefused(r *http.Request, status int, reason string) {
	h.refused.Add(r.Context(), 1, metric.WithAttributes(attribute.String("reason", reason)))
	if more, due := h.refusals.due(time.Now()); due {
		h.Logger.LogAttrs(r.Context(), slog.LevelWarn, "request refused",
			slog.String("reason", reason), slog.Int("status", status), slog.String("remote", r.RemoteAddr),
			slog.String("method", r.Method), slog.String("path", jsontext.Clip(r.URL.Path, 100)),
			slog.Int("not_logged", more))
	}
}

// refusals logs one refusal per second and counts the rest, so that refused callers cannot fill a
// disk.
type refusals struct {
	mu   sync.Mutex
	next time.Time
	more int
}

func (r *refusals) due(now time.Time) (more int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		r.more++
		return 0, false
	}
	more = r.more
	r.more = 0
	r.next = now.Add(time.Second)
	return more, true
}
