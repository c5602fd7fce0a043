//go:build unix

package show

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// TerminalSize reports whether a stream is a terminal, how many characters its lines have and how many lines it has.
func TerminalSize(w io.Writer) (columns, lines int, is bool) {
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
