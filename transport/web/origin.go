package web

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// sites are the accepted Host and Origin headers. A web page that a user visits can make the
// browser send requests here, under a name that its author points to this machine (DNS rebinding):
// Host has that name, Origin the page.
type sites struct {
	loopback bool       // listens on loopback
	host     string     // the value of --host, in lower case
	addr     netip.Addr // the address of the listener
	origin   string     // of the server's own pages, by its address; "" off loopback
}

// IsLoopback reports whether a host name is this machine's own: localhost or a loopback address. Names
// below localhost are not, since they are mostly given to reverse proxies.
func IsLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback() // a zone may be any text
}

// hostOf returns the host of a Host header, without port and brackets, in lower case.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// takesHost reports whether a Host header is accepted: on loopback its names; on another address
// that address or the name that was given; on all addresses (0.0.0.0) any, unless the config lists
// the allowed ones, since callers there have a token, which no page has. Names allowed by the
// config are always accepted.
func (s sites) takesHost(header string, settings config.HTTP) bool {
	host := hostOf(header)
	if slices.Contains(settings.AllowedHosts, host) {
		return true
	}
	switch {
	case s.loopback:
		return IsLoopback(host)
	case s.addr.IsUnspecified() && len(settings.AllowedHosts) == 0:
		return true
	case host == s.host:
		return true
	}

	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap() == s.addr.Unmap()
}

// takesOrigin reports whether pages of an origin may call: those of the server itself, and those that
// the user's config or a flag allows. Other pages of this machine are no exception: anybody's server
// may listen here, also as localhost on another address. Clients other than browsers send no Origin.
func (s sites) takesOrigin(header string, settings config.HTTP) bool {
	return header == "" || header == s.origin || slices.Contains(settings.AllowedOrigins, strings.ToLower(header))
}

// guard refuses requests for other hosts and from pages of other sites (403), and informs browsers
// what pages of allowed sites may do (CORS).
func (h *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		settings := h.Settings(r.Context())
		if h.refusesSite(w, r, settings, h.sites.takesOrigin) {
			return
		}

		if origin := r.Header.Get("Origin"); origin != "" {
			head := w.Header()
			head.Set("Access-Control-Allow-Origin", origin)
			head.Add("Vary", "Origin")
			head.Set("Access-Control-Expose-Headers", "Mcp-Session-Id")
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				head.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
				head.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
				head.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refusesSite refuses a request for another host, or from a page whose origin is not taken.
func (h *Server) refusesSite(
	w http.ResponseWriter, r *http.Request, settings config.HTTP, takes func(string, config.HTTP) bool,
) bool {
	if !h.sites.takesHost(r.Host, settings) {
		h.refuse(w, r, http.StatusForbidden, refusedHost,
			fmt.Sprintf("the Host %q is not served here: use the address the server listens on, or allow the name by "+
				"--allowed-host, or under http.allowed_hosts in your own config", jsontext.Clip(r.Host, 200)))
		return true
	}

	origins := r.Header.Values("Origin")
	if len(origins) > 1 || len(origins) == 1 && !takes(origins[0], settings) {
		h.refuse(w, r, http.StatusForbidden, refusedOrigin,
			fmt.Sprintf("pages of the origin %q may not call: if they should, allow it by --allowed-origin, or under "+
				"http.allowed_origins in your own config", jsontext.Clip(strings.Join(origins, ", "), 200)))
		return true
	}

	return false
}

// prefixHeader is set by proxies that serve a path of theirs and remove it from requests.
const prefixHeader = "X-Forwarded-Prefix"

// A prefix is put before links, so it must not lead to another host.
var validPrefix = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

// BasePath returns a path without a slash at its end, and whether it can be the path of a server behind a proxy.
// "/" is "".
func BasePath(path string) (string, bool) {
	path = strings.TrimSuffix(path, "/")
	return path, path == "" || len(path) <= 1000 && validPrefix.MatchString(path)
}

type prefixKey struct{}

// Link returns the path at which the sender of a request finds a path of this server: behind the prefix of the
// proxy that the request came through, if it has one.
func Link(r *http.Request, path string) string {
	prefix, _ := r.Context().Value(prefixKey{}).(string)
	return prefix + path
}

// Below returns a handler that serves another one below a path of this server.
func Below(path string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below := r.WithContext(context.WithValue(r.Context(), prefixKey{}, Link(r, path)))
		u := *r.URL
		u.Path, u.RawPath = cmp.Or(strings.TrimPrefix(u.Path, path), "/"), strings.TrimPrefix(u.RawPath, path)
		below.URL = &u
		h.ServeHTTP(w, below)
	})
}

// locate removes from the paths of requests a slash at the end and the base path of the server, and notes the
// prefix for Link. A header of the proxy wins over the base path.
func (h *Server) locate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prefix, valid := BasePath(r.Header.Get(prefixHeader))
		if !valid {
			prefix = ""
		}
		prefix = cmp.Or(prefix, h.options.BasePath)
		located := r.WithContext(context.WithValue(r.Context(), prefixKey{}, prefix))
		u := *r.URL
		u.Path, u.RawPath = h.inside(u.Path), h.inside(u.RawPath)
		located.URL = &u
		next.ServeHTTP(w, located)
	})
}

// inside returns a path of a request without what a proxy may have left or added.
func (h *Server) inside(path string) string {
	if base := h.options.BasePath; base != "" && (path == base || strings.HasPrefix(path, base+"/")) {
		path = cmp.Or(strings.TrimPrefix(path, base), "/")
	}
	if len(path) > 1 && path != "/static/" {
		path = cmp.Or(strings.TrimRight(path, "/"), "/")
	}
	return path
}
