package attempt

import (
	"sync/atomic"

	"deepwork/catalog/task"
)

// Stats are figures of this server since it was opened. They are for metrics and
// are not read together at one moment.
type Stats struct {
	Tending     int    // executions that this server sees to now
	Actors      int    // attempts in memory
	Started     uint64 // agents that began to run
	Completed   uint64 // executions by how they ended, as this server recorded
	Failed      uint64
	Stopped     uint64
	Interrupted uint64
}

type stats struct {
	started, completed, failed, stopped, interrupted atomic.Uint64
}

func (s *stats) count(state task.AttemptState) {
	switch state {
	case task.Completed:
		s.completed.Add(1)
	case task.Failed:
		s.failed.Add(1)
	case task.Stopped:
		s.stopped.Add(1)
	case task.Interrupted:
		s.interrupted.Add(1)
	}
}

// Stats returns the figures as they are now. It does not block for long.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	tending := len(e.tending)
	e.mu.Unlock()
	s := &e.stats
	return Stats{
		Tending: tending, Actors: e.attempts.Len(), Started: s.started.Load(), Completed: s.completed.Load(),
		Failed: s.failed.Load(), Stopped: s.stopped.Load(), Interrupted: s.interrupted.Load(),
	}
}
