// Package durable writes state to disk so that it survives a crash of the program and a loss of
// power: atomic replacement of files, synced folders and file locks, on Linux, other Unixes and
// Windows.
//
// google/renameio lacks Windows and the sync of the folder, natefinch/atomic lacks syncs, and
// neither has an exclusive rename or a way to make a disk fail in tests.
//
// The content is synced, then the file gets its name, then the folder is synced. Only when all
// three have succeeded is the state durable.
package durable

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The operations of a Disk, as named in an Op.
const (
	OpCreate  = "create"  // creates an empty file
	OpWrite   = "write"   // writes Data to File
	OpSync    = "sync"    // syncs the content of a file
	OpMove    = "move"    // renames a file to To, replacing a file there if allowed
	OpRemove  = "remove"  // removes a name
	OpSyncDir = "syncdir" // syncs the names in a folder
)

// An Op is one change that a Disk is about to make, or one sync.
type Op struct {
	Do   string   // one of the constants above
	Path string   // of the file or folder, as the caller gave it
	To   string   // for a move: the other name
	File *os.File // for a write or a sync
	Data []byte   // for a write
}

// A Disk changes files. The zero Disk makes the changes and nothing else; its methods block for the
// real disk, and may be called concurrently. Errors name the file.
type Disk struct {
	// Carry, if set, executes every Op in place of the Disk: it calls do, returns an error, or ends the
	// process. It may be called concurrently. It is for tests and fault simulations.
	Carry func(op Op, do func() error) error
}

// Intercept, if set, is the Carry of all Disks without their own. Fault simulations set it first, in their
// own binary.
var Intercept func(op Op, do func() error) error

func (d Disk) carryOut(op Op, do func() error) error {
	switch {
	case d.Carry != nil:
		return d.Carry(op, do)
	case Intercept != nil:
		return Intercept(op, do)
	}
	return do()
}

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

// Write writes all of data to a file, at its offset, and returns the number of bytes written; with an error,
// that may be only part of the data.
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

// Drop removes a name and syncs the folder. A missing name is not an error: an earlier removal may not be on
// disk yet, so the folder is synced.
func (d Disk) Drop(path string) error {
	if err := d.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.SyncFolder(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ErrUnsynced means that a file has its new content, which may not survive a crash.
var ErrUnsynced = errors.New("the file was written, but may not survive a crash")

// PutOptions configures Put. The zero value of a field means its default.
type PutOptions struct {
	// Temp is the name of the temporary file, in the same folder; a star in it is replaced by a
	// random string. A name without a star must be used by this caller only, and a file that a
	// crash has left there is removed first. The default is ".<name>.*.tmp". A crash may leave a
	// file behind.
	Temp string

	// Mode is the permissions of the new file, regardless of the umask; default 0600.
	Mode fs.FileMode
}

// Put replaces the content of a file with data, atomically and durably. When it returns nil the new
// file is on disk; when it returns an error, also on a full disk, the old one is unchanged, except
// with ErrUnsynced, when the new content is in place. A link at path is itself replaced, not its
// target; a folder is not replaced. Concurrent Puts to one path are safe if Temp has a star; one of
// them is the last.
func (d Disk) Put(path string, data []byte, o PutOptions) error {
	dir, name := filepath.Split(path)
	temp := o.Temp
	temp = cmp.Or(temp, "."+name+".*.tmp")
	if before, after, star := strings.Cut(temp, "*"); star {
		temp = before + rand.Text()[:12] + after
	} else if err := os.Remove(dir + temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	temp = dir + temp
	if err := d.Fill(temp, data, o.Mode); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := d.Move(temp, path); err != nil {
		os.Remove(temp) // the error of the move says more
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := d.SyncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing %s: %w: %w", path, ErrUnsynced, err)
	}

	return nil
}

// Fill creates a file with this content and mode (0600 if mode is 0) and syncs it. After an error there is no
// file.
func (d Disk) Fill(path string, data []byte, mode fs.FileMode) (err error) {
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = os.Remove(path) // the error of the write says more
		}
	}()

	if mode != 0 {
		if err := f.Chmod(mode); err != nil {
			return err
		}
	}

	if _, err := d.Write(f, data); err != nil {
		return err
	}
	return d.Sync(f)
}

// An explainedError adds a remedy to a system error, once.
type explainedError struct {
	err  error
	hint string
}

func (e *explainedError) Error() string { return e.err.Error() + "; " + e.hint }
func (e *explainedError) Unwrap() error { return e.err }

// Explain adds the remedy to an error that the user can fix: a full or read-only disk, a missing
// permission, too many open files. path is the file or folder concerned. Other errors, those that
// already have a remedy, and nil are returned unchanged.
func Explain(err error, path string) error {
	if _, done := errors.AsType[*explainedError](err); done || err == nil {
		return err
	}

	var hint string
	switch {
	case isNoSpace(err):
		hint = fmt.Sprintf("free space on the disk that holds %s and call again", path)
	case isReadOnlyDisk(err):
		hint = fmt.Sprintf("the disk that holds %s is read-only: make it writable and call again", path)
	case errors.Is(err, fs.ErrPermission):
		hint = fmt.Sprintf("give the user who runs deepwork read and write permission for %s and the folder it is "+
			"in, and call again", path)
	case isTooManyFiles(err):
		hint = "too many files are open: raise the limit of open files (ulimit -n) and call again"
	default:
		return err
	}
	return &explainedError{err, hint}
}
