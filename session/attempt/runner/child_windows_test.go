package runner

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// detached lets a child leave its parent's group.
func detached(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}
