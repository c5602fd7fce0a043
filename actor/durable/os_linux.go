package durable

import (
	"errors"
	"io/fs"
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

// syncData makes a file's content durable, and what is needed to read it.
func syncData(f *os.File) error {
	// A file that is closed meanwhile must not have another synced in its place,
	// which the bare number might: SyscallConn keeps it.
	var err error
	conn, cerr := f.SyscallConn()
	if cerr == nil {
		cerr = conn.Control(func(fd uintptr) {
			for {
				if err = unix.Fdatasync(int(fd)); !errors.Is(err, unix.EINTR) {
					return
				}
			}
		})
	}
	if cerr != nil {
		err = fs.ErrClosed // there is no other reason, and what it says is its own
	}
	if err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}
