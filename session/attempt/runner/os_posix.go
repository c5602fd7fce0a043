//go:build unix && !linux

package runner

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper does nothing: here orphans become children of the first process.
func becomeReaper() {}

// dieWithShim does nothing: here an agent outlives a shim that is killed, and is
// ended by who notices that.
func dieWithShim(*syscall.SysProcAttr) {}

// endDescendants does nothing: here only the group can be told.
func (g *group) endDescendants() {}

// endLeftovers ends the agent's group, unless its number has passed to another.
func endLeftovers(_ context.Context, s *startedRecord, _ string) error {
	if s.PID == 0 {
		return nil
	}
	// As long as one of the group lives its number is not given out again, so a
	// process of that number that is not the agent means that the group is gone.
	if start, ok := startOf(s.PID); s.Start == "" || ok && start != s.Start {
		return nil
	}
	unix.Kill(-s.PID, unix.SIGKILL)
	return nil
}

// endMarked does nothing: the environment of others cannot be read.
func endMarked(context.Context, string) error { return nil }

func replaceStdout(fd int) error { return unix.Dup2(fd, 1) }
