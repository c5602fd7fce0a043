//go:build unix

package fault

import (
	"os"
	"syscall"
)

func inodeOf(path string) (uint64, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return uint64(fi.Sys().(*syscall.Stat_t).Ino), nil
}
