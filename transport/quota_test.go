package transport

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// One identity has no more requests in flight than its quota, over each transport; another notices
// nothing, and neither does the user without tokens.
func TestRequestQuota(t *testing.T) {
	const quota = 2
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			b := newBlocked()
			s, _ := fakeServer(t, func(a *fakeAgent) {
				if a.identity == "ann" {
					b.agent(a)
				}
			}, withHTTP(func(c *config.HTTP) { c.Quotas.Requests = quota }))
			file, token := tokens(t, "ann", "bob")
			h := overHTTP(t, s, web.Options{Transport: over, TokenFile: file})
			ann, bob := dial(t, h, stateful, token[0]), dial(t, h, stateful, token[1])
			var calls sync.WaitGroup
			for range quota {
				calls.Go(func() { callTool(t, ann, "finished_step", `{"outputs":{}}`) })
				<-b.began
			}
			url := h.URL()
			if over == web.SSE {
				url += "?sessionid=any" // it is refused before that is looked at
			}
			if r := send(t, httpClient(t, token[0]), "POST", url, `{"jsonrpc":"2.0","id":9,"method":"ping"}`); r.status != 429 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, "http.quotas") {
				t.Errorf("beyond it: %+v", r)
			}
			for range 3 * quota {
				callTool(t, bob, "finished_step", `{"outputs":{}}`)
			}
			if r := send(t, httpClient(t, token[1]), "GET", at(h, "/metrics"), ""); !strings.Contains(r.body, `deepwork_refused_total{reason="quota"} 1`) {
				t.Errorf("it is not counted: %d", r.status)
			}
			close(b.free)
			calls.Wait()
			callTool(t, ann, "get_workflows", `{}`)
		})
	}
}

// A token is replaced while its caller works, without an interruption: neither a call fails nor does
// the MCP session change, over each transport.
func TestTokenIsReplacedWithoutAnInterruption(t *testing.T) {
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			s, f := fakeServer(t, nil, withHTTP(nil))
			file, old := tokens(t, "ann")
			h := overHTTP(t, s, web.Options{Transport: over, TokenFile: file})
			var current atomic.Value // the token that the client sends
			current.Store(old[0])
			rotating := httpClient(t, "")
			plain := rotating.Transport.(bearer).RoundTripper
			rotating.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				return bearer{plain, current.Load().(string)}.RoundTrip(r)
			})
			cs := dialWith(t, h, stateful, rotating)
			first, err := os.ReadFile(file)
			must(t, err)
			put := func(text string) {
				t.Helper()
				temp := file + ".new"
				must(t, os.WriteFile(temp, []byte(text), 0o600))
				must(t, os.Rename(temp, file))
			}
			token, next, err := web.NewToken(config.Token{Name: "ann"})
			must(t, err)
			put(string(first) + "\n" + next)
			callTool(t, cs, "get_workflows", `{}`)
			current.Store(token)
			callTool(t, cs, "get_workflows", `{}`)
			put(next)
			callTool(t, cs, "get_workflows", `{}`)
			if r := send(t, httpClient(t, old[0]), "GET", at(h, "/metrics"), ""); r.status != 401 {
				t.Errorf("the old token: %+v", r)
			}
			if len(f.agents) != 1 {
				t.Errorf("%d MCP sessions", len(f.agents))
			}
			if over == web.SSE {
				return
			}
			// Other rights make another session, which the client opens itself.
			token, next, err = web.NewToken(config.Token{Name: "ann", Rights: config.RightAgents})
			must(t, err)
			put(next)
			r := send(t, httpClient(t, token), "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, fmt.Sprintf("Mcp-Session-Id: %s", cs.ID()))
			if r.status != 404 {
				t.Errorf("with other rights: %+v", r)
			}
			waitFor(t, "its end", func() bool { return s.conns.Len() == 0 })
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
