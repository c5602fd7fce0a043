package load

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// latencies are how long calls took, by tool.
type latencies struct {
	mu sync.Mutex
	m  map[string][]time.Duration
}

func (l *latencies) add(tool string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string][]time.Duration{}
	}
	l.m[tool] = append(l.m[tool], took)
}

// A quantiles is what is told of the calls of a tool.
type quantiles struct {
	Tool          string
	Calls         int
	P50, P99, Max time.Duration
}

func quantilesOf(tool string, took []time.Duration) quantiles {
	slices.Sort(took)
	q := quantiles{Tool: tool, Calls: len(took)}
	if n := len(took); n > 0 {
		q.P50, q.P99, q.Max = took[n/2], took[n*99/100], took[n-1]
	}
	return q
}

// merged puts the latencies of all agents together: by tool, and of all.
func merged(all []*latencies) (byTool []quantiles, total quantiles) {
	m := map[string][]time.Duration{}
	var every []time.Duration
	for _, l := range all {
		l.mu.Lock()
		for tool, took := range l.m {
			m[tool] = append(m[tool], took...)
			every = append(every, took...)
		}
		l.mu.Unlock()
	}
	for _, tool := range slices.Sorted(maps.Keys(m)) {
		byTool = append(byTool, quantilesOf(tool, m[tool]))
	}
	return byTool, quantilesOf("all", every)
}
