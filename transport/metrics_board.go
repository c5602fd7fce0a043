package transport

import "github.com/prometheus/client_golang/prometheus"

// registerAttempts tells what this server does for the task board.
func (s *Server) registerAttempts(r *prometheus.Registry, gauge func(name, help string, value func() int)) {
	gauge("deepwork_attempts_running", "Runs of agents that this server sees to now, starting ones included.", func() int { return s.attempts().Running })
	gauge("deepwork_attempts_awake", "Attempts whose actor is in memory.", func() int { return s.attempts().Running })
	counter := func(name, help string, labels prometheus.Labels, value func() uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value()) }))
	}
	counter("deepwork_attempts_started_total", "Runs of agents that began.", nil, func() uint64 { return s.attempts().Started })
	for state, value := range map[string]func() uint64{
		"completed":   func() uint64 { return s.attempts().Completed },
		"failed":      func() uint64 { return s.attempts().Failed },
		"stopped":     func() uint64 { return s.attempts().Stopped },
		"interrupted": func() uint64 { return s.attempts().Interrupted },
	} {
		counter("deepwork_attempts_ended_total", "Runs of agents that ended, by how they did.", prometheus.Labels{"state": state}, value)
	}
}
