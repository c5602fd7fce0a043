package web

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"strings"
)

// prefixHeader is set by proxies that serve a path of theirs and remove it from requests.
const prefixHeader = "X-Forwarded-Prefix"

// A prefix is put before links, so it must not lead to another host.
var validPrefix = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,100}){1,10}$`)

// BasePath returns a path without a slash at its end, and whether it can be the path of a server behind a proxy.
// "/" is "".
func BasePath(path string) (string, bool) {
	path = strings.TrimSuffix(path, "/")
	return path, path == "" || validPrefix.MatchString(path)
}

type prefixKey struct{}

// Link returns the path at which the sender of a request finds a path of this server: behind the prefix of the
// proxy that the request came through, if it has one.
func Link(r *http.Request, path string) string {
	prefix, _ := r.Context().Value(prefixKey{}).(string)
	return prefix + path
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
