//go:build unix

package follow

import (
	"errors"

	"golang.org/x/sys/unix"
)

func stat(path string) Stamp {
	var st unix.Stat_t
	for {
		err := unix.Stat(path, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			errno, _ := errors.AsType[unix.Errno](err)
			if errno == unix.ENOENT || errno == unix.ENOTDIR {
				return Stamp{Kind: Absent}
			}
			return Stamp{Kind: Failed, Fault: uint32(errno)}
		}

		s := Stamp{
			Kind:   Other,
			Size:   st.Size,
			Mod:    st.Mtim.Nano(),
			Change: st.Ctim.Nano(),
			Dev:    uint64(st.Dev),
			Ino:    uint64(st.Ino),
		}

		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			s.Kind = Regular
		case unix.S_IFDIR:
			s.Kind = Dir
		}

		return s
	}
}
