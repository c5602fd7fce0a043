package runner

import (
	"context"
	"fmt"
	"time"
)

// waitPace is the longest time from the end of a run to when Wait tells.
const waitPace = 250 * time.Millisecond

// A Process is a run, this server's or another's. Any number of goroutines and
// servers may wait for one and stop it.
type Process struct {
	dir     string
	started *startedRecord // nil: it was never started
	exit    *Exit          // nil: it ran when it was found
}

// PID is the agent's process id, 0 if it was never started.
func (p *Process) PID() int {
	if p.started == nil {
		return 0
	}
	return p.started.PID
}

// StartedAt is when the agent was started, by the clock of its shim; zero if it
// never was.
func (p *Process) StartedAt() time.Time {
	if p.started == nil {
		return time.Time{}
	}
	return p.started.StartedAt
}

// Wait blocks until the run has ended and its exit is recorded, or ctx ends. A
// shim that dies without recording an exit is an Exit that is Interrupted, after
// the agent's whole group was ended. The error is ctx's own, or that of a folder
// that cannot be read or, then, written.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	if p.exit != nil {
		return *p.exit, nil
	}
	for wait := newPace(waitPace); ; {
		v, err := look(p.dir)
		if err == nil && v.exit != nil {
			return *v.exit, nil
		}
		if err == nil && !v.held {
			if v.started == nil {
				return Exit{}, fmt.Errorf("waiting for the run in %s: its records were removed", p.dir)
			}
			err = settle(ctx, p.dir)
		}
		if err == nil {
			err = wait.next(ctx)
		}
		if err != nil {
			return Exit{}, fmt.Errorf("waiting for the run in %s: %w", p.dir, err)
		}
	}
}

// Stop ends the agent's whole group: SIGTERM and, grace later, SIGKILL; it
// returns when the exit is recorded. A run that has ended is left as it is. Of
// several stops the shortest grace counts, and none is longer than a day. When ctx ends first its error is
// returned, and the run is stopped nevertheless.
func (p *Process) Stop(ctx context.Context, grace time.Duration) (Exit, error) {
	if p.exit != nil {
		return *p.exit, nil
	}
	v, err := look(p.dir)
	if err == nil && v.exit == nil && v.held {
		err = askToStop(p.dir, min(max(grace, 0), maxGrace))
		// The signal is quicker than the file, and counts by itself where the file
		// cannot be made.
		if nudge(p.started) {
			err = nil
		}
	}
	if err != nil {
		return Exit{}, fmt.Errorf("stopping the run in %s: %w", p.dir, err)
	}
	return p.Wait(ctx)
}
