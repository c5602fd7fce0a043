package process

import (
	"context"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper does nothing: on macOS orphans become children of the first process.
func becomeReaper() {}

// dieWithParent does nothing: on macOS a child outlives a killed parent.
func dieWithParent(*syscall.SysProcAttr) {}

// endDescendants does nothing: only the group is known on macOS.
func (g *group) endDescendants() {}

// EndLeftovers kills the group of a child whose parent was killed, unless its number now belongs to
// another.
func EndLeftovers(_ context.Context, child int, start string, _ int, _ string) error {
	if child == 0 {
		return nil
	}
	// While a member of the group is alive its number is not reused, so if another process has that
	// number, the group is gone.
	if now := StartOf(child); start == "" || now != "" && now != start {
		return nil
	}
	unix.Kill(-child, unix.SIGKILL)
	return nil
}

// EndMarked does nothing: the environment of other processes cannot be read.
func EndMarked(context.Context, string) error { return nil }

// Boot identifies the system's current boot.
func Boot() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// StartOf returns the start time of a process, to the microsecond.
func StartOf(pid int) string {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return ""
	}
	at := info.Proc.P_starttime
	return fmt.Sprintf("%d.%06d", at.Sec, at.Usec)
}
