package show

import (
	"io"
	"os"

	"golang.org/x/sys/windows"
)

// TerminalSize reports whether a stream is a console, how many characters its lines have and how many lines it has.
func TerminalSize(w io.Writer) (columns, lines int, is bool) {
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
