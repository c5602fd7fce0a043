package transport

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// Without a token, nothing that came through a proxy is served as the user, at any path but those
// that say that the server lives; what programs of this machine send is.
func TestProxiedRequestsNeedAToken(t *testing.T) {
	if !web.CanKnowPeers() {
		t.Skip("here every request needs a token")
	}
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			s, _ := fakeServer(t, nil, withHTTP(func(c *config.HTTP) { c.AllowedHosts = []string{"deep.example.com"} }))
			h := overHTTP(t, s, web.Options{Transport: over})
			c, withToken := httpClient(t, ""), httpClient(t, usersToken)
			c.Timeout = patience // a stream that is served does not end
			for _, header := range []string{"Forwarded: for=203.0.113.7", "Via: 1.1 x", "X-Forwarded-For: 127.0.0.1", "X-Real-IP: 203.0.113.7", "CF-Ray: 1", "Ngrok-Trace-Id: 1",
				"Tailscale-User-Login: ann", "Host: deep.example.com", "Host: deep.example.com:8000"} {
				name, _, _ := strings.Cut(header, ":")
				for _, request := range []struct{ method, url string }{{"GET", h.URL()}, {"POST", h.URL()}, {"GET", at(h, "/metrics")}} {
					r := send(t, c, request.method, request.url, initialize, header)
					if r.status != 401 || !strings.Contains(strings.ToLower(r.body), "its header "+strings.ToLower(name)+" shows") || !strings.Contains(r.body, "deepwork token new") {
						t.Errorf("%v with %s: %+v", request, header, r)
					}
					if r := send(t, httpClient(t, "wrong"), request.method, request.url, initialize, header); r.status != 401 {
						t.Errorf("%v with %s and a wrong token: %+v", request, header, r)
					}
				}
				if r := send(t, withToken, "GET", at(h, "/metrics"), "", header); r.status != 200 {
					t.Errorf("with %s and the user's token: %+v", header, r)
				}
				if r := send(t, c, "GET", at(h, "/healthz"), "", header); r.status != 200 {
					t.Errorf("/healthz with %s: %+v", header, r)
				}
			}
			for _, host := range []string{address(h), "localhost", "LOCALHOST:1", "127.1.2.3:9", "[::1]:8000", "[::ffff:127.0.0.1]"} {
				if r := send(t, c, "GET", at(h, "/metrics"), "", "Host: "+host); r.status != 200 {
					t.Errorf("from this machine as %s: %+v", host, r)
				}
			}
			works(t, h)
		})
	}
}

// Behind a proxy, a client with a token works.
func TestClientBehindAProxy(t *testing.T) {
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			s, f := fakeServer(t, nil, withHTTP(nil))
			file, token := tokens(t, "ann")
			h := overHTTP(t, s, web.Options{Transport: over, TokenFile: file, AllowedHosts: []string{"deep.example.com"}})
			behind := &url.URL{Scheme: "http", Host: address(h)}
			front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(behind)
				r.SetXForwarded()
				r.Out.Host = "deep.example.com" // as the client has called it
			}})
			defer front.Close()
			url := strings.Replace(h.URL(), behind.String(), front.URL, 1)
			if r := send(t, http.DefaultClient, "GET", url, ""); r.status != 401 {
				t.Errorf("without a token: %+v", r)
			}
			cs := dialAt(t, url, stateful, httpClient(t, token[0]))
			callTool(t, cs, "get_workflows", `{}`)
			cs.Close() // the front waits for its streams
			if got := f.agents[0].identity; got != "ann" {
				t.Errorf("the caller is %q", got)
			}
		})
	}
}
