package worktree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
)

// binTries bounds how often a bin is made again because another server removed it
// before it was filled.
const binTries = 5

func (k *Keeper) trash() string { return filepath.Join(k.journals(), "trash") }

// discard moves a folder out of the way at once; empty deletes it then, which
// may take its time. What a crash leaves of it Recover deletes. A folder that is
// missing is no error.
func (k *Keeper) discard(path, attempt string) (empty func(), err error) {
	if _, err := os.Lstat(path); missing(err) {
		return func() {}, nil
	}
	if err := os.MkdirAll(k.trash(), 0o700); err != nil {
		return nil, err
	}
	var bin string
	for try := 1; ; try++ {
		if bin, err = os.MkdirTemp(k.trash(), attempt+"-*"); err != nil {
			return nil, err
		}
		k.at("bin")
		if err = os.Rename(path, filepath.Join(bin, "tree")); err == nil {
			break
		}
		os.Remove(bin)
		// A server that starts empties the trash, an empty bin too.
		if !missing(err) || !isThere(path) || try == binTries {
			return nil, err
		}
	}
	var disk durable.Disk
	err = disk.SyncFolder(bin)
	if missing(err) {
		err = nil // emptied already
	}
	if err := errors.Join(disk.SyncFolder(filepath.Dir(path)), err); err != nil {
		return nil, err
	}
	return func() {
		if err := removeAll(bin); err != nil {
			k.log.Warn("a removed worktree could not be deleted; the next start tries again", "folder", bin, "error", err)
		}
	}, nil
}

// removeAll deletes a folder, also where folders in it are read-only, as those
// of package caches are.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && os.Chmod(at, 0o700) == nil && err != nil {
			// It could not be read before; what is in it is walked on the next go.
			return filepath.WalkDir(at, func(at string, d fs.DirEntry, _ error) error {
				if d != nil && d.IsDir() {
					os.Chmod(at, 0o700)
				}
				return nil
			})
		}
		return nil
	})
	return os.RemoveAll(path)
}
