//go:build unix

package show

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// The controlling terminal, as two files.
const terminalIn, terminalOut = "/dev/tty", "/dev/tty"

// TerminalSize reports whether a stream is a terminal, and its size in columns and lines.
func TerminalSize(stream any) (columns, lines int, isTerminal bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}

// Apart gives a command its own process group, which the terminal's keys do not reach.
func Apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
