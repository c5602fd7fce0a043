package fault

import (
	"encoding/hex"
	"os"

	"golang.org/x/sys/unix"
)

// Exchange swaps the names of two files atomically.
func Exchange(a, b string) error {
	return os.NewSyscallError("renameat2", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
}

// Pipe creates a named pipe.
func Pipe(path string) error { return os.NewSyscallError("mkfifo", unix.Mkfifo(path, 0o600)) }

// identity returns what identifies a file: its handle, since the system may use its inode again for
// another file at once.
func identity(path string) (string, error) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	return hex.EncodeToString(handle.Bytes()), os.NewSyscallError("name_to_handle_at", err)
}
