package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"deepwork/actor/process"
)

const (
	// stopLook is how often a shim checks for a request to stop.
	stopLook = 50 * time.Millisecond
	// groupLook is how often a group that was asked to end is checked.
	groupLook = 10 * time.Millisecond
)

// An agent is a program that has been started. Only one goroutine may use it.
type agent struct {
	child    *process.Child
	log      *logFile
	out, err *process.Lines

	mu      sync.Mutex
	summary *summary // guarded by mu
}

// startAgent starts the command of a Spec, or returns why it cannot.
func startAgent(spec *Spec, log *logFile) (a *agent, why string) {
	for _, kv := range spec.Env {
		// The program is searched for in the agent's own PATH.
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			os.Setenv("PATH", path)
		}
	}
	a = &agent{log: log, summary: newSummary()}
	a.out, a.err = a.lines(Stdout), a.lines(Stderr)
	child, err := process.Spawn(process.Spec{
		Command: spec.Command, Dir: spec.Work, Stdin: spec.Stdin, Descendants: true,
		Env: process.With(append(os.Environ(), "PWD="+spec.Work), spec.Env...),
	}, a.out, a.err)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Sprintf("the program %q is not in PATH; install it, or name another command for this executor in the config", spec.Command[0])
	} else if err != nil {
		return nil, err.Error()
	}
	a.child = child
	return a, ""
}

// lines writes a stream to the log, no faster than the disk allows: an agent that is faster blocks
// in its writes.
func (a *agent) lines(stream string) *process.Lines {
	lines := process.NewLines(MaxLine, func(lines [][]byte) {
		a.log.write(stream, lines...)
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, line := range lines {
			a.summary.line(stream, bytes.TrimRight(line, "\r\n"))
		}
	})
	lines.Breaks = true
	return lines
}

// watch waits until the agent ends, or ends it when a stop is requested or its start could not be
// recorded.
func (a *agent) watch(dir string, recorded error) (e Exit) {
	var killAt time.Time // zero: the agent was not asked to end
	if recorded != nil {
		a.log.system("its start could not be recorded, and so it is ended: %v", recorded)
		killAt = time.Now()
	}
	exited, killed := a.child.Exited(), false
	for {
		grace, asked := requestedStop(dir)
		if asked && (!e.Stopped || time.Now().Add(grace).Before(killAt)) {
			e.Stopped, killAt = true, time.Now().Add(grace)
			a.child.Terminate()
		}
		pause := stopLook
		if !killAt.IsZero() {
			if left := time.Until(killAt); left > 0 {
				pause = min(pause, left)
			} else if !killed {
				killed = true
				a.child.Kill()
			}
		}
		if exited == nil {
			if killAt.IsZero() || killed || !a.child.Alive() {
				break
			}
			pause = groupLook // its children have the rest of the grace period
		}
		select {
		case <-exited:
			exited, e.EndedAt = nil, time.Now().UTC()
			e.Code, e.Signal = a.child.Exit()
		case <-time.After(pause):
		}
	}
	if a.child.Close() {
		a.log.system("something that it has started does not end, or holds its output open")
		e.Left = true
	}
	a.out.End()
	a.err.End()
	a.summary.put(&e)
	return e
}
