//go:build unix && !linux

package stamp

import (
	"errors"

	"golang.org/x/sys/unix"
)

// openFlags keep an open from waiting for the writer of a pipe.
const openFlags = unix.O_NONBLOCK | unix.O_CLOEXEC

// sysPath is empty: these systems are reached through their C library, which
// takes the name itself.
type sysPath = struct{}

func sysName(string) sysPath { return sysPath{} }

func (p Path) stat() Stamp {
	var st unix.Stat_t
	for {
		err := unix.Stat(p.name, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			errno, ok := errors.AsType[unix.Errno](err)
			if !ok {
				return Stamp{Kind: Failed}
			}
			return failed(errno)
		}
		return Stamp{
			Kind:   kindOf(uint32(st.Mode)),
			Size:   st.Size,
			Mod:    st.Mtim.Nano(),
			Change: st.Ctim.Nano(),
			Dev:    uint64(st.Dev),
			Ino:    uint64(st.Ino),
		}
	}
}
