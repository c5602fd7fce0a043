package web

import (
	"fmt"
	"net/http"
	"sync"

	"deepwork/session"
)

// The kinds of usage that quotas bound, in the words of messages.
const (
	useRequests = "requests in flight"
	useStreams  = "streams"
	useSessions = "MCP sessions"
)

// usage counts what each identity has of each kind.
type usage struct {
	mu    sync.Mutex
	count map[use]int
}

type use struct{ identity, kind string }

func (u *usage) add(of use, n int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == nil {
		u.count = map[use]int{}
	}
	u.count[of] += n
	now := u.count[of]
	if now == 0 {
		delete(u.count, of)
	}
	return now
}

// take adds n to what the caller of a request has of a kind, until release is called. more is what it
// has already that is not counted here. If that is over its limit, take refuses the request and
// reports false. The user has no limit.
func (h *Server) take(w http.ResponseWriter, r *http.Request, kind string, n, more, limit int) (release func(), ok bool) {
	who := session.CallerOf(r.Context())
	if who.Owner {
		return func() {}, true
	}
	of := use{who.Identity, kind}
	release = func() { h.usage.add(of, -n) }
	if now := h.usage.add(of, n); now+more > limit {
		release()
		w.Header().Set("Retry-After", "1")
		h.refuse(w, r, http.StatusTooManyRequests, refusedQuota,
			fmt.Sprintf("%s has %d %s, as many as one caller may have: end some, or wait and try again; the person who runs the server can raise http.quotas in their own config", who.Identity, limit, kind))
		return nil, false
	}
	return release, true
}

// takeRequests takes n more requests in flight. A call whose request has ended, over SSE or because
// its client hung up, continues and counts.
func (h *Server) takeRequests(w http.ResponseWriter, r *http.Request, n int) (release func(), ok bool) {
	who := session.CallerOf(r.Context())
	limit := h.LastSettings().Quotas.Requests
	more := max(0, h.InFlight.Of(who.Identity)-h.usage.add(use{who.Identity, useRequests}, 0))
	return h.take(w, r, useRequests, n, more, limit)
}

// takeSession takes a place for a new MCP session while it is being opened. One over SSE has a stream.
func (h *Server) takeSession(w http.ResponseWriter, r *http.Request) (release func(), ok bool) {
	return h.take(w, r, useSessions, 1, h.Sessions.Of(session.CallerOf(r.Context()).Identity), h.LastSettings().Quotas.Sessions)
}
