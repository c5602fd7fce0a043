package main

import (
	"os"
	"strconv"
	"syscall"
)

// reopened is a pipe opened a second time, without blocking, so that the runtime's
// poller waits for it: a thread that waits in a read keeps its processor for a while,
// and with it what it has just read, and each message pays for that. The mode belongs
// to this opening alone, and not to those that share the pipe. nil: it is no pipe, or
// cannot be opened.
func reopened(file *os.File) *os.File {
	if fi, err := file.Stat(); err != nil || fi.Mode()&os.ModeNamedPipe == 0 {
		return nil
	}
	again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	return again
}
