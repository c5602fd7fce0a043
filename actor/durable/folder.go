package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// Inside returns an error if a link leads from a path below a folder out of the folder, or to
// something missing. The path itself may be missing.
func Inside(folder, path string) error {
	rel, err := filepath.Rel(folder, path)
	if err != nil {
		return err
	}

	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}

	at := folder
	for part := range strings.SplitSeq(rel, string(filepath.Separator)) {
		at = filepath.Join(at, part)
		fi, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}

		if fi.Mode()&(fs.ModeSymlink|fs.ModeIrregular) == 0 {
			continue
		}

		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			real, err = filepath.Rel(root, real)
		}
		if err != nil || !filepath.IsLocal(real) {
			return fmt.Errorf("%s is a link that leads out of %s, or nowhere: remove it, or put what it leads to there",
				at, folder)
		}
	}

	return nil
}
