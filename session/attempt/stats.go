package attempt

import (
	"sync/atomic"

	"deepwork/catalog/task"
)

// Stats are figures of this server since it was opened. They are for metrics and
// are not read together at one moment.
type Stats struct {
	Running     int    // executions that this server runs now, starting ones included
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
	running := len(e.runs)
	e.mu.Unlock()
	s := &e.stats
	return Stats{
		Running: running, Started: s.started.Load(), Completed: s.completed.Load(),
		Failed: s.failed.Load(), Stopped: s.stopped.Load(), Interrupted: s.interrupted.Load(),
	}
}
