package web

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/transport/tool"
)

// The reasons why a request or a connection is refused: values of the label reason of
// deepwork_refused_total.
const (
	refusedHost     = "host"
	refusedOrigin   = "origin"
	refusedToken    = "token"
	refusedPeer     = "peer"     // without a token, and not the user's
	refusedSession  = "session"  // unknown, ended, or another identity's
	refusedSessions = "sessions" // too many MCP sessions
	refusedStopping = "stopping" // the server ends
	refusedRequests = "requests" // too many in flight
	refusedQuota    = "quota"    // more than one identity may have
	refusedBody     = "body"     // larger than allowed
	refusedSlow     = "slow"     // the body did not arrive in time
)

// metrics returns the handler of /metrics. It has its own registry: nothing is registered globally.
func (h *Server) metrics() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(h.Metrics...)
	r.MustRegister(
		h.refused,
		tool.Gauge("deepwork_mcp_connections", "MCP connections, each with its own stack, and requests without a connection.", h.Sessions.Len),
		tool.Gauge("deepwork_http_connections", "Network connections that are open.", func() int { return h.Stats().Connections }),
		tool.Gauge("deepwork_http_requests_in_flight", "HTTP requests that are in flight, streams not counted.", func() int { return h.Stats().Requests }),
		tool.Gauge("deepwork_http_streams", "HTTP responses that stay open for messages from the server.", func() int { return h.Stats().Streams }),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(h.Logger.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}

// readyz reports whether calls are accepted: not while the server stops, while the config was never
// good, while a store does not answer, or while a fault of the token file keeps all its callers out.
func (h *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if h.stopping.Err() != nil {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	if err := h.Check(r.Context()); err != nil {
		// Details are in the log and in the replies to calls, since anybody can read this.
		why := "the configuration is not valid"
		if session.CodeOf(err) == store.CodeUnavailable {
			why = "the store does not answer"
		}
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	if file := h.access.file; file != nil {
		if _, closed := file.current(); closed {
			http.Error(w, "the token file is not valid", http.StatusServiceUnavailable)
			return
		}
	}
	healthz(w, r)
}

// healthz reports that the process is alive.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, "ok")
}

// Quiet returns the logger of the SDK. Its messages are for debugging, and its errors are mostly
// mistakes of clients.
func Quiet(logger *slog.Logger) *slog.Logger { return slog.New(quietHandler{logger.Handler()}) }

type quietHandler struct{ slog.Handler }

func quietLevel(l slog.Level) slog.Level {
	if l >= slog.LevelError {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (h quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, quietLevel(l))
}

func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quietLevel(r.Level)
	return h.Handler.Handle(ctx, r)
}
