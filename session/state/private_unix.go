//go:build unix

package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// private returns what is wrong with a state folder: others must not own it or write to it. A missing folder
// is fine, since Make creates it.
func private(dir string) error {
	fi, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at the folder of state: %w", err)
	}

	owner := fi.Sys().(*syscall.Stat_t).Uid
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%s must be the folder of deepwork's state, but is not a folder: remove it, or set %s to "+
			"another", dir, Env)
	case int(owner) != os.Geteuid():
		return fmt.Errorf("%s, the folder of deepwork's state, belongs to the user with the id %d: set %s to a "+
			"folder of your own", dir, owner, Env)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to %s, the folder of deepwork's state: run chmod 700 on it, or set %s to "+
			"another", dir, Env)
	}

	return nil
}

// alike reports whether two folders belong to the same user and are on the same file system.
func alike(a, b fs.FileInfo) bool {
	one, other := a.Sys().(*syscall.Stat_t), b.Sys().(*syscall.Stat_t)
	return one.Uid == other.Uid && one.Dev == other.Dev
}

// privateFile returns what is wrong with a file that only this user may read.
func privateFile(path string, fi fs.FileInfo) error {
	switch owner := fi.Sys().(*syscall.Stat_t).Uid; {
	case int(owner) != os.Geteuid():
		return fmt.Errorf("%s belongs to the user with the id %d: set %s to a folder of your own", path, owner, Env)
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may read %s: run chmod 600 on it", path)
	}
	return nil
}
