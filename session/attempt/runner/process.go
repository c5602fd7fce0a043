package runner

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// waitMax is the longest time from the end of a run to when Wait returns.
const waitMax = 250 * time.Millisecond

// A Process is a run, this server's or another's. Any number of goroutines and
// servers may wait for one and stop it.
type Process struct {
	dir     string
	started *startedRecord // nil if it was never started
	exit    *Exit          // nil if it ran when it was found
}

// StartedAt is when the agent was started, by the clock of its shim; zero if it
// never was.
func (p *Process) StartedAt() time.Time {
	if p.started == nil || p.started.PID == 0 {
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
	v, err := await(ctx, p.dir, waitMax, func(view) bool { return false })
	if err == nil && v.exit == nil {
		err = errors.New("its records were removed")
	}
	if err != nil {
		return Exit{}, fmt.Errorf("waiting for the run in %s: %w", p.dir, err)
	}
	return *v.exit, nil
}

// Stop ends the agent's whole group: SIGTERM and, grace later, SIGKILL; it returns
// when the exit is recorded. A run that has ended is left as it is. Of several
// stops the shortest grace counts, and none is longer than a day. If ctx ends first
// its error is returned, and the run is stopped nevertheless.
func (p *Process) Stop(ctx context.Context, grace time.Duration) (Exit, error) {
	if p.exit != nil {
		return *p.exit, nil
	}
	v, err := look(p.dir)
	if err == nil && v.exit == nil && v.alive {
		err = requestStop(p.dir, min(max(grace, 0), maxGrace))
	}
	if err != nil {
		return Exit{}, fmt.Errorf("stopping the run in %s: %w", p.dir, err)
	}
	return p.Wait(ctx)
}
