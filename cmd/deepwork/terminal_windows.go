package main

import (
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// terminal opens the console.
func terminal() (in, out *os.File, err error) {
	if in, err = os.OpenFile("CONIN$", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	if out, err = os.OpenFile("CONOUT$", os.O_RDWR, 0); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// discard drops what was typed at a terminal and not read yet.
func discard(in *os.File) error {
	return windows.FlushConsoleInputBuffer(windows.Handle(in.Fd()))
}

// terminalSize reports whether a stream is a console, how many characters its lines have and how many lines it has.
func terminalSize(w io.Writer) (columns, lines int, is bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0, false
	}
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0, 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1, true
}

// apart makes a command a process group of its own, which the keys of the terminal do not reach.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}
