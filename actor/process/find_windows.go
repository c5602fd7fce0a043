package process

import (
	"context"
	"fmt"

	"golang.org/x/sys/windows"
)

// Boot is not needed here: the number and start time of a process are never those
// of another.
func Boot() string { return "" }

// StartOf returns when a process was started, in 100 ns since 1601.
func StartOf(pid int) string {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(h)
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return ""
	}
	return fmt.Sprint(uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime))
}

// EndLeftovers does nothing: the job of a parent that has ended has ended with it.
func EndLeftovers(context.Context, int, string, int, string) error { return nil }

// EndMarked does nothing: a command that is run has ended with its job.
func EndMarked(context.Context, string) error { return nil }
