package web

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"

	"deepwork/catalog/config"
)

// guardPages refuses requests for other hosts and from other sites, as guard does, but lets no other site
// read pages. On loopback it leads a browser from other names of this machine, such as localhost, to the
// address that is listened on: another user's server may have those.
func (h *Server) guardPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		settings := h.Settings(r.Context())
		named := slices.Contains(settings.AllowedHosts, hostOf(r.Host))
		own := func(origin string, settings config.HTTP) bool {
			u, err := url.Parse(origin)
			return h.sites.takesOrigin(origin, settings) || (named || !h.sites.loopback) && err == nil && u.Host == r.Host
		}
		if h.refusesSite(w, r, settings, own) {
			return
		}
		here, _ := url.Parse(h.sites.origin) // made by Listen
		_, port, _ := net.SplitHostPort(r.Host)
		if h.sites.loopback && !named && r.Method == http.MethodGet && r.Host != here.Host && port == here.Port() {
			http.Redirect(w, r, h.sites.origin+r.URL.RequestURI(), http.StatusTemporaryRedirect)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admitPages reads the body of a request within its time, and ends what lasts when the server ends.
func (h *Server) admitPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasBody(r) {
			body, ok := h.read(w, r)
			if !ok {
				return
			}
			r.Body = newReadBody(body)
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(h.ending, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
