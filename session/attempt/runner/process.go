package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/actor/wait"
)

// waitMax is the longest time from the end of a run to when Wait returns.
const waitMax = 250 * time.Millisecond

// A Process is a run, this server's or another's. Any number of goroutines and
// servers may wait for one and stop it.
type Process struct { // what its folder said when it was read
	dir     string
	started *startedRecord // nil if the folder is not marked
	exit    *Exit          // nil if no exit is recorded
	alive   bool           // a shim lives; valid if there is no exit
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
	now, err := await(ctx, p.dir, waitMax, func(*Process) bool { return false })
	if err == nil && now.exit == nil {
		err = errors.New("its records were removed")
	}
	if err != nil {
		return Exit{}, fmt.Errorf("waiting for the run in %s: %w", p.dir, err)
	}
	return *now.exit, nil
}

// Stop ends the agent's whole group: SIGTERM and, grace later, SIGKILL; it returns
// when the exit is recorded. A run that has ended is left as it is. Of several
// stops the shortest grace counts, and none is longer than a day. If ctx ends first
// its error is returned, and the run is stopped nevertheless.
func (p *Process) Stop(ctx context.Context, grace time.Duration) (Exit, error) {
	if p.exit != nil {
		return *p.exit, nil
	}
	now, err := look(p.dir)
	if err == nil && now.exit == nil && now.alive {
		err = requestStop(p.dir, min(max(grace, 0), maxGrace))
	}
	if err != nil {
		return Exit{}, fmt.Errorf("stopping the run in %s: %w", p.dir, err)
	}
	return p.Wait(ctx)
}

const (
	// lockPatience bounds the wait for a lock that others hold for a moment only.
	lockPatience = 10 * time.Second
	// lookMax is the longest pause between looks at a folder that others change.
	lookMax = 50 * time.Millisecond
)

// looks spaces looks at a folder that others change.
func looks(most time.Duration) *wait.Backoff {
	return &wait.Backoff{Min: 2 * time.Millisecond, Max: most}
}

// lockRun takes the lock of a run. It returns nil and no error if a shim that holds
// it has marked the folder, or after patience.
func lockRun(ctx context.Context, dir string) (*durable.FileLock, error) {
	for pause, end := looks(lookMax), time.Now().Add(lockPatience); ; {
		lock, err := durable.TryLock(filepath.Join(dir, lockFile))
		if lock != nil || err != nil {
			return lock, err
		}
		if exists(dir, startedFile) || exists(dir, exitFile) || time.Now().After(end) {
			return nil, nil
		}
		if err := pause.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// Alive reports whether the run of a folder goes on, by the lock that its shim
// holds. Unlike Find it settles nothing, and makes nothing on disk.
func Alive(dir string) (bool, error) { return durable.Locked(filepath.Join(dir, lockFile)) }

// look reads a folder.
func look(dir string) (p *Process, err error) {
	if err := OwnFolder(dir); err != nil {
		return nil, err
	}
	p = &Process{dir: dir}
	// The lock before the records: a shim records and then unlocks.
	if p.alive, err = Alive(dir); err != nil {
		return nil, err
	}
	if p.exit, err = readJSON[Exit](dir, exitFile); err != nil {
		return nil, err
	}
	p.started, err = readJSON[startedRecord](dir, startedFile)
	return p, err
}

// running reports whether the agent runs.
func (p *Process) running() bool { return p.alive && !p.StartedAt().IsZero() }

// await looks at a folder until an exit is recorded, or it is known that there is no
// run, or enough says so. What a shim that died has left it ends and records.
func await(ctx context.Context, dir string, most time.Duration, enough func(*Process) bool) (*Process, error) {
	for pause := looks(most); ; {
		p, err := look(dir)
		if err == nil && (p.exit != nil || !p.alive && p.started == nil || enough(p)) {
			return p, nil
		}
		if err == nil && !p.alive {
			err = settle(ctx, dir)
		}
		if err == nil {
			err = pause.Wait(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

// find returns the run of a folder, or nil if no agent was ever started and no
// shim is about to.
func find(ctx context.Context, dir string) (*Process, error) {
	p, err := await(ctx, dir, lookMax, (*Process).running)
	if err != nil {
		return nil, fmt.Errorf("looking for a run in %s: %w", dir, err)
	}
	if p.exit == nil && !p.alive {
		return nil, nil
	}
	return p, nil
}

// settle ends what a dead shim has left and records that its run was cut short.
// If another process does so already, it returns and leaves it to that.
func settle(ctx context.Context, dir string) error {
	lock, err := durable.TryLock(filepath.Join(dir, lockFile))
	if lock == nil {
		return err
	}
	defer lock.Unlock()
	p, err := look(dir) // again, under the lock
	if err != nil || p.exit != nil || p.started == nil {
		return err
	}
	spec, err := readJSON[Spec](dir, specFile)
	if err != nil {
		return err
	}
	if spec == nil {
		spec = &Spec{}
	}
	s := p.started
	if s.Boot == process.Boot() {
		if err := process.EndLeftovers(ctx, s.PID, s.Start, s.ShimPID, Mark(spec.Mark)); err != nil {
			return fmt.Errorf("ending what the run in %s has left: %w", dir, err)
		}
	}
	_, stopped := requestedStop(dir)
	e := Exit{Code: -1, Interrupted: true, Stopped: stopped, StartedAt: s.StartedAt, EndedAt: endOf(s.StartedAt, time.Now().UTC())}
	if spec.logIsIn(dir) {
		// The log is a help to people; without it the run is settled all the same.
		entries, _, _ := Tail(ctx, spec.Log, nil, 200, 0)
		var f final
		for _, entry := range entries {
			if entry.Index >= s.LogFrom {
				f.line(entry.Stream, []byte(entry.Text))
			}
		}
		e.FinalMessage = f.message()
		Note(spec.Log, "the run was cut short: what watched over it was killed, or the system went down")
	}
	return writeExit(dir, &e)
}
