//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminalSize reports whether a stream is a terminal, how many characters its lines have and how many lines it has.
func terminalSize(w io.Writer) (columns, lines int, is bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}

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
