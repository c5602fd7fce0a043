package process

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/windows"
)

// firstEnv is what the process that Detach starts is given: it is the detached one.
var firstEnv = []string{detachedEnv + "=1"}

// survive has this process ignore the events that would end it. Nothing nudges it.
func survive() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	return make(chan os.Signal)
}

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

// Nudge does nothing: there are no signals.
func (ID) Nudge() bool { return false }
