package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Folder is a directory that is held open, to be synced after each rename
// without being opened for it.
//
// Concurrent writers each sync it for themselves: sharing one sync among those
// whose renames it covers was measured (16 writers, ext4) and was slower by a
// sixth, since the file system groups its commits already and a shared sync only
// makes its callers wait for its beginning.
type Folder struct {
	disk Disk
	path string
	file *os.File
	info fs.FileInfo
}

// OpenFolder opens a directory; Close ends the use of it.
func (d Disk) OpenFolder(path string) (*Folder, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it is not a folder")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Folder{disk: d, path: path, file: f, info: fi}, nil
}

// Sync returns when the names of the folder are on disk, where the system and
// the file system know such a thing; elsewhere a rename is durable by itself. It
// may be called concurrently.
func (f *Folder) Sync() error {
	if f.disk.NoSync {
		return nil
	}
	return unsynced(f.path, f.disk.carryOut(Op{Do: OpSyncDir, Path: f.path}, func() error { return syncDir(f.file) }))
}

// Stands tells whether the folder is still what others see at its path. It costs
// one stat.
func (f *Folder) Stands() bool {
	fi, err := os.Stat(f.path)
	return err == nil && os.SameFile(fi, f.info)
}

// Close closes the folder.
func (f *Folder) Close() error { return f.file.Close() }

// SyncFolder is Folder.Sync for a folder that is not held open; an error that is
// fs.ErrNotExist where there is none.
func (d Disk) SyncFolder(path string) error {
	if d.NoSync {
		return nil
	}
	return unsynced(path, d.carryOut(Op{Do: OpSyncDir, Path: path}, func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return syncDir(f)
	}))
}

func unsynced(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("syncing the folder %s: %w", path, err)
}

// MakeFolder makes a folder where it is missing, with these permissions, and the
// ones above it with the usual 0755, each durable before the next. One that is
// there stays as it is.
func (d Disk) MakeFolder(dir string, perm fs.FileMode) error {
	if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	var missing []string
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		missing = append(missing, at)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		mode := fs.FileMode(0o755)
		if missing[i] == dir {
			mode = perm
		}
		if err := os.Mkdir(missing[i], mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := d.SyncFolder(filepath.Dir(missing[i])); err != nil {
			return err
		}
	}
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist) && len(missing) == 0:
		return fmt.Errorf("%s is a link that leads nowhere; remove it, or make what it leads to, and call again", dir)
	case err != nil:
		return err
	case !fi.IsDir():
		return fmt.Errorf("%s is not a folder; move it out of the way and call again", dir)
	}
	return nil
}

// Stands tells whether an open file is the one that others see at a path. A lock
// on one that is not guards nothing.
func Stands(f interface{ Stat() (fs.FileInfo, error) }, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	fi, err := os.Lstat(path)
	return err == nil && os.SameFile(fi, held)
}
