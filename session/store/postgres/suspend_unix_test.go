//go:build unix

package postgres

import (
	"syscall"
	"testing"
)

func suspend(t *testing.T, pid int) { must(t, syscall.Kill(pid, syscall.SIGSTOP)) }
func resume(t *testing.T, pid int)  { must(t, syscall.Kill(pid, syscall.SIGCONT)) }
