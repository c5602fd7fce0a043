//go:build unix

package runner

import (
	"os/exec"
	"syscall"
)

// detached lets a child leave its parent's session and group.
func detached(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
