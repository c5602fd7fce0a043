package transport

import (
	"github.com/prometheus/client_golang/prometheus"

	"deepwork/session/workflow"
)

// sessionFigures are the metrics of the workflow sessions, their actors and their
// mailboxes. They are read once a scrape, all at once.
type sessionFigures func() workflow.Stats

// sessionGauges say what is told of a workflow.Stats.
var sessionGauges = []struct {
	desc  *prometheus.Desc
	value func(workflow.Stats) int
}{
	{gaugeDesc("deepwork_sessions_active", "Workflow sessions that this server has in hand and that have not ended."),
		func(s workflow.Stats) int { return s.Active }},
	{gaugeDesc("deepwork_sessions_awake", "Workflow sessions whose actor, with its mailbox, is in memory."),
		func(s workflow.Stats) int { return s.Awake }},
	{gaugeDesc("deepwork_actors", "Actors in memory: of sessions, and of the stacks of connections. Each has a mailbox."),
		func(s workflow.Stats) int { return s.Actors.Actors }},
	{gaugeDesc("deepwork_mailbox_messages", "Messages in all mailboxes that no actor has taken yet."),
		func(s workflow.Stats) int { return s.Actors.Waiting }},
	{gaugeDesc("deepwork_mailbox_deepest", "Messages in the mailbox that has the most."),
		func(s workflow.Stats) int { return s.Actors.Deepest }},
	{gaugeDesc("deepwork_mailbox_blocked", "Senders that wait because a mailbox is full."),
		func(s workflow.Stats) int { return s.Actors.Blocked }},
}

func gaugeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, nil, nil)
}

// Describe implements prometheus.Collector.
func (sessionFigures) Describe(to chan<- *prometheus.Desc) {
	for _, g := range sessionGauges {
		to <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (read sessionFigures) Collect(to chan<- prometheus.Metric) {
	now := read()
	for _, g := range sessionGauges {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(now)))
	}
}
