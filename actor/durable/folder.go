package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Dir is a folder that is held open. Its methods may be called concurrently. If it is not closed,
// the garbage collector closes it.
type Dir struct {
	root *os.Root
	file *os.File // the folder itself
}

// OpenDir returns an opened folder, and takes over root.
func OpenDir(root *os.Root, err error) (*Dir, error) {
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(".", os.O_RDONLY|openNonBlock, 0)
	if err != nil {
		root.Close()
		return nil, err
	}
	return &Dir{root, f}, nil
}

// Close closes the folder.
func (d *Dir) Close() error { return errors.Join(d.root.Close(), d.file.Close()) }

// Stat returns the FileInfo of the folder.
func (d *Dir) Stat() (fs.FileInfo, error) { return d.file.Stat() }

// Lstat returns the FileInfo of a file in the folder.
func (d *Dir) Lstat(name string) (fs.FileInfo, error) { return d.root.Lstat(name) }

// OpenRegular is the function of that name for a file in the folder.
func (d *Dir) OpenRegular(name string, flag int) (*os.File, fs.FileInfo, error) {
	return regular(d.root.OpenFile(name, flag|openNoFollow, 0))
}

// SyncFolder returns when the names in a folder are on disk, if the system supports that; elsewhere
// a rename is durable. The error is fs.ErrNotExist if there is no folder. Sharing one sync among
// concurrent writers was measured and is slower: the file system groups its commits already.
func (d Disk) SyncFolder(path string) error {
	if d.NoSync {
		return nil
	}
	err := d.carryOut(Op{Do: OpSyncDir, Path: path}, func() error {
		if d.Dir != nil {
			return syncDir(d.Dir.file)
		}
		f, err := os.OpenFile(path, os.O_RDONLY|openNonBlock, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return syncDir(f)
	})
	if err != nil {
		return fmt.Errorf("syncing the folder %s: %w", path, err)
	}
	return nil
}

// MakeFolder creates a folder with these permissions if it is missing, and its parents with mode
// 0755, each durable before the next. An existing folder is not changed.
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

// IsAt reports whether an open file is still the one at a path. A lock on any other file guards
// nothing.
func IsAt(f interface{ Stat() (fs.FileInfo, error) }, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	fi, err := os.Lstat(path)
	return err == nil && os.SameFile(fi, held)
}
