package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockPatience bounds the wait for a lock that others hold for a moment only.
const lockPatience = 10 * time.Second

// A pace spaces the looks at something that others change: at once at first, and
// then the slower the longer it takes.
type pace struct {
	began time.Time
	most  time.Duration
}

func newPace(most time.Duration) *pace { return &pace{began: time.Now(), most: most} }

// next waits for the next look, or until ctx ends.
func (p *pace) next(ctx context.Context) error {
	timer := time.NewTimer(min(max(time.Since(p.began)/10, 2*time.Millisecond), p.most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lockRun takes the lock of a run. It gives up, without an error and without a
// lock, once a shim that holds it has marked the folder, or after patience.
func lockRun(ctx context.Context, dir string, patience time.Duration) (*flock.Flock, error) {
	path := filepath.Join(dir, lockFile)
	for wait := newPace(50 * time.Millisecond); ; {
		lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
		ok, err := lock.TryLock()
		if ok {
			return lock, nil
		}
		lock.Close()
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if exists(dir, startedFile) || exists(dir, exitFile) || time.Since(wait.began) > patience {
			return nil, nil
		}
		if err := wait.next(ctx); err != nil {
			return nil, err
		}
	}
}

// held tells whether somebody holds the lock of a run.
func held(dir string) (bool, error) {
	// Shared, so that many who look at once do not take each other for a shim.
	probe := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDONLY))
	free, err := probe.TryRLock()
	probe.Close()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at the lock of %s: %w", dir, err)
	}
	return !free, nil
}

// A view is what a folder says at one moment.
type view struct {
	started *startedRecord // nil: the folder is not marked
	exit    *Exit          // nil: no exit is recorded
	held    bool           // a shim lives; valid where there is no exit
}

// look reads a folder.
func look(dir string) (view, error) {
	var v view
	var err error
	// The lock before the records: a shim records and then lets go.
	if v.held, err = held(dir); err != nil {
		return v, err
	}
	var e Exit
	found, err := readJSON(dir, exitFile, &e)
	if err != nil {
		return v, err
	}
	if found {
		v.exit = &e
	}
	var s startedRecord
	if found, err = readJSON(dir, startedFile, &s); err != nil {
		return v, err
	}
	if found {
		v.started = &s
	}
	return v, nil
}

// find returns the run of a folder, or nil where no agent was ever started and
// no shim is about to. What a shim that died has left it ends and records.
func find(ctx context.Context, dir string) (*Process, error) {
	for wait := newPace(50 * time.Millisecond); ; {
		v, err := look(dir)
		if err != nil {
			return nil, fmt.Errorf("looking for a run in %s: %w", dir, err)
		}
		switch {
		case v.exit != nil, v.held && v.started != nil && v.started.PID != 0:
			return &Process{dir: dir, started: v.started, exit: v.exit}, nil
		case !v.held && v.started == nil:
			return nil, nil
		case !v.held:
			err = settle(ctx, dir)
		}
		if err == nil {
			err = wait.next(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for a run in %s: %w", dir, err)
		}
	}
}

// settle ends what a dead shim has left and records that its run was cut short.
// Where somebody else is at it, it returns and leaves it to them.
func settle(ctx context.Context, dir string) error {
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	defer lock.Close()
	if ok, err := lock.TryLock(); err != nil || !ok {
		return err
	}
	v, err := look(dir) // anew, under the lock
	if err != nil || v.exit != nil || v.started == nil {
		return err
	}
	var spec specRecord
	if _, err := readJSON(dir, specFile, &spec); err != nil {
		return err
	}
	if v.started.Boot == bootID() {
		if err := endLeftovers(ctx, v.started, spec.Mark); err != nil {
			return fmt.Errorf("ending what the run in %s has left: %w", dir, err)
		}
	}
	_, stopped := askedToStop(dir)
	e := Exit{
		Code: -1, Interrupted: true, Stopped: stopped,
		StartedAt: v.started.StartedAt, EndedAt: endOf(v.started.StartedAt, time.Now().UTC()),
	}
	if spec.Log != "" {
		// The log is a help to people; without it the run is settled all the same.
		e.FinalMessage = finalOf(spec.Log, v.started.LogFrom)
		Note(spec.Log, "the run was cut short: what watched over it was killed, or the system went down")
	}
	return writeExit(dir, &e)
}
