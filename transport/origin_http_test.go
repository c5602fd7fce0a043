package transport

import (
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// A page that was rebound to this server is refused, as is any page that is not
// allowed; a page that is, by the config or by a flag, may do what a client with a token does.
func TestGuard(t *testing.T) {
	for _, over := range []string{web.HTTP, web.SSE} {
		t.Run(over, func(t *testing.T) {
			hosts, origins := []string{"deep.example.com"}, []string{"https://app.example.com"}
			file, token := tokens(t, "ann")
			o, byConfig := web.Options{Transport: over, TokenFile: file}, over == web.HTTP
			if !byConfig {
				o.AllowedHosts, o.AllowedOrigins = hosts, origins
			}
			s, _ := fakeServer(t, nil, withHTTP(func(c *config.HTTP) {
				if byConfig {
					c.AllowedHosts, c.AllowedOrigins = hosts, origins
				}
			}))
			h := overHTTP(t, s, o)
			c := httpClient(t, token[0])
			for _, url := range []string{h.URL(), at(h, "/metrics")} {
				for _, headers := range [][]string{{"Host: evil.example.com"}, {"Origin: https://evil.example.com"}, {"Origin: null"}, {"Origin: http://localhost:3000"}, {"Origin: http://localhost"}, {"Host: evil.example.com", "Origin: http://evil.example.com"}} {
					r := send(t, c, "GET", url, "", headers...)
					if r.status != 403 || r.header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(r.body, "http.allowed_") {
						t.Errorf("%s %v: %+v", url, headers, r)
					}
				}
			}
			if r := send(t, c, "GET", at(h, "/metrics"), "", "Origin: http://"+address(h)); r.status != 200 {
				t.Errorf("from its own page: %+v", r)
			}
			if r := send(t, c, "GET", at(h, "/metrics"), "", "Host: deep.example.com:80", "Origin: https://app.example.com"); r.status != 200 ||
				r.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || r.header.Get("Access-Control-Expose-Headers") != "Mcp-Session-Id" {
				t.Errorf("%+v", r)
			}
			r := send(t, c, "OPTIONS", h.URL(), "", "Origin: https://app.example.com", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,mcp-session-id")
			if r.status != 204 || !strings.Contains(r.header.Get("Access-Control-Allow-Methods"), "DELETE") || r.header.Get("Access-Control-Allow-Headers") != "authorization,mcp-session-id" {
				t.Errorf("preflight: %+v", r)
			}
			if r := send(t, c, "OPTIONS", h.URL(), "", "Origin: https://evil.example.com", "Access-Control-Request-Method: POST"); r.status != 403 {
				t.Errorf("preflight of another: %+v", r)
			}
			if r := send(t, c, "GET", at(h, "/nothing"), ""); r.status != 404 {
				t.Errorf("%+v", r)
			}
		})
	}
}
