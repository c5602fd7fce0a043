package process

import (
	"context"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper does nothing: here orphans become children of the first process.
func becomeReaper() {}

// dieWithParent does nothing: here a child outlives a process that is killed.
func dieWithParent(*syscall.SysProcAttr) {}

// endDescendants does nothing: only the group is known here.
func (g *group) endDescendants() {}

// EndLeftovers kills the group of a child whose parent was killed, unless its
// number has passed to another.
func EndLeftovers(_ context.Context, child int, start string, _ int, _ string) error {
	if child == 0 {
		return nil
	}
	// As long as one of the group lives its number is not used again, so a process
	// of that number that is not the child means that the group is gone.
	if now := StartOf(child); start == "" || now != "" && now != start {
		return nil
	}
	unix.Kill(-child, unix.SIGKILL)
	return nil
}

// EndMarked does nothing: the environment of others cannot be read.
func EndMarked(context.Context, string) error { return nil }

// replaceFile makes the file of one number that of another too.
func replaceFile(from, to int) error { return unix.Dup2(from, to) }

// Boot identifies the run of the system.
func Boot() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// StartOf returns when a process was started, to the microsecond.
func StartOf(pid int) string {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return ""
	}
	at := info.Proc.P_starttime
	return fmt.Sprintf("%d.%06d", at.Sec, at.Usec)
}
