package transport

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/gate"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/machine"
	"deepwork/session/workflow"
)

// metricsFor opens the metrics of a config.
func metricsFor(to config.Telemetry, version string, logger *slog.Logger) *telemetry.Metrics {
	return telemetry.OpenMetrics(telemetry.Options{
		Endpoint: to.OTLP,
		Service:  ServerName,
		Version:  version,
		Logger:   logger,
	})
}

// MeasureBoard sends the metrics of a board that was opened without a server. stop sends the last ones within a second.
func MeasureBoard(ctx context.Context, engine *attempt.Engine, version string) (stop func()) {
	settings := config.Open(engine.Root())          // the user's own counts even if the project's has an error
	settings.Logger = slog.New(slog.DiscardHandler) // faults of the config are reported where it is used
	m := metricsFor(settings.Telemetry(ctx), version, engine.Log)
	attemptMetrics(m, engine.Stats)
	return func() { _ = m.Close(context.WithoutCancel(ctx)) }
}

// A tally adds up what a server and those of the runs that it leads count: each has sessions and reviews of its own.
type tally struct {
	wrote func(took time.Duration) // observes how long a store took

	mu       sync.Mutex
	servers  map[*opening]bool // those that are open
	sessions workflow.Stats    // of those that were closed
	reviews  gate.Stats
}

func newTally(m *telemetry.Metrics) *tally {
	t := &tally{wrote: storeMetrics(m), servers: map[*opening]bool{}}
	m.Gauge("deepwork_sessions_active", "Workflow sessions that this server has in hand and that have not ended.",
		t.active)
	sessionMetrics(m, t.ofSessions)
	reviewMetrics(m, t.ofReviews)
	return t
}

// join has the sessions and reviews of a server counted.
func (t *tally) join(p *opening) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.servers[p] = true
}

// leave keeps what a server has counted, which was closed.
func (t *tally) leave(p *opening) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.servers[p] {
		return // it could not be opened
	}

	delete(t.servers, p)
	t.sessions.Figures.Add(p.engine.Stats().Figures)
	if p.judge != nil {
		s := p.judge.Stats()
		t.reviews.Add(gate.Stats{Done: s.Done, Passed: s.Passed, Failed: s.Failed})
	}
}

func (t *tally) ofSessions() workflow.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions
	for p := range t.servers {
		s.Add(p.engine.Stats())
	}
	return s
}

// active returns the number of sessions on the stacks of connections, as last read.
func (t *tally) active() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.servers {
		n += p.engine.Active()
	}
	return n
}

func (t *tally) ofReviews() gate.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.reviews
	for p := range t.servers {
		if p.judge != nil {
			s.Add(p.judge.Stats())
		}
	}
	return s
}

const waits, waitsHelp = "deepwork_waits_total",
	"Waits that began, of a step for a person or of an agent for the end of a limit."

// storeMetrics returns the function that observes how long the store takes.
func storeMetrics(m *telemetry.Metrics) func(took time.Duration) {
	h := m.Histogram("deepwork_store_write_seconds", "How long the store took to make a change of a session durable.",
		.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10)
	return func(took time.Duration) { h.Record(context.Background(), took.Seconds()) }
}

