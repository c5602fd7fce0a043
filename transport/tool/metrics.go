package tool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of a set.
type metrics struct {
	calls  *prometheus.CounterVec
	took   *prometheus.HistogramVec
	errors *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "deepwork_calls_total",
			Help: "Tool calls that ended, by tool and outcome (ok, a status, or the code of the refusal)."}, []string{"tool", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "deepwork_call_duration_seconds",
			Help:    "How long tool calls took, by tool and outcome.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120},
		}, []string{"tool", "outcome"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "deepwork_call_errors_total",
			Help: "Tool calls that were refused (the agent's to correct), broken (ours) or cancelled."}, []string{"tool", "kind"}),
	}
}

// Collectors returns the metrics of the set.
func (s *Set) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.calls, s.metrics.took, s.metrics.errors,
		Gauge("deepwork_calls_in_flight", "Tool calls that run now.", s.InFlight.Len)}
}

// Gauge returns a metric that is read at each scrape.
func Gauge(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

// Counter is like Gauge for a number that only grows.
func Counter[N int | uint64](name, help string, labels prometheus.Labels, value func() N) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) })
}

// ended counts a call.
func (m *metrics) ended(tool, outcome string, took time.Duration) {
	m.calls.WithLabelValues(tool, outcome).Inc()
	m.took.WithLabelValues(tool, outcome).Observe(took.Seconds())
}
