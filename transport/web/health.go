package web

import (
	"fmt"
	"net/http"
)

// readyz says whether calls are taken: not while the server stops, nor while the
// config is bad and never was good.
func (h *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if h.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	if h.Check(r.Context()) != nil {
		// What is wrong is in the log and in the replies to calls: anybody can read this.
		http.Error(w, "the configuration is not valid", http.StatusServiceUnavailable)
		return
	}
	healthz(w, r)
}

// healthz says that the process lives.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, "ok")
}
