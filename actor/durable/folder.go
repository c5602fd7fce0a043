package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SyncFolder returns when the names in a folder are on disk, if the system supports that; on others a rename
// is durable. The error is fs.ErrNotExist if there is no folder. Sharing one sync among concurrent writers
// was measured to be slower, since the file system already groups its commits.
func (d Disk) SyncFolder(path string) error {
	err := d.carryOut(Op{Do: OpSyncDir, Path: path}, func() error {
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
