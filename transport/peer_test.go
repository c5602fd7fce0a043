package transport

import (
	"strings"
	"testing"

	"deepwork/session"
	"deepwork/transport/web"
)

// Where the system does not tell whose a connection is, the user has a token, which is made when the
// server starts and makes its bearer the user.
func TestTheUsersTokenWherePeersAreUnknown(t *testing.T) {
	got := make(chan session.Caller, 1)
	made := false
	s, _ := fakeServer(t, callerAgent(got), withHTTP(nil), func(e *engines) {
		e.token = func(make bool) (string, error) { made = made || make; return "made", nil }
	})
	for _, over := range []string{web.HTTP, web.SSE} {
		made = false
		h := overHTTP(t, s, web.Options{Transport: over, UnknownPeers: true})
		if !made {
			t.Error("no token was made at the start")
		}
		for _, url := range []string{h.URL(), at(h, "/metrics")} {
			for token, says := range map[string]string{"": "deepwork token show", "wrong": "not known here"} {
				if r := send(t, httpClient(t, token), "GET", url, ""); r.status != 401 || token == "" && !strings.Contains(r.body, says) {
					t.Errorf("%s with %q: %+v", url, token, r)
				}
			}
		}
		if r := send(t, httpClient(t, "made"), "GET", at(h, "/metrics"), ""); r.status != 200 {
			t.Errorf("%+v", r)
		}
		callTool(t, dial(t, h, stateful, "made"), "start_workflow", anyStart)
		if c := <-got; c != session.LocalCaller(over) {
			t.Errorf("the caller is %+v", c)
		}
	}
}
