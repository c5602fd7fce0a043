package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A folder is a directory that is held open, to be synced after each rename.
//
// Concurrent writers each sync it for themselves: sharing one sync among those
// whose renames it covers was measured (16 writers, ext4) and was slower by a
// sixth, since the file system groups its commits already and a shared sync only
// makes its callers wait for its beginning.
type folder struct {
	file *os.File
	info fs.FileInfo
}

func openFolder(path string) (*folder, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &folder{file: f, info: fi}, nil
}

func (d *folder) sync() error { return syncDir(d.file) }

func (d *folder) close() error { return d.file.Close() }

// syncPath syncs a directory that is not held open.
func syncPath(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncDir(f)
}

// makeFolder makes the store's folder where it is missing, for this user alone,
// and what is above it as usual, each entry durable before the next.
func (s *Store) makeFolder() error {
	if fi, err := os.Stat(s.dir); err == nil && fi.IsDir() {
		return nil
	}
	var missing []string
	for dir := s.dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		mode := fs.FileMode(0o755)
		if missing[i] == s.dir {
			mode = 0o700
		}
		if err := os.Mkdir(missing[i], mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return explain(fmt.Errorf("making the session folder: %w", err), missing[i])
		}
		if s.o.NoSync {
			continue
		}
		if err := syncPath(filepath.Dir(missing[i])); err != nil {
			return explain(fmt.Errorf("syncing the new session folder: %w", err), missing[i])
		}
	}
	if fi, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) && len(missing) == 0 {
		return fmt.Errorf("making the session folder: %s is a link that leads nowhere; remove it, or make what it leads to, and call again", s.dir)
	} else if err != nil {
		return explain(fmt.Errorf("making the session folder: %w", err), s.dir)
	} else if !fi.IsDir() {
		return fmt.Errorf("making the session folder: %s is not a folder; move it out of the way and call again", s.dir)
	}
	return nil
}
