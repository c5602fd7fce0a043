package web

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/tool"
)

// What a proxy adds or passes on shows that a request is not of this machine; what clients and
// browsers send here does not.
func TestRequestsThroughProxies(t *testing.T) {
	for _, name := range []string{
		"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix",
		"X-Forwarded-Client-Cert", "X-Forwarded", "Forwarded-For", "X-Forward-For", "X-Real-IP", "X-Real-Port", "X-Original-Host", "X-Original-URL", "X-Original-Forwarded-For",
		"CF-Connecting-IP", "CF-Connecting-IPv6", "CF-Ray", "CF-IPCountry", "CF-Visitor", "CF-Warp-Tag-ID", "Cf-Access-Jwt-Assertion", "CDN-Loop",
		"Ngrok-Trace-Id", "Ngrok-Auth-User-Email", "ngrok-skip-browser-warning", "X-Ngrok-Host",
		"Tailscale-User-Login", "Tailscale-User-Name", "Tailscale-Funnel-Request", "Tailscale-Headers-Info",
		"True-Client-IP", "X-Client-IP", "Client-IP", "X-Cluster-Client-IP", "Fly-Client-IP", "Fastly-Client-IP", "DO-Connecting-IP", "WL-Proxy-Client-IP", "X-Envoy-External-Address",
	} {
		for _, value := range []string{"127.0.0.1", ""} {
			r := httptest.NewRequest("GET", "http://127.0.0.1:8000/", nil)
			r.Header.Set(name, value)
			if got := sentByProxy(r); !strings.EqualFold(got, name) {
				t.Errorf("%s: %q: the proxy is recognized by %q", name, value, got)
			}
		}
	}
	for _, name := range []string{
		"Accept", "Accept-Language", "Authorization", "Cache-Control", "Connection", "Content-Length", "Content-Type", "Cookie", "DNT", "HX-Current-URL", "HX-Request",
		"Last-Event-ID", "Mcp-Method", "Mcp-Protocol-Version", "Mcp-Session-Id", "Origin", "Pragma", "Priority", "Referer", "Sec-Ch-Ua", "Sec-Fetch-Site", "Sec-GPC",
		"Traceparent", "Upgrade-Insecure-Requests", "User-Agent", "X-Client-Version", "X-Request-Id", "X-Requested-With",
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1:8000/", nil)
		r.Header.Set(name, "x")
		if got := sentByProxy(r); got != "" {
			t.Errorf("%s: a proxy is recognized by %q", name, got)
		}
	}
	for hosts, want := range map[string]string{
		"localhost LOCALHOST localhost. localhost:1 127.0.0.1 127.0.0.1:8000 127.1.2.3:65535 [::1] [::1]:443 ::1 [::ffff:127.0.0.1]:80":                                                                    "",
		"deep.example.com deep.example.com:8000 x.localhost x.localhost:8000 localhost.example.com 127.0.0.1. 127.0.0.1.nip.io 10.0.0.7:8000 0.0.0.0:8000 [::] [::ffff:10.0.0.7] [::1%25lo] localhost:1:2": "Host",
	} {
		for host := range strings.FieldsSeq(hosts + " ") {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = host
			if got := sentByProxy(r); got != want {
				t.Errorf("Host %s: the proxy is recognized by %q, want %q", host, got, want)
			}
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	if r.Host = ""; sentByProxy(r) == "" {
		t.Error("a request without Host is the user's")
	}
}

// Without tokens the start says who may call, and refuses --allowed-host.
func TestStartWithoutTokens(t *testing.T) {
	hosts := []string{"deep.example.com"}
	own := config.HTTP{Tokens: []config.Token{{Name: "ann", SHA256: strings.Repeat("0", 64)}}}
	for _, c := range []struct {
		name        string
		o           Options
		settings    config.HTTP
		says, fails string
	}{
		{"no tokens", Options{}, config.HTTP{}, "only your own programs on this machine may call; behind a proxy, tokens are needed", ""},
		{"tokens", Options{}, own, "", ""},
		{"a host without tokens", Options{AllowedHosts: hosts}, config.HTTP{}, "", "Run deepwork token new NAME"},
		{"a host where peers are unknown", Options{AllowedHosts: hosts, UnknownPeers: true}, config.HTTP{}, "", "leave out --allowed-host"},
		{"a host and tokens", Options{AllowedHosts: hosts}, own, "", ""},
		{"a host of the config", Options{}, config.HTTP{AllowedHosts: hosts}, "only your own programs", ""}, // it is there for all servers
	} {
		if !CanKnowPeers() && c.says != "" {
			continue
		}
		var log bytes.Buffer
		h, err := Listen(t.Context(), Backend{Logger: slog.New(slog.NewTextHandler(&log, nil)), Sessions: noSessions{}, InFlight: new(tool.InFlight), Local: session.LocalCaller(""),
			LastSettings: func() config.HTTP { return c.settings }, Settings: func(context.Context) config.HTTP { return c.settings },
			Token: func(bool) (string, error) { return "token", nil }}, c.o)
		if err == nil {
			testkit.Must(t, h.Close())
		}
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) || !strings.Contains(log.String(), c.says) || c.says == "" && strings.Contains(log.String(), "may call") {
			t.Errorf("%s: %v; the log says %s", c.name, err, log.String())
		}
	}
}
