//go:build unix

package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstEnv is what the process that Detach starts is given: here it is one in
// between, whose child has no parent once it ends.
var firstEnv []string

// survived are the signals that a detached process need not die of: what terminals
// and people send, and what is sent to all processes.
var survived = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXFSZ}

// startDetached runs the process in between, which starts the other one.
func startDetached(cmd *exec.Cmd) error {
	var words strings.Builder
	cmd.Stderr = &words
	err := cmd.Run()
	if said := strings.TrimSpace(words.String()); err != nil && said != "" {
		return fmt.Errorf("%w: %s", err, said[max(0, len(said)-1000):])
	}
	return err
}

// leave starts this command line again in a session of its own.
func leave() error {
	// What this process has inherited, from an editor say, must not stay open for
	// as long as the other one runs.
	for fd := 3; fd < 1024; fd++ {
		unix.CloseOnExec(fd)
	}
	cmd, err := again()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// hangUp ends the connection of standard output. The number stays taken, so that
// no file that is opened later becomes standard output.
func hangUp() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		err = replaceFile(int(null.Fd()), 1)
	}
	if err != nil {
		os.Stdout.Close()
	}
}