// sessionMetrics are the metrics of the workflow sessions, their actors and their mailboxes.
func sessionMetrics(m *telemetry.Metrics, read func() workflow.Stats) {
	gauge := func(name, help string, value func(workflow.Stats) int) {
		m.Gauge(name, help, func() int { return value(read()) })
	}
	gauge("deepwork_sessions_awake", "Workflow sessions whose actor, with its mailbox, is in memory.",
		func(s workflow.Stats) int { return s.Awake })
	gauge("deepwork_actors", "Actors in memory, each with a mailbox.", func(s workflow.Stats) int {
		return s.Actors.Actors
	})
	gauge("deepwork_mailbox_messages", "Messages in all mailboxes that no actor has taken yet.",
		func(s workflow.Stats) int { return s.Actors.Waiting })
	gauge("deepwork_mailbox_deepest", "Messages in the mailbox that has the most.", func(s workflow.Stats) int {
		return s.Actors.Deepest
	})
	gauge("deepwork_mailbox_blocked", "Senders that wait because a mailbox is full.", func(s workflow.Stats) int {
		return s.Actors.Blocked
	})
	counter := func(name, help string, value func(workflow.Stats) int, labels ...attribute.KeyValue) {
		telemetry.Counter(m, name, help, func() int { return value(read()) }, labels...)
	}
	counter("deepwork_sessions_started_total", "Workflow sessions that this server began.", func(s workflow.Stats) int {
		return s.Started
	})

	const ended = "deepwork_sessions_ended_total"
	counter(ended, "Workflow sessions that this server ended, by how.", func(s workflow.Stats) int {
		return s.Completed
	}, attribute.String("status", string(machine.Completed)))
	counter(ended, "Workflow sessions that this server ended, by how.", func(s workflow.Stats) int {
		return s.Aborted
	}, attribute.String("status", string(machine.Aborted)))
	counter("deepwork_steps_finished_total", "Steps that were finished.", func(s workflow.Stats) int { return s.Steps })
	counter("deepwork_tries_total", "Tries that got a verdict of reviews, or failed at checks.",
		func(s workflow.Stats) int { return s.Tries })
	counter(waits, waitsHelp, func(s workflow.Stats) int {
		return s.Asked
	}, attribute.String("for", board.WaitsForPerson))
}

func reviewMetrics(m *telemetry.Metrics, read func() gate.Stats) {
	m.Gauge("deepwork_reviews_running", "Reviews that run now.", func() int { return read().Running })
	m.Gauge("deepwork_reviews_waiting", "Reviews that wait for room in the pool.", func() int { return read().Queued })
	m.Gauge("deepwork_review_pool_size", "How many reviews may run at once; 0 before the first.", func() int {
		return read().Capacity
	})

	const ended, help = "deepwork_reviews_total", "Reviews that ended, with a verdict or without one."
	telemetry.Counter(m, ended, help, func() int { return read().Done }, attribute.String("result", "verdict"))
	telemetry.Counter(m, ended, help, func() int { return read().Failed }, attribute.String("result", "failed"))

	const verdicts, verdictsHelp = "deepwork_review_verdicts_total",
		"Reviews that ended with a verdict, by whether the work passed."
	telemetry.Counter(m, verdicts, verdictsHelp, func() int { return read().Passed }, attribute.Bool("passed", true))
	telemetry.Counter(m, verdicts, verdictsHelp, func() int {
		s := read()
		return s.Done - s.Passed
	}, attribute.Bool("passed", false))
}

// attemptMetrics are the metrics of the task board.
func attemptMetrics(m *telemetry.Metrics, read func() attempt.Stats) {
	m.Gauge("deepwork_attempts_running",
		"Runs of agents that this server manages now, including those that are starting.", func() int {
			return read().Running
		})
	telemetry.Counter(m, "deepwork_attempts_started_total", "Runs of agents that began.", func() uint64 {
		return read().Started
	})
	for _, state := range []task.AttemptState{task.Completed, task.Failed, task.Stopped, task.Interrupted} {
		telemetry.Counter(m, "deepwork_attempts_ended_total", "Runs of agents that ended, by how they did.",
			func() uint64 { return read().Ended[state] }, attribute.String("state", string(state)))
	}
	telemetry.Counter(m, waits, waitsHelp, func() uint64 {
		return read().Limited
	}, attribute.String("for", board.WaitsForLimit))
	telemetry.Counter(m, "deepwork_cost_usd_total", "Cost of the agents and reviewers that ended, as far as known.",
		func() float64 { return board.USD(read().Spent.MicroUSD) })
	telemetry.Counter(m, "deepwork_cost_unknown_total", "Agents and reviewers that ended with an unknown cost.",
		func() int { return read().Spent.Unknown })
	for kind, value := range map[string]func(task.Spent) int64{
		"input":  func(s task.Spent) int64 { return s.InputTokens },
		"cached": func(s task.Spent) int64 { return s.CachedTokens },
		"output": func(s task.Spent) int64 { return s.OutputTokens },
	} {
		telemetry.Counter(m, "deepwork_tokens_total",
			"Tokens of the agents and reviewers that ended, as far as reported.", func() float64 {
				return float64(value(read().Spent))
			}, attribute.String("kind", kind))
	}
}
