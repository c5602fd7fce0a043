package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Create creates an empty file, mode 0600, and opens it for writing. The error is fs.ErrExist if
// the path exists, even as a link.
func (d Disk) Create(path string) (f *os.File, err error) {
	const flag = os.O_WRONLY | os.O_CREATE | os.O_EXCL | openNonBlock
	err = d.carryOut(Op{Do: OpCreate, Path: path}, func() error {
		f, err = os.OpenFile(path, flag, 0o600)
		return err
	})
	if err != nil && f != nil {
		f.Close() // created, but Carry reported an error
		f = nil
	}
	return f, err
}

// Write writes all of data to a file, at its offset, and returns the number of bytes written; with
// an error, that may be a part.
func (d Disk) Write(f *os.File, data []byte) (n int, err error) {
	err = d.carryOut(Op{Do: OpWrite, Path: f.Name(), File: f, Data: data}, func() error {
		n, err = f.Write(data)
		return err
	})
	return n, err
}

// Sync returns when the content of a file, and what is needed to read it, is on disk. Its mode and
// times may not be. The error is fs.ErrClosed if the file is closed.
func (d Disk) Sync(f *os.File) error {
	return d.carryOut(Op{Do: OpSync, Path: f.Name(), File: f}, func() error { return syncData(f) })
}

// Move renames a file atomically, replacing a file at the new name. Where open files cannot be
// replaced, it waits a second for readers to close theirs. The new name is durable once its folder
// is synced.
func (d Disk) Move(from, to string) error {
	return d.carryOut(Op{Do: OpMove, Path: from, To: to}, func() error { return replace(from, to) })
}

// MoveNew renames a file or folder to a name that must be free; otherwise the error is fs.ErrExist.
// If the file system has neither an exclusive rename nor hard links, it checks first, and two
// concurrent calls may both succeed.
func (d Disk) MoveNew(from, to string) error {
	return d.carryOut(Op{Do: OpMove, Path: from, To: to}, func() error { return renameNew(from, to) })
}

// Remove removes a name; the error is fs.ErrNotExist if it is missing. It is durable once its
// folder is synced.
func (d Disk) Remove(path string) error {
	return d.carryOut(Op{Do: OpRemove, Path: path}, func() error { return os.Remove(path) })
}

// Drop is Remove and a sync of the folder. A missing name is no error, but an earlier removal may
// not be on disk yet, so the folder is synced.
func (d Disk) Drop(path string) error {
	if err := d.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.SyncFolder(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
