//go:build unix

package local

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The bytes that SQLite locks in a file. Each connection to a database with a write-ahead log has locked some
// of them from its first read until it is closed.
const (
	lockedAt    = 1 << 30
	lockedBytes = 512
)

// inUse returns an error if another process has a database open. This process must not have it open: on Unix,
// closing any handle of the file drops its locks.
func inUse(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()

	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: lockedAt, Len: lockedBytes}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return fmt.Errorf("finding out who has %s open: %w", path, err)
	}
	if lock.Type != unix.F_UNLCK {
		return fmt.Errorf("process %d has %s open: end it first", lock.Pid, path)
	}

	return nil
}
