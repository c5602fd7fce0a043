package web

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionsPerConnection is how many MCP sessions there may be for each network
// connection that there may be: a session needs none between its calls, and some
// clients leave theirs behind.
const sessionsPerConnection = 2

// streamable is streamable HTTP. The newest protocol version has no sessions, the
// older ones do, and the SDK wants a handler for each.
func (h *Server) streamable() http.Handler {
	options := mcp.StreamableHTTPOptions{
		Logger:                     Quiet(h.Logger),
		MaxRequestBodyBytes:        -1,   // admit has read it, within its limit
		DisableLocalhostProtection: true, // guard has looked, and knows what the config allows
	}
	server := func(*http.Request) *mcp.Server { return h.MCP }
	stateful := mcp.NewStreamableHTTPHandler(server, &options)
	options.Stateless = true
	options.PropagateRequestCancellation = true // a client that hangs up gets no reply elsewhere
	stateless := mcp.NewStreamableHTTPHandler(server, &options)
	var standing standalone
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := CallerOf(r.Context())
		if isStateless(r) {
			who.Stateless = true
			r = r.WithContext(WithCaller(r.Context(), who))
			stateless.ServeHTTP(w, r)
			return
		}
		if id := r.Header.Get("Mcp-Session-Id"); id != "" {
			// Another caller's session is as unknown as one that has ended: the
			// client is to begin one of its own.
			if !h.Sessions.Known(id, who.Identity) {
				h.refuse(w, r, http.StatusNotFound, refusedSession,
					"this MCP session is not known: it has ended, or was idle for too long. Initialize a new one; workflow sessions are resumed by their session_id")
				return
			}
			switch r.Method {
			case http.MethodDelete:
				h.Sessions.Cut(id) // it is not to wait for a review
			case http.MethodGet:
				if r.Header.Get("Last-Event-Id") == "" { // else it is refused
					var release func()
					r, release = standing.take(id, r)
					defer release()
				}
			}
		} else if limit := sessionsPerConnection * h.LastSettings().MaxConnections; h.Sessions.Len() >= limit {
			w.Header().Set("Retry-After", "60")
			h.refuse(w, r, http.StatusServiceUnavailable, refusedSessions,
				fmt.Sprintf("%d MCP sessions are open, as many as are allowed: end those that are not used (DELETE), or raise http.max_connections or lower http.idle_timeout in .deepwork/config.yml", limit))
			return
		}
		stateful.ServeHTTP(w, r)
	})
}

// StatelessSince is the first protocol version without sessions.
const StatelessSince = "2026-07-28"

// isStateless tells by the protocol version, which compares like a date, whether
// a request belongs to no MCP session. It is in a header; the stateless handler answers
// a request that has it in its body only that the header is missing.
func isStateless(r *http.Request) bool {
	if version := r.Header.Get("Mcp-Protocol-Version"); version != "" {
		return version >= StatelessSince
	}
	if r.Header.Get("Mcp-Session-Id") != "" {
		return false
	}
	body, ok := r.Body.(*readBody)
	return ok && metaVersion(body.data) >= StatelessSince
}

// standalone holds the streams that clients keep open for messages from the server, one
// for each MCP session. A client whose network was gone for a moment opens another while
// the server does not know yet that the first is dead; the SDK would refuse that one, and
// clients then give up the session. The newest wins.
type standalone struct{ open sync.Map } // of *standaloneStream, by the session's id

type standaloneStream struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when its request, and those before it, are over
}

// take ends the stream that a session has, waits until that is over, and returns the
// request to serve; release is to be called when it is served. A request that ends
// before its turn is returned as it is.
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
	case <-ctx.Done(): // its client has left, or opened yet another
	}
	return r.WithContext(ctx), func() {
		cancel()
		<-before
		s.open.CompareAndDelete(id, mine)
		close(mine.done)
	}
}
