package transport

import (
	"go.opentelemetry.io/otel/attribute"

	"deepwork/actor/telemetry"
	"deepwork/catalog/task"
	"deepwork/gate"
	"deepwork/session/attempt"
	"deepwork/session/workflow"
)

// sessionMetrics are the metrics of the workflow sessions, their actors and their mailboxes.
func sessionMetrics(m *telemetry.Metrics, read func() workflow.Stats) {
	gauge := func(name, help string, value func(workflow.Stats) int) {
		m.Gauge(name, help, func() int { return value(read()) })
	}
	gauge("deepwork_sessions_active", "Workflow sessions that this server has in hand and that have not ended.", func(s workflow.Stats) int { return s.Active })
	gauge("deepwork_sessions_awake", "Workflow sessions whose actor, with its mailbox, is in memory.", func(s workflow.Stats) int { return s.Awake })
	gauge("deepwork_actors", "Actors in memory: of sessions, and of the stacks of connections. Each has a mailbox.", func(s workflow.Stats) int { return s.Actors.Actors })
	gauge("deepwork_mailbox_messages", "Messages in all mailboxes that no actor has taken yet.", func(s workflow.Stats) int { return s.Actors.Waiting })
	gauge("deepwork_mailbox_deepest", "Messages in the mailbox that has the most.", func(s workflow.Stats) int { return s.Actors.Deepest })
	gauge("deepwork_mailbox_blocked", "Senders that wait because a mailbox is full.", func(s workflow.Stats) int { return s.Actors.Blocked })
}

func reviewMetrics(m *telemetry.Metrics, read func() gate.Stats) {
	m.Gauge("deepwork_reviews_running", "Reviews that run now.", func() int { return read().Running })
	m.Gauge("deepwork_reviews_waiting", "Reviews that wait for room in the pool.", func() int { return read().Queued })
	m.Gauge("deepwork_review_pool_size", "How many reviews may run at once; 0 before the first.", func() int { return read().Capacity })
	const ended, help = "deepwork_reviews_total", "Reviews that ended, with a verdict or without one."
	telemetry.Counter(m, ended, help, func() int { return read().Done }, attribute.String("result", "verdict"))
	telemetry.Counter(m, ended, help, func() int { return read().Failed }, attribute.String("result", "failed"))
}

// attemptMetrics are the metrics of the task board.
func attemptMetrics(m *telemetry.Metrics, read func() attempt.Stats) {
	m.Gauge("deepwork_attempts_running", "Runs of agents that this server manages now, including those that are starting.", func() int { return read().Running })
	telemetry.Counter(m, "deepwork_attempts_started_total", "Runs of agents that began.", func() uint64 { return read().Started })
	for _, state := range []task.AttemptState{task.Completed, task.Failed, task.Stopped, task.Interrupted} {
		telemetry.Counter(m, "deepwork_attempts_ended_total", "Runs of agents that ended, by how they did.", func() uint64 { return read().Ended[state] }, attribute.String("state", string(state)))
	}
}
