package process

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// passedOn has the signals that the first process of a container passes on to its child.
var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// RunAsFirst runs the program again as a child if this process is the first one in a container, and returns
// the child's exit code when it has ended. Meanwhile it reaps orphans, which nobody else does there: agents
// outlive the servers that start them. In any other process it returns false at once.
func RunAsFirst() (code int, first bool) {
	if os.Getpid() != 1 {
		return 0, false
	}

	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	// At a terminal only the child is in the foreground, so that keys typed there signal it once.
	if _, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true}
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, append(passedOn, syscall.SIGCHLD)...)
	if cmd.Start() != nil {
		signal.Stop(signals)
		return 0, false
	}

	child := &group{id: cmd.Process.Pid}
	for s := range signals {
		if s != syscall.SIGCHLD {
			cmd.Process.Signal(s)
			continue
		}
		if status := child.reap(); status != nil && status.Signaled() {
			return 128 + int(status.Signal()), true
		} else if status != nil {
			return status.ExitStatus(), true
		}
	}
	return 0, true
}
