package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

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
			return fmt.Errorf("%s is a link that leads out of %s, or nowhere: remove it, or put what it leads to there", at, folder)
		}
	}
	return nil
}
