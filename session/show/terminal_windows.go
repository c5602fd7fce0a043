package show

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// The console, as two files.
const terminalIn, terminalOut = "CONIN$", "CONOUT$"

// TerminalSize reports whether a stream is a console, and its size in columns and lines.
func TerminalSize(stream any) (columns, lines int, isTerminal bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, 0, false
	}

	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0, 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1, true
}

// discard drops what was typed at a terminal but not read yet.
func discard(in *os.File) error { return windows.FlushConsoleInputBuffer(windows.Handle(in.Fd())) }

// Apart gives a command its own process group, which the terminal's keys do not reach.
func Apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}
