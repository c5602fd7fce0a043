package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
	"deepwork/transport/wire"
)

// timely bounds the time of any request's body, also of a refused one: net/http reads the rest of a
// body before it answers.
func (h *Server) timely(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasBody(r) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.options.BodyTimeout)) // it is offered by net/http
		}
		next.ServeHTTP(w, r)
	})
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// admit bounds the number and size of requests, and reads the body of a request within its time.
func (h *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, ok := h.enter(w, r, isStream(r))
		if !ok {
			return
		}
		defer release()
		if hasBody(r) {
			body, ok := h.read(w, r)
			if !ok {
				return
			}
			n, fault := inspect(body)
			if fault != "" {
				http.Error(w, fault, http.StatusBadRequest)
				return
			}
			r.Body = newReadBody(body)
			if n > 1 {
				limit := int64(h.LastSettings().MaxRequests)
				all := h.requests.Add(int64(n - 1))
				defer h.requests.Add(int64(1 - n))
				if all > limit || int64(h.InFlight.Len()+n) > limit {
					h.refuseBusy(w, r, limit)
					return
				}
				release, ok := h.takeRequests(w, r, n-1)
				if !ok {
					return
				}
				defer release()
			}
		}
		next.ServeHTTP(w, r)
	})
}

// enter counts a request until release is called. If the server is stopping, or the request is one too
// many, enter refuses it and reports false.
func (h *Server) enter(w http.ResponseWriter, r *http.Request, stream bool) (release func(), ok bool) {
	if h.stopping.Load() {
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		h.refuse(w, r, http.StatusServiceUnavailable, refusedStopping,
			"the server is stopping: connect again when it is back; workflow sessions are resumed by their session_id")
		return nil, false
	}
	// Streams last until their client ends them; they are bounded as connections are.
	if stream {
		taken, ok := h.take(w, r, useStreams, 1, 0, h.LastSettings().Quotas.Sessions)
		if !ok {
			return nil, false
		}
		h.streams.Add(1)
		return func() { h.streams.Add(-1); taken() }, true
	}
	limit := int64(h.LastSettings().MaxRequests)
	// A call whose client hung up continues and counts.
	if n := h.requests.Add(1); n > limit || int64(h.InFlight.Len()) >= limit {
		h.requests.Add(-1)
		h.refuseBusy(w, r, limit)
		return nil, false
	}
	taken, ok := h.takeRequests(w, r, 1)
	if !ok {
		h.requests.Add(-1)
		return nil, false
	}
	return func() { taken(); h.requests.Add(-1) }, true
}

func (h *Server) refuseBusy(w http.ResponseWriter, r *http.Request, limit int64) {
	w.Header().Set("Retry-After", "1")
	h.refuse(w, r, http.StatusTooManyRequests, refusedRequests,
		fmt.Sprintf("%d requests are in flight, as many as are allowed at once: try again in a moment, or raise http.max_requests in .deepwork/config.yml", limit))
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
	w.Header().Set("Connection", "close") // do not wait for the rest of the body
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		h.refuse(w, r, http.StatusRequestEntityTooLarge, refusedBody,
			fmt.Sprintf("the body of the request is larger than %d bytes: give files by their paths, or raise http.max_body_bytes in .deepwork/config.yml", limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.refuse(w, r, http.StatusRequestTimeout, refusedSlow, fmt.Sprintf("the body of the request did not come within %v", h.options.BodyTimeout))
	default:
		http.Error(w, "the body of the request could not be read", http.StatusBadRequest)
	}
	return nil, false
}

// refuse answers a request that is not served and counts it.
func (h *Server) refuse(w http.ResponseWriter, r *http.Request, status int, reason, message string) {
	http.Error(w, message, status)
	h.count(r, status, reason)
}

// count counts a refused request and logs it.
func (h *Server) count(r *http.Request, status int, reason string) {
	h.refused.WithLabelValues(reason).Inc()
	if more, due := h.refusals.due(time.Now()); due {
		h.Logger.LogAttrs(r.Context(), slog.LevelWarn, "request refused",
			slog.String("reason", reason), slog.Int("status", status), slog.String("remote", r.RemoteAddr),
			slog.String("method", r.Method), slog.String("path", jsontext.Clip(r.URL.Path, 100)), slog.Int("not_logged", more))
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
	more, r.more, r.next = r.more, 0, now.Add(time.Second)
	return more, true
}

// metaVersion is the protocol version that a request has in its body, or "".
func metaVersion(body []byte) string {
	if !bytes.Contains(body, []byte(mcp.MetaKeyProtocolVersion)) {
		return ""
	}
	var m struct {
		Params struct {
			Meta map[string]any `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &m) != nil {
		return "" // the handler reports what is wrong
	}
	version, _ := m.Params.Meta[mcp.MetaKeyProtocolVersion].(string)
	return version
}
