//go:build unix

package process_test

import (
	"os/exec"
	"syscall"
)

// detached lets a child leave its parent's process group.
func detached(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
