package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Create makes an empty file, mode 0600, and opens it for writing; fs.ErrExist
// where anything stands at the path, a link too.
func (d Disk) Create(path string) (f *os.File, err error) {
	err = d.carryOut(Op{Do: OpCreate, Path: path}, func() error {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil && f != nil {
		f.Close() // made, and then said to have failed
		f = nil
	}
	return f, err
}

// Write writes all of data to a file, at its offset; with an error, it may have
// written a part. n is how much.
func (d Disk) Write(f *os.File, data []byte) (n int, err error) {
	err = d.carryOut(Op{Do: OpWrite, Path: f.Name(), File: f, Data: data}, func() error {
		n, err = f.Write(data)
		return err
	})
	return n, err
}

// Sync returns when the content of a file, and what is needed to read it, is on
// disk. Its mode and times need not be. fs.ErrClosed where the file is closed.
func (d Disk) Sync(f *os.File) error {
	if d.NoSync {
		return nil
	}
	return d.carryOut(Op{Do: OpSync, Path: f.Name(), File: f}, func() error { return syncData(f) })
}

// Move gives a file another name, at once, in place of a file that has it. Where
// an open file keeps its name, it waits a second for readers to close theirs. The
// new name is durable once its folder is synced.
func (d Disk) Move(from, to string) error {
	return d.carryOut(Op{Do: OpMove, Path: from, To: to}, func() error { return replace(from, to) })
}

// MoveNew gives whatever stands at from a name that must be free: fs.ErrExist
// where it is not. Where the file system has neither an exclusive rename nor hard links,
// it looks first, and of two at the same time both may succeed.
func (d Disk) MoveNew(from, to string) error {
	return d.carryOut(Op{Do: OpMove, Path: from, To: to}, func() error { return renameNew(from, to) })
}

// Link gives a file a second name; fs.ErrExist where that is taken.
func (d Disk) Link(path, to string) error {
	return d.carryOut(Op{Do: OpLink, Path: path, To: to}, func() error { return os.Link(path, to) })
}

// Remove takes a name away; fs.ErrNotExist if there is none. It is durable
// once its folder is synced.
func (d Disk) Remove(path string) error {
	return d.carryOut(Op{Do: OpRemove, Path: path}, func() error { return os.Remove(path) })
}

// Drop is Remove and the sync of the folder. That there is nothing to remove is no
// error, and no proof that an earlier removal is on disk: the folder is synced.
func (d Disk) Drop(path string) error {
	if err := d.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.SyncFolder(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
