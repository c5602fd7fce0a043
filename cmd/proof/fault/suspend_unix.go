//go:build unix

package fault

import (
	"os"
	"syscall"
)

// Suspend stops a process until Resume, or does nothing if it has ended.
func Suspend(p *os.Process) { _ = p.Signal(syscall.SIGSTOP) }

// Resume lets a suspended process go on.
func Resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
