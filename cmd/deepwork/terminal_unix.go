//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// terminal opens the controlling terminal.
func terminal() (in, out *os.File, err error) {
	if in, err = os.Open("/dev/tty"); err != nil {
		return nil, nil, err
	}
	if out, err = os.OpenFile("/dev/tty", os.O_WRONLY, 0); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// apart makes a command a process group of its own, which the keys of the terminal do not reach.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
