//go:build unix && !linux

package fault

import (
	"os"
	"strconv"
	"syscall"
)

// identity returns what identifies a file: its inode.
func identity(path string) (string, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(uint64(fi.Sys().(*syscall.Stat_t).Ino), 10), nil
}
