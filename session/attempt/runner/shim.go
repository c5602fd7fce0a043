package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
)

// RunShim is the shim's main function: it runs what the folder's Spec says, and
// returns when that has ended and everything is recorded. A folder that has no
// Spec, or whose agent was started before, it leaves alone.
//
// Called by anybody but a shim of the same folder it starts that shim as a
// process of its own, in a session of its own and a child of nobody, and returns.
// The process's standard output is the line to the Runner that waits for it:
// nothing else may write to it. The process must do nothing else.
func RunShim(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("running a shim: the run's folder %q is not an absolute path", dir)
	}
	if os.Getenv(shimEnv) != dir {
		return leave(dir)
	}
	os.Unsetenv(shimEnv)
	// The system ends the agent with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	asked := make(chan os.Signal, 8)
	signal.Notify(asked, survived...) // taken and not ignored: children inherit what is ignored
	defer signal.Stop(asked)
	s := &shim{dir: dir}
	err := s.run(asked)
	if err != nil {
		s.tell(err.Error())
		err = fmt.Errorf("running the agent of %s: %w", dir, err)
	}
	s.tell("")
	return err
}

// A shim is one run from within.
type shim struct {
	dir  string
	spec specRecord
	log  *logFile
	told bool // the Runner has been answered
}

// tell answers the Runner that waits, once: with nothing, where what it is to
// know is recorded.
func (s *shim) tell(words string) {
	if s.told {
		return
	}
	s.told = true
	io.WriteString(os.Stdout, words)
	hangUp()
}

// run does it all, with the run's lock held.
func (s *shim) run(asked <-chan os.Signal) error {
	lock, err := lockRun(context.Background(), s.dir, lockPatience)
	if err != nil {
		return err
	}
	if lock == nil {
		return s.await() // another shim was faster
	}
	defer lock.Close()
	found, err := readJSON(s.dir, specFile, &s.spec)
	if err != nil || !found || exists(s.dir, startedFile) || exists(s.dir, exitFile) {
		return err
	}
	// Before anything runs: where not even this can be written, nothing is begun.
	if err := putSpare(s.dir); err != nil {
		return err
	}
	now := time.Now().UTC()
	if s.log, err = openLog(s.spec.Log, runPatience); err != nil {
		return s.notStarted(now, err.Error())
	}
	defer s.log.close()
	if _, asked := askedToStop(s.dir); asked {
		return s.notStarted(now, "it was stopped before it began")
	}
	mark := startedRecord{
		ShimPID: os.Getpid(), Boot: bootID(), StartedAt: now, LogFrom: s.log.next,
	}
	mark.ShimStart, _ = startOf(os.Getpid())
	if err := writeJSON(s.dir, startedFile, &mark); err != nil {
		return s.notStarted(now, fmt.Sprintf("its start could not be recorded: %v", err))
	}
	a, why := startAgent(&s.spec, s.log)
	if a == nil {
		return s.notStarted(now, why)
	}
	mark.PID = a.cmd.Process.Pid
	mark.Start, _ = startOf(mark.PID)
	recorded := writeJSON(s.dir, startedFile, &mark)
	if recorded == nil {
		s.tell("")
	}
	s.log.system("started %s as process %d", s.spec.Command[0], mark.PID)
	e := a.watch(s.dir, asked, recorded)
	e.StartedAt, e.EndedAt = now, endOf(now, e.EndedAt)
	s.log.system("%s", describe(&e))
	s.log.close()
	return s.record(&e)
}

// await waits until the shim that is at it has answered for both.
func (s *shim) await() error {
	for wait := newPace(50 * time.Millisecond); ; {
		v, err := look(s.dir)
		if err != nil || v.exit != nil || !v.held || v.started != nil && v.started.PID != 0 {
			return err
		}
		if err := wait.next(context.Background()); err != nil {
			return err
		}
	}
}

// notStarted records why there is no agent.
func (s *shim) notStarted(at time.Time, why string) error {
	if s.log != nil {
		s.log.system("not started: %s", why)
	}
	_, stopped := askedToStop(s.dir)
	return s.record(&Exit{
		Code: -1, NotStarted: why, Stopped: stopped,
		StartedAt: at, EndedAt: endOf(at, time.Now().UTC()),
	})
}

// endOf is when what began then has ended, by the system's clock, which goes on
// while the machine sleeps; where that was set back meanwhile, by the time that
// has gone by: no run ends before it began.
func endOf(began, ended time.Time) time.Time {
	if clock := ended.Round(0); !clock.Before(began.Round(0)) {
		return clock
	}
	return began.Add(max(0, ended.Sub(began)))
}

// recordFor is how long a shim tries to record an exit.
const recordFor = 10 * time.Second

// record makes the exit durable. What cannot be is tried again for a while; after
// that the run counts as interrupted, since nobody knows how it ended.
func (s *shim) record(e *Exit) error {
	for wait := newPace(time.Second); ; {
		err := writeExit(s.dir, e)
		if err == nil || time.Since(wait.began) > recordFor {
			return err
		}
		if wait.next(context.Background()) != nil {
			return err
		}
	}
}

// describe says in the log how a run has ended.
func describe(e *Exit) string {
	after := e.EndedAt.Sub(e.StartedAt).Round(time.Millisecond)
	by := fmt.Sprintf("with exit code %d", e.Code)
	if e.Signal != "" {
		by = "by " + e.Signal
	}
	if e.Stopped {
		return fmt.Sprintf("stopped after %v; it ended %s", after, by)
	}
	return fmt.Sprintf("ended %s after %v", by, after)
}
