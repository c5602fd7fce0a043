package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"deepwork/session/attempt/runner"
)

// An Executor runs the agents of attempts so that they outlive this process. Its methods may be
// called from any goroutine, and by several processes on one project. An execution is identified by
// its attempt's id and its own.
type Executor interface {
	// Start starts the agent of an execution, or finds the one already started: no matter how often
	// and by which process it is called, the agent is started at most once. It returns when the
	// agent runs or could not be run; Wait returns the reason. After an error nothing runs, unless
	// the error is ctx's.
	Start(ctx context.Context, attempt, execution string, spec runner.Spec) (Process, error)
	// Find returns the agent of an execution, alive or ended, started by any process, so that an
	// engine can take over from one that was killed. The error is runner.ErrNoRun if the agent was
	// never started and will not be.
	Find(ctx context.Context, attempt, execution string) (Process, error)
	// Alive reports whether the agent of an execution runs, or, if execution is "", any agent of
	// the attempt. It changes nothing.
	Alive(attempt, execution string) (bool, error)
	// Tail returns the output of an attempt's agents after an entry; see runner.Tail.
	Tail(ctx context.Context, attempt string, after *int64, limit int, wait time.Duration) (entries []runner.Entry, next int64, err error)
	// Note adds a message of deepwork to an attempt's output; it fails while an agent of the
	// attempt runs.
	Note(attempt, text string) error
	// Remove removes all records of an attempt whose agents have ended.
	Remove(attempt string) error
}

// A Process is the agent of one execution.
type Process interface {
	// StartedAt returns when the agent was started, or zero if it never was.
	StartedAt() time.Time
	// Wait waits until the agent has ended and its end is recorded.
	Wait(ctx context.Context) (runner.Exit, error)
	// Stop ends the agent and all processes that it started: politely first, and by killing them
	// after the grace period. If it is called several times, the shortest grace counts.
	Stop(ctx context.Context, grace time.Duration) (runner.Exit, error)
}

// local is the Executor whose agents are processes of this machine. It stores each attempt in its
// own folder, <logs>/attempts/<attempt>: the output in log, and each execution in runs/<execution>.
type local struct {
	runner.Runner
	logs string
}

// check returns an error if an id of the board is malformed, or if a folder of the attempt is a
// link.
func (l local) check(attempt, execution string) error {
	for _, id := range []string{attempt, execution} {
		if id != "" && uuid.Validate(id) != nil {
			return fmt.Errorf("%q is not the id of an attempt or an execution", id)
		}
	}
	for _, dir := range []string{filepath.Dir(l.records(attempt)), l.records(attempt), l.run(attempt, ""), l.run(attempt, execution)} {
		if err := runner.OwnFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

func (l local) records(attempt string) string {
	return filepath.Join(l.logs, "attempts", attempt)
}

func (l local) log(attempt string) string { return filepath.Join(l.records(attempt), "log") }

func (l local) run(attempt, execution string) string {
	return filepath.Join(l.records(attempt), "runs", execution)
}

func (l local) Start(ctx context.Context, attempt, execution string, spec runner.Spec) (Process, error) {
	spec.Dir, spec.Log = l.run(attempt, execution), l.log(attempt)
	if err := l.check(attempt, execution); err != nil {
		return nil, err
	}
	return l.Runner.Start(ctx, spec)
}

func (l local) Find(ctx context.Context, attempt, execution string) (Process, error) {
	if err := l.check(attempt, execution); err != nil {
		return nil, err
	}
	return l.Runner.Find(ctx, l.run(attempt, execution))
}

func (l local) Alive(attempt, execution string) (bool, error) {
	if err := l.check(attempt, execution); err != nil {
		return false, err
	}
	if execution != "" {
		return runner.Alive(l.run(attempt, execution))
	}
	runs, err := os.ReadDir(l.run(attempt, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, run := range runs {
		var alive bool
		if alive, err = runner.Alive(l.run(attempt, run.Name())); alive || err != nil {
			return alive, err
		}
	}
	return false, err
}

func (l local) Tail(ctx context.Context, attempt string, after *int64, limit int, wait time.Duration) ([]runner.Entry, int64, error) {
	if err := l.check(attempt, ""); err != nil {
		return nil, 0, err
	}
	return runner.Tail(ctx, l.log(attempt), after, limit, wait)
}

func (l local) Note(attempt, text string) error {
	return cmp.Or(l.check(attempt, ""), runner.Note(l.log(attempt), text))
}

func (l local) Remove(attempt string) error {
	return cmp.Or(l.check(attempt, ""), os.RemoveAll(l.records(attempt)))
}
