package transport

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Why a request or a connection is refused, as the label reason of
// deepwork_refused_total.
const (
	refusedHost        = "host"
	refusedOrigin      = "origin"
	refusedToken       = "token"
	refusedSession     = "session"     // unknown, ended, or another identity's
	refusedSessions    = "sessions"    // too many MCP sessions
	refusedStopping    = "stopping"    // the server ends
	refusedRequests    = "requests"    // too many in flight
	refusedConnections = "connections" // too many open
	refusedEvicted     = "evicted"     // idle or half open, and closed for a new one
	refusedBody        = "body"        // larger than allowed
	refusedSlow        = "slow"        // the body did not come in time
)

// metrics are what the server counts as it goes; all else is asked when somebody
// scrapes.
type metrics struct {
	calls   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	refused *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "deepwork_calls_total",
			Help: "Tool calls that ended, by tool and outcome (ok, a status, or the code of the refusal)."}, []string{"tool", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "deepwork_call_duration_seconds",
			Help:    "How long tool calls took, by tool and outcome.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120},
		}, []string{"tool", "outcome"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "deepwork_call_errors_total",
			Help: "Tool calls that were refused (the agent's to correct), broken (ours) or cancelled."}, []string{"tool", "kind"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "deepwork_refused_total",
			Help: "HTTP requests and connections that were refused, by reason."}, []string{"reason"}),
	}
}

// ended counts a call.
func (m *metrics) ended(tool, outcome string, took time.Duration) {
	m.calls.WithLabelValues(tool, outcome).Inc()
	m.took.WithLabelValues(tool, outcome).Observe(took.Seconds())
}

// metricsHandler makes a registry of everything there is to tell, and its handler. It
// is of this server alone: nothing is registered globally.
func (h *HTTPServer) metricsHandler() http.Handler {
	s := h.server
	r := prometheus.NewRegistry()
	r.MustRegister(
		s.metrics.calls, s.metrics.took, s.metrics.errors, s.metrics.refused,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	gauge := func(name, help string, value func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
	gauge("deepwork_calls_in_flight", "Tool calls that run now.", s.inflight.len)
	gauge("deepwork_mcp_connections", "MCP connections, each with a stack of its own; the stateless requests of an identity are one.", s.conns.len)
	gauge("deepwork_http_connections", "Network connections that are open.", h.sockets.len)
	gauge("deepwork_http_requests_in_flight", "HTTP requests that are in flight, streams not counted.", func() int { return int(h.requests.Load()) })
	gauge("deepwork_http_streams", "HTTP responses that stay open for messages from the server.", func() int { return int(h.streams.Load()) })
	if s.sessions != nil {
		r.MustRegister(sessionFigures(s.sessions))
	}
	if s.attempts != nil {
		s.registerAttempts(r, gauge)
	}
	if s.remote != nil {
		runs := s.remote.runs.Stats
		gauge("deepwork_runs_running", "Workflows of other systems that run at their sources now.", func() int { return runs().Running })
		gauge("deepwork_runs_waiting", "Runs that wait for a slot.", func() int { return runs().Waiting })
		gauge("deepwork_workflow_tools", "Workflows that are listed as tools.", func() int { return len(s.remote.listing.Load().tools) })
	}
	if s.reviews != nil {
		gauge("deepwork_reviews_running", "Reviews that run now.", func() int { return s.reviews().Running })
		gauge("deepwork_reviews_waiting", "Reviews that wait for room in the pool.", func() int { return s.reviews().Queued })
		gauge("deepwork_review_pool_size", "How many reviews may run at once; 0 before the first.", func() int { return s.reviews().Capacity })
		for result, value := range map[string]func() int{
			"verdict": func() int { return s.reviews().Done },
			"failed":  func() int { return s.reviews().Failed },
		} {
			r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "deepwork_reviews_total",
				Help:        "Reviews that ended, with a verdict or without one.",
				ConstLabels: prometheus.Labels{"result": result}}, func() float64 { return float64(value()) }))
		}
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}
