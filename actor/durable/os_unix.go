//go:build unix

package durable

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openNonBlock has no effect on files and folders, but saves os.OpenFile the four system calls that find out
// that they cannot be polled.
const openNonBlock = syscall.O_NONBLOCK

// openNoFollow makes an open refuse symbolic links, and not wait for the other end of a named pipe.
const openNoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// replace renames a file over another, atomically.
func replace(from, to string) error { return os.Rename(from, to) }

// syncDir syncs the directory's entries, if the file system supports it.
func syncDir(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // some network file systems do not support it
	}
	return err
}

// Links returns how many names a file has.
func Links(fi fs.FileInfo) int {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Nlink)
	}
	return 1
}

// ChangedAt returns when a file was last written, renamed, or changed otherwise, by the system's clock: no program can
// set it. It is zero if the file cannot be looked at.
func ChangedAt(path string) time.Time {
	var st unix.Stat_t
	for errors.Is(unix.Stat(path, &st), unix.EINTR) {
	}
	return time.Unix(st.Ctim.Unix())
}

// linkNew moves a file to a name that must be free, using a hard link if possible.
func linkNew(from, to string) error {
	err := os.Link(from, to)
	switch {
	case err == nil:
		return os.Remove(from)
	case errors.Is(err, unix.EPERM), errors.Is(err, errors.ErrUnsupported), errors.Is(err, unix.EMLINK):
		if _, err := os.Lstat(to); err == nil {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
		}
		return os.Rename(from, to)
	}

	return err
}

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

func isReadOnlyDisk(err error) bool { return errors.Is(err, unix.EROFS) }

func isTooManyFiles(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}
