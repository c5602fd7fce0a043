package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper does nothing: on macOS orphans become children of the first process.
func becomeReaper() {}

// dieWithParent does nothing: on macOS a child outlives a killed parent.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// endDescendants does nothing: only the group is known on macOS.
func (g *group) endDescendants() (left bool) { return false }

// strays reports false: only the group is known on macOS.
func (g *group) strays() bool { return false }

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
