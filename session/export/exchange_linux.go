package export

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// exchange atomically swaps the names of two files in a folder. The error is errors.ErrUnsupported if the
// file system cannot do it.
func exchange(dir *os.File, a, b string) error {
	fd := int(dir.Fd())
	for {
		err := unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
			return errors.ErrUnsupported
		case err != nil:
			return fmt.Errorf("exchanging %s and %s: %w", a, b, err)
		}
		return nil
	}
}
