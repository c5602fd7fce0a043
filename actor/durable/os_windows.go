package durable

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// openNoFollow: Read has looked at the kind of the file; there are no named
// pipes in a folder.
const openNoFollow = 0

// replaceTries and replacePause bound the wait for a reader to close a file
// that is to be replaced; here an open file keeps its name.
const (
	replaceTries = 200
	replacePause = 5 * time.Millisecond
)

// replace renames a file over another and waits until that is on disk.
func replace(from, to string) error {
	return move(from, to, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
}

// renameNew renames whatever stands at from, and fails with fs.ErrExist if
// anything stands at to.
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

// syncDir does nothing: a directory cannot be synced here, and replace writes
// through.
func syncDir(*os.File) error { return nil }

// Inode is a number that no other file of the file system has while this one
// exists; 0 where a stat does not tell, as here.
func Inode(fs.FileInfo) uint64 { return 0 }

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

func isReadOnlyDisk(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }

func isTooManyFiles(err error) bool { return errors.Is(err, windows.ERROR_TOO_MANY_OPEN_FILES) }

func syncData(f *os.File) error { return f.Sync() }
