package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/transport/tool"
	"deepwork/transport/wire"
)

// sessionsPerConnection is the allowed number of MCP sessions per allowed network connection: a
// session needs no connection between calls, and some clients abandon theirs.
const sessionsPerConnection = 2

// streamable is streamable HTTP. The newest protocol version has no sessions, older ones do, and
// the SDK needs a handler for each.
func (h *Server) streamable() http.Handler {
	options := mcp.StreamableHTTPOptions{
		Logger:                     Quiet(h.Logger),
		MaxRequestBodyBytes:        -1,   // admit has read it, within its limit
		DisableLocalhostProtection: true, // guard has checked it, and knows what the config allows
	}
	server := func(*http.Request) *mcp.Server { return h.MCP }
	stateful := mcp.NewStreamableHTTPHandler(server, &options)
	options.Stateless = true
	options.PropagateRequestCancellation = true // a client that hangs up gets no reply elsewhere
	stateless := mcp.NewStreamableHTTPHandler(server, &options)

	var standing standalone
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isStateless(r) {
			decodeName(r.Header)
			if err := wrongTask(r); err != nil {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write(err)
				return
			}
			stateless.ServeHTTP(w, r.WithContext(WithStateless(r.Context())))
			return
		}

		if id := r.Header.Get("Mcp-Session-Id"); id != "" {
			// Another caller's session is as unknown as one that has ended: the client must open
			// its own.
			if !h.Sessions.Known(id, session.CallerOf(r.Context())) {
				h.refuse(w, r, http.StatusNotFound, refusedSession,
					"this MCP session is not known: it has ended, or was idle for too long. Initialize a new one; "+
						"workflow sessions are resumed by their session_id")
				return
			}

			switch r.Method {
			case http.MethodDelete:
				h.Sessions.Cut(id) // it must not wait for a review
			case http.MethodGet:
				if r.Header.Get("Last-Event-Id") == "" { // otherwise it is refused
					var release func()
					r, release = standing.take(id, r)
					defer release()
				}
			}
		} else if limit := sessionsPerConnection * h.LastSettings().MaxConnections; h.Sessions.Len() >= limit {
			w.Header().Set("Retry-After", "60")
			h.refuse(w, r, http.StatusServiceUnavailable, refusedSessions,
				fmt.Sprintf("%d MCP sessions are open, as many as are allowed: end those that are not used (DELETE), "+
					"or raise http.max_connections or lower http.idle_timeout in .deepwork/config.yml", limit))
			return
		}
		stateful.ServeHTTP(w, r)
	})
}

// decodeName decodes Mcp-Name, which the SDK compares with the body as it is: clients encode names that are not ASCII.
func decodeName(h http.Header) {
	const prefix, suffix = "=?base64?", "?="
	name := h.Get("Mcp-Name")
	if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name[len(prefix):], suffix) {
		return
	}
	if decoded, err := base64.StdEncoding.DecodeString(name[len(prefix) : len(name)-len(suffix)]); err == nil {
		h.Set("Mcp-Name", string(decoded))
	}
}

// wrongTask returns the answer to a request of tasks whose header Mcp-Name names another task than its body, nil to any
// other. The SDK compares the headers of its own methods only.
func wrongTask(r *http.Request) []byte {
	body, ok := r.Body.(*readBody)
	method := r.Header.Get("Mcp-Method")
	if !ok || method != "tasks/get" && method != "tasks/update" && method != "tasks/cancel" {
		return nil
	}

	var m struct {
		ID     json.RawMessage
		Params struct{ TaskID string }
	}
	name := r.Header.Get("Mcp-Name")
	if json.Unmarshal(body.data, &m) != nil || m.Params.TaskID == name {
		return nil // the SDK reports what is wrong
	}
	return wire.Refusal(string(m.ID), mcp.CodeHeaderMismatch,
		fmt.Sprintf("the header Mcp-Name is %q and taskId is %q: they must be the same",
			jsontext.Clip(name, 100), jsontext.Clip(m.Params.TaskID, 100)))
}

// StatelessSince is the first protocol version without sessions.
const StatelessSince = tool.Newest

// isStateless reports whether a request belongs to no MCP session, by its protocol version, which
// compares like a date. Only the header is read: the stateless handler answers a request that has
// the version in its body only with an error about the header.
func isStateless(r *http.Request) bool {
	if version := r.Header.Get("Mcp-Protocol-Version"); version != "" {
		return version >= StatelessSince
	}
	if r.Header.Get("Mcp-Session-Id") != "" {
		return false
	}

	body, ok := r.Body.(*readBody)
	return ok && bytes.Contains(body.data, []byte(mcp.MetaKeyProtocolVersion)) // older versions do not have it
}

// standalone holds the streams that clients keep open for messages from the server, one per MCP
// session. A client that lost its network for a moment opens another before the server knows that
// the first is dead; the SDK would refuse it, and clients would then give up the session. The
// newest wins.
type standalone struct{ open sync.Map } // of *standaloneStream, by the session's id

type standaloneStream struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when its request and those before it have ended
}

// take ends the current stream of a session, waits for that, and returns the request to serve; the
// caller calls release when it is served. A request that ends while it waits is returned unchanged.
func (s *standalone) take(id string, r *http.Request) (_ *http.Request, release func()) {
	ctx, cancel := context.WithCancel(r.Context())
	mine := &standaloneStream{cancel, make(chan struct{})}
	before := make(chan struct{})
	if stream, found := s.open.Swap(id, mine); found {
		before = stream.(*standaloneStream).done
		stream.(*standaloneStream).cancel()
	} else {
		close(before)
	}
	select {
	case <-before:
	case <-ctx.Done(): // the client left, or opened another one
	}

	return r.WithContext(ctx), func() {
		cancel()
		<-before
		s.open.CompareAndDelete(id, mine)
		close(mine.done)
	}
}
