//go:build unix

package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// look tells whether a pipe holds what nobody has read, and whether somebody may
// still write to it. Of one that is closed here neither is so.
func look(f *os.File) (unread, open bool) {
	c, err := f.SyscallConn()
	if err != nil {
		return false, false
	}
	err = c.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 0); err != nil {
			open = true // it is not known
			return
		}
		unread, open = poll[0].Revents&unix.POLLIN != 0, poll[0].Revents&unix.POLLHUP == 0
	})
	return err == nil && unread, err == nil && open
}
