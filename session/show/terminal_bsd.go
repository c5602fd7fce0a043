//go:build unix && !linux

package show

import (
	"os"

	"golang.org/x/sys/unix"
)

// discard drops what was typed at a terminal but not read yet.
func discard(in *os.File) error {
	return unix.IoctlSetPointerInt(int(in.Fd()), unix.TIOCFLUSH, unix.TCIFLUSH)
}
