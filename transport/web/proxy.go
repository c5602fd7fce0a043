package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
)

// A proxy or a tunnel on this machine connects as its own user, no matter who sent the request that
// it forwards. Most can be recognized: they add headers, or pass on the Host that the sender used.
// One that does neither looks like a program of the user, so the documentation asks for tokens behind
// any proxy.

// proxyHeaders are the beginnings of the names of headers that proxies and tunnels add, in canonical
// form.
var proxyHeaders = []string{
	"Forwarded", "X-Forward", "Via",
	"X-Real-", "X-Original-", "X-Envoy-",
	"Cf-", "Cdn-", // Cloudflare
	"Ngrok-", "X-Ngrok-",
	"Tailscale-",
}

// sentByProxy returns the name of a header that shows that a request came through a proxy, or "".
func sentByProxy(r *http.Request) string {
	for name := range r.Header {
		// Many proxies have their own header for the sender's address: True-Client-IP, Fly-Client-IP.
		if strings.HasSuffix(name, "-Ip") || slices.ContainsFunc(proxyHeaders, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			return name
		}
	}
	if !IsLoopback(hostOf(r.Host)) { // any port will do: a forwarded port may have another number
		return "Host"
	}
	return ""
}

// notOwner returns why a request without a token is not the user's, or nil.
func notOwner(r *http.Request) error {
	if header := sentByProxy(r); header != "" {
		return errForeign{fmt.Errorf("this request came through a proxy, as its header %s shows, and needs a token, since it is not known who sent it: %s",
			jsontext.Clip(header, 100), howToGetToken)}
	}
	return peerFrom(r.Context()).refused()
}
