package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// firstEnv is what the process that Detach starts is given: it is the detached one.
var firstEnv = []string{detachedEnv + "=1"}

// survived are the events that would end a detached process.
var survived = []os.Signal{os.Interrupt, syscall.SIGTERM}

// startDetached starts a process outside the job of this one, so that it does not
// end with it, if the job allows that. It has a group and a console, without a
// window, of its own, so that its children can be sent a break.
func startDetached(cmd *exec.Cmd) error {
	const flags = windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW
	begin := func(flags uint32) error {
		// Not bound to a context: it is to outlive this process.
		free := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdout: cmd.Stdout, Err: cmd.Err,
			SysProcAttr: &syscall.SysProcAttr{CreationFlags: flags}}
		if err := free.Start(); err != nil {
			return err
		}
		return free.Process.Release()
	}
	err := begin(flags | windows.CREATE_BREAKAWAY_FROM_JOB)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		err = begin(flags)
	}
	return err
}

// leave starts this command line again as a detached process.
func leave() error {
	cmd, err := again()
	if err != nil {
		return err
	}
	return startDetached(cmd)
}

// hangUp ends the connection of standard output.
func hangUp() { os.Stdout.Close() }
