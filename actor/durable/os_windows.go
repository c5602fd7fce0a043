package durable

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// openNoFollow is zero: Read has already checked the kind of the file, and folders hold no named pipes.
const openNoFollow, openNonBlock = 0, 0

// replaceTries and replacePause limit the wait until readers close a file that is to be replaced, since
// Windows does not replace an open file.
const (
	replaceTries = 200
	replacePause = 5 * time.Millisecond
)

// replace renames a file over another and waits until that is on disk.
func replace(from, to string) error {
	return move(from, to, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
}

// renameNew renames from to to, and fails with fs.ErrExist if to exists.
func renameNew(from, to string) error {
	return move(from, to, windows.MOVEFILE_WRITE_THROUGH)
}

func move(from, to string, flags uint32) error {
	old, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	for try := 1; ; try++ {
		err := windows.MoveFileEx(old, name, flags)
		if err == nil {
			return nil
		}

		busy := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_LOCK_VIOLATION) ||
			flags&windows.MOVEFILE_REPLACE_EXISTING != 0 && errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if !busy || try == replaceTries {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}

		time.Sleep(replacePause)
	}
}

// syncDir does nothing: Windows cannot sync directories, and replace writes through.
func syncDir(*os.File) error { return nil }

// Links returns how many names a file has; 1 if unknown, as always on Windows.
func Links(fs.FileInfo) int { return 1 }

// ChangedAt returns when a file was last written, as far as the system says so: a program can set that. It is zero if
// the file cannot be looked at.
func ChangedAt(path string) time.Time {
	fi, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

func isReadOnlyDisk(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }

func isTooManyFiles(err error) bool { return errors.Is(err, windows.ERROR_TOO_MANY_OPEN_FILES) }

func syncData(f *os.File) error { return f.Sync() }
