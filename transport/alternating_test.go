package transport

import (
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// With DEEPWORK_TEST_ALTERNATING, each server of a project that is served over HTTP has a second one of its store beside
// it, and requests of the newest protocol go to the two by turns, as by a proxy that knows nothing of MCP. Servers over
// fake agents have no store: their tests are about one process.
var alternating = os.Getenv("DEEPWORK_TEST_ALTERNATING") != ""

var (
	optionsOf sync.Map // *Server -> Options, of those that made has made
	twins     sync.Map // the address of a server -> that of the second
	turns     atomic.Int64
)

// besides serves a second server of the store of s, which is served at h.
func besides(t testing.TB, s *Server, h *web.Server, o web.Options) {
	t.Helper()
	of, is := optionsOf.Load(s)
	if !is || o.Transport == web.SSE {
		return
	}
	second := made(t, of.(Options))
	if s.remote != nil && len(s.remote.Listing(t.Context()).From.Sources) > 0 {
		second.connected(t)
	}
	twins.Store(address(h), address(servedAt(t, second, o)))
}

// byTurns sends a request of the newest protocol to one of two servers.
func byTurns(r *http.Request) *http.Request {
	second, is := twins.Load(r.URL.Host)
	if !is || r.Header.Get("Mcp-Protocol-Version") != tool.Newest || turns.Add(1)%2 == 0 {
		return r
	}
	to := r.Clone(r.Context())
	to.URL.Host = second.(string)
	if to.Host == r.URL.Host {
		to.Host = ""
	}
	return to
}
