package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/process"
)

// A process with the command line of a shim becomes one here, before the rest of the program is initialized:
// initializing packages that this one does not import takes ten times as long as all that a shim needs.
func init() {
	if len(os.Args) != 3 || os.Args[1] != ShimCommand {
		return
	}

	process.Detached()
	if err := shim(os.Args[2]); err != nil {
		process.Answer(err.Error())
		fmt.Fprintf(os.Stderr, "running the agent of %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}

	process.Answer("")
	os.Exit(0)
}

// shim runs the Spec of a folder and returns when the agent has ended and everything is recorded. It does
// nothing if the folder has no Spec, or if its agent was started before. Standard output is the connection to
// the Runner that waits for this process; nothing else may write to it.
func shim(dir string) error {
	if !filepath.IsAbs(dir) {
		return errors.New("the run's folder must be an absolute path")
	}
	if err := OwnFolder(dir); err != nil {
		return err
	}

	lock, err := lockRun(context.Background(), dir)
	if err != nil {
		return err
	}
	if lock == nil {
		_, err := find(context.Background(), dir) // another shim was faster, and reports for both
		return err
	}
	defer lock.Unlock()
	spec, err := readJSON[Spec](dir, specFile)
	if err != nil || spec == nil || exists(dir, startedFile) || exists(dir, exitFile) {
		return err
	}

	// Do this before anything runs: if it cannot be written, nothing is started.
	if err := put(dir, spareFile, make([]byte, spareSize)); err != nil {
		return err
	}

	now := time.Now().UTC()
	if !spec.logIsIn(dir) {
		return notStarted(dir, nil, now, fmt.Sprintf("opening the log: %s is not beside the run's folder", spec.Log))
	}
	log, err := openLog(spec.Log, runPatience)
	if err != nil {
		return notStarted(dir, nil, now, err.Error())
	}
	defer log.close()
	if _, asked := requestedStop(dir); asked {
		return notStarted(dir, log, now, "it was stopped before it began")
	}
	mark := startedRecord{ShimPID: os.Getpid(), Boot: process.Boot(), StartedAt: now, LogFrom: log.next,
		Contained: spec.Contained}
	if err := writeJSON(dir, startedFile, &mark); err != nil {
		return notStarted(dir, log, now, fmt.Sprintf("its start could not be recorded: %v", err))
	}

	a, why := startAgent(spec, log)
	if a == nil {
		return notStarted(dir, log, now, why)
	}
	mark.PID = a.child.PID()
	mark.Start = process.StartOf(mark.PID)
	recorded := writeJSON(dir, startedFile, &mark)
	if recorded == nil {
		process.Answer("")
	}
	log.system("started %s as process %d", spec.Command[0], mark.PID)
	if spec.Contained != "" {
		log.system("it is %s", spec.Contained)
	}
	e := a.watch(dir, recorded)
	e.StartedAt, e.EndedAt = now, endOf(now, e.EndedAt)
	log.system("%s", describe(&e))
	log.close()
	return record(dir, &e)
}

// notStarted records why the agent was not started.
func notStarted(dir string, log *logFile, at time.Time, why string) error {
	if log != nil {
		log.system("not started: %s", why)
	}

	_, stopped := requestedStop(dir)
	return record(dir, &Exit{
		Code:       -1,
		NotStarted: why,
		Stopped:    stopped,
		StartedAt:  at,
		EndedAt:    endOf(at, time.Now().UTC()),
	})
}

// endOf returns when something that began then has ended, by the system's clock, which continues during
// sleep. If the clock was set back, it returns the start.
func endOf(began, ended time.Time) time.Time {
	if began, ended = began.Round(0), ended.Round(0); ended.Before(began) {
		return began
	}
	return ended
}

// record makes the exit durable. It retries as long as the folder exists, since nobody else knows how the run
// ended.
func record(dir string, e *Exit) error {
	for pause := looks(time.Second); ; {
		err := writeExit(dir, e)
		if err == nil || !exists(dir, specFile) {
			return err
		}
		pause.Wait(context.Background())
	}
}

// describe says how a run ended, for the log.
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
