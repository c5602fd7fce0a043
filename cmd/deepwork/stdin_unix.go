//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// An interruptibleFile is stdin whose Close ends a Read that is blocked. A plain
// *os.File does that only in non-blocking mode, and that mode would outlive this
// process on a terminal or pipe that it shares with others.
type interruptibleFile struct {
	file       *os.File
	wake, woke *os.File // Close closes woke, which wakes the poll of wake
	once       sync.Once
	closed     chan struct{}
}

// interruptibleStdin returns stdin as it is read while the program serves.
func interruptibleStdin(file *os.File) (io.ReadCloser, error) {
	wake, woke, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making stdin interruptible: %w", err)
	}
	return &interruptibleFile{file: file, wake: wake, woke: woke, closed: make(chan struct{})}, nil
}

// Read blocks until there is input, or its end, or the file is closed.
func (f *interruptibleFile) Read(p []byte) (int, error) {
	fds := []unix.PollFd{
		{Fd: int32(f.file.Fd()), Events: unix.POLLIN},
		{Fd: int32(f.wake.Fd()), Events: unix.POLLIN},
	}
	for {
		select {
		case <-f.closed:
			return 0, os.ErrClosed
		default:
		}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if fds[1].Revents != 0 {
			return 0, os.ErrClosed
		}
		// Ready, ended, or something that cannot be polled: read says which.
		return f.file.Read(p)
	}
}

// Close ends a Read that is blocked, and all later ones. The file itself stays
// open: unread input belongs to the processes that share it.
func (f *interruptibleFile) Close() error {
	err := os.ErrClosed
	f.once.Do(func() {
		close(f.closed)
		err = f.woke.Close()
	})
	return err
}
