package durable

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames from to to, and fails with fs.ErrExist if to exists.
func renameNew(from, to string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
			return linkNew(from, to) // an old kernel, or a file system without support for the flag
		}
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
}

// syncData syncs a file's content, and what is needed to read it.
func syncData(f *os.File) error {
	if err := control(f, unix.Fdatasync); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// control makes a system call on an open file, which stays open meanwhile: a bare descriptor might
// refer to another file after a Close.
func control(f *os.File, call func(fd int) error) (err error) {
	conn, cerr := f.SyscallConn()
	if cerr == nil {
		cerr = conn.Control(func(fd uintptr) {
			for {
				if err = call(int(fd)); !errors.Is(err, unix.EINTR) {
					return
				}
			}
		})
	}
	if cerr != nil {
		return fs.ErrClosed // the only possible reason; Control returns its own error
	}

	return err
}
