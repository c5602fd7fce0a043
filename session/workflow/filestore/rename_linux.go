package filestore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames whatever stands at from, and fails with fs.ErrExist if
// anything stands at to.
func renameNew(from, to string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
			return linkNew(from, to) // an old kernel, or a file system that does not know the flag
		}
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
}

// exchange gives two files each other's names, at once.
func exchange(a, b string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
			return errNoExchange
		}
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
}

// syncData makes a file's content durable, and what is needed to read it.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
