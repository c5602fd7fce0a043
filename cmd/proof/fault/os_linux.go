package fault

import (
	"os"

	"golang.org/x/sys/unix"
)

// Exchange swaps the names of two files atomically.
func Exchange(a, b string) error {
	return os.NewSyscallError("renameat2", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
}

// Pipe creates a named pipe.
func Pipe(path string) error { return os.NewSyscallError("mkfifo", unix.Mkfifo(path, 0o600)) }
