package transport

import (
	"github.com/prometheus/client_golang/prometheus"

	"deepwork/catalog/task"
	"deepwork/gate"
	"deepwork/session/attempt"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
)

// sessionMetrics are the metrics of the workflow sessions, their actors and their
// mailboxes.
func sessionMetrics(read func() workflow.Stats) []prometheus.Collector {
	gauge := func(name, help string, value func(workflow.Stats) int) prometheus.Collector {
		return tool.Gauge(name, help, func() int { return value(read()) })
	}
	return []prometheus.Collector{
		gauge("deepwork_sessions_active", "Workflow sessions that this server has in hand and that have not ended.", func(s workflow.Stats) int { return s.Active }),
		gauge("deepwork_sessions_awake", "Workflow sessions whose actor, with its mailbox, is in memory.", func(s workflow.Stats) int { return s.Awake }),
		gauge("deepwork_actors", "Actors in memory: of sessions, and of the stacks of connections. Each has a mailbox.", func(s workflow.Stats) int { return s.Actors.Actors }),
		gauge("deepwork_mailbox_messages", "Messages in all mailboxes that no actor has taken yet.", func(s workflow.Stats) int { return s.Actors.Waiting }),
		gauge("deepwork_mailbox_deepest", "Messages in the mailbox that has the most.", func(s workflow.Stats) int { return s.Actors.Deepest }),
		gauge("deepwork_mailbox_blocked", "Senders that wait because a mailbox is full.", func(s workflow.Stats) int { return s.Actors.Blocked }),
	}
}

func reviewMetrics(read func() gate.Stats) []prometheus.Collector {
	const ended, help = "deepwork_reviews_total", "Reviews that ended, with a verdict or without one."
	return []prometheus.Collector{
		tool.Gauge("deepwork_reviews_running", "Reviews that run now.", func() int { return read().Running }),
		tool.Gauge("deepwork_reviews_waiting", "Reviews that wait for room in the pool.", func() int { return read().Queued }),
		tool.Gauge("deepwork_review_pool_size", "How many reviews may run at once; 0 before the first.", func() int { return read().Capacity }),
		tool.Counter(ended, help, prometheus.Labels{"result": "verdict"}, func() int { return read().Done }),
		tool.Counter(ended, help, prometheus.Labels{"result": "failed"}, func() int { return read().Failed }),
	}
}

// attemptMetrics are the metrics of the task board.
func attemptMetrics(read func() attempt.Stats) []prometheus.Collector {
	ended := func(state task.AttemptState) prometheus.Collector {
		return tool.Counter("deepwork_attempts_ended_total", "Runs of agents that ended, by how they did.", prometheus.Labels{"state": string(state)}, func() uint64 { return read().Ended[state] })
	}
	return []prometheus.Collector{
		tool.Gauge("deepwork_attempts_running", "Runs of agents that this server manages now, including those that are starting.", func() int { return read().Running }),
		tool.Counter("deepwork_attempts_started_total", "Runs of agents that began.", nil, func() uint64 { return read().Started }),
		ended(task.Completed), ended(task.Failed), ended(task.Stopped), ended(task.Interrupted),
	}
}
