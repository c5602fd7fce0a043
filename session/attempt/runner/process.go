package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/actor/wait"
)

// waitMax limits the time from the end of a run to the return of Wait.
const waitMax = 250 * time.Millisecond

// A Process is a run, started by this server or another. Any number of goroutines and servers may wait for it
// and stop it.
type Process struct { // the state of its folder when read
	dir     string
	started *startedRecord // nil if the folder is not marked
	exit    *Exit          // nil if no exit is recorded
	alive   bool           // a shim is alive; valid only without an exit
	// a pipe that ends with the shim, nil if Start did not start the shim; closed once nobody has it
	lifePipe *os.File
}

// StartedAt returns when the agent was started, by the clock of its shim; zero if it never was.
func (p *Process) StartedAt() time.Time {
	if p.started == nil || p.started.PID == 0 {
		return time.Time{}
	}
	return p.started.StartedAt
}

// Contained returns that of the run's Spec.
func (p *Process) Contained() string {
	if p.started == nil {
		return ""
	}
	return p.started.Contained
}

// Ended reports whether the run had already ended when it was found.
func (p *Process) Ended() bool { return p.exit != nil }

// Wait blocks until the run has ended and its exit is recorded, or ctx ends. If a shim dies without recording
// an exit, Wait ends the agent's whole group, and the Exit is Interrupted. The error is ctx's, or says which
// folder cannot be read or written.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	if p.exit != nil {
		return *p.exit, nil
	}

	now, err := await(ctx, p.dir, waitMax, p.lifePipe, func(*Process) bool { return false })
	if err == nil && now.exit == nil {
		err = errors.New("its records were removed")
	}
	if err != nil {
		return Exit{}, fmt.Errorf("waiting for the run in %s: %w", p.dir, err)
	}
	return *now.exit, nil
}

// Stop ends the agent's whole group: SIGTERM, then SIGKILL after grace. It returns when the exit is recorded.
// It does not change an ended run. Of several stops the shortest grace counts, a day at most. If ctx ends
// first, Stop returns its error, but the run is stopped anyway.
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
	// lockPatience limits the wait for a lock that others hold only briefly.
	lockPatience = 10 * time.Second
	// lookMax is the longest pause between reads of a folder that others change.
	lookMax = 50 * time.Millisecond
)

// looks returns the pauses between reads of a folder that others change.
func looks(most time.Duration) *wait.Backoff {
	return &wait.Backoff{Min: 2 * time.Millisecond, Max: most}
}

// lockRun takes the lock of a run. It returns nil and no error after patience, or if the shim that holds the
// lock has marked the folder.
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

// Alive reports whether the run of a folder is in progress, which the lock of its shim shows. Unlike Find it
// changes nothing on disk.
func Alive(dir string) (bool, error) { return durable.Locked(filepath.Join(dir, lockFile)) }

// look reads the state of a folder.
func look(dir string) (p *Process, err error) {
	if err := OwnFolder(dir); err != nil {
		return nil, err
	}

	p = &Process{dir: dir}
	// Read the lock before the records, since a shim records before it unlocks.
	if p.alive, err = Alive(dir); err != nil {
		return nil, err
	}
	if p.exit, err = readJSON[Exit](dir, exitFile); err != nil {
		return nil, err
	}
	p.started, err = readJSON[startedRecord](dir, startedFile)
	return p, err
}

// await reads a folder repeatedly until an exit is recorded, there certainly is no run, or enough returns
// true. If a shim has died, await ends the agent and records that. When life, which may be nil, ends, it
// reads at once.
func await(
	ctx context.Context, dir string, most time.Duration, life *os.File, enough func(*Process) bool,
) (*Process, error) {
	for pause := looks(most); ; {
		p, err := look(dir)
		if err == nil && (p.exit != nil || !p.alive && p.started == nil || enough(p)) {
			return p, nil
		}
		if err == nil && !p.alive {
			err = settle(ctx, dir)
		}

		switch {
		case err != nil:
		case life == nil:
			err = pause.Wait(ctx)
		case waitEnd(ctx, life, pause.Next()):
			life, pause = nil, looks(most)
		default:
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

// waitEnd waits up to d for the end of a pipe, and reports whether it has ended or cannot be waited for.
func waitEnd(ctx context.Context, pipe *os.File, d time.Duration) bool {
	if pipe.SetReadDeadline(time.Now().Add(d)) != nil {
		return true // as on Windows
	}
	stop := context.AfterFunc(ctx, func() { pipe.SetReadDeadline(time.Now()) })
	defer stop()
	_, err := pipe.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// find returns the run of a folder, or nil if no agent was ever started and no shim is about to start one.
func find(ctx context.Context, dir string) (*Process, error) {
	p, err := await(ctx, dir, lookMax, nil, func(p *Process) bool { return p.alive && !p.StartedAt().IsZero() })
	if err != nil {
		return nil, fmt.Errorf("looking for a run in %s: %w", dir, err)
	}
	if p.exit == nil && !p.alive {
		return nil, nil
	}
	return p, nil
}

// settle ends what a dead shim has left running, and records that its run was interrupted. If another process
// is doing so, it returns at once.
func settle(ctx context.Context, dir string) error {
	lock, err := durable.TryLock(filepath.Join(dir, lockFile))
	if lock == nil {
		return err
	}
	defer lock.Unlock()
	p, err := look(dir) // read again, under the lock
	if err != nil || p.exit != nil || p.started == nil {
		return err
	}

	spec, err := readJSON[Spec](dir, specFile)
	if err != nil {
		return err
	}
	spec = cmp.Or(spec, &Spec{})
	s := p.started

	if s.Boot == process.Boot() {
		process.EndGroup(s.PID, s.Start)
	}

	_, stopped := requestedStop(dir)
	e := Exit{
		Code:        -1,
		Interrupted: true,
		Stopped:     stopped,
		StartedAt:   s.StartedAt,
		EndedAt:     endOf(s.StartedAt, time.Now().UTC()),
	}

	if spec.logIsIn(dir) {
		// The log is only for people; without it the run is settled all the same.
		entries, _, _ := Tail(ctx, spec.Log, nil, 200, 0)
		sum := newSummary()
		for _, entry := range entries {
			if entry.Index >= s.LogFrom {
				sum.line(entry.Stream, []byte(entry.Text))
			}
		}

		sum.put(&e)
		Note(spec.Log, "the run was cut short: what watched over it was killed, or the system went down")
	}

	return writeExit(dir, &e)
}
