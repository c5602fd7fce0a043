package stamp

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openFlags keep an open from waiting for the writer of a pipe.
const openFlags = unix.O_NONBLOCK | unix.O_CLOEXEC

// sysPath is the name as the kernel takes it, so that a look at a thousand
// files allocates nothing.
type sysPath = *byte

func sysName(name string) sysPath {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return nil
	}
	return p
}

// noStatx is set once where a kernel, or what stands in front of it, has no statx.
var noStatx atomic.Bool

func (p Path) stat() Stamp {
	if p.sys == nil {
		return Stamp{Kind: Absent}
	}
	if noStatx.Load() {
		return p.statOld()
	}
	var st unix.Statx_t
	const want = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_CTIME | unix.STATX_INO
	dirfd := unix.AT_FDCWD // a variable: a negative constant is no uintptr
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dirfd), uintptr(unsafe.Pointer(p.sys)),
			0, want, uintptr(unsafe.Pointer(&st)), 0)
		switch errno {
		case 0:
			return Stamp{
				Kind:   kindOf(uint32(st.Mode)),
				Size:   int64(st.Size),
				Mod:    st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec),
				Change: st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec),
				Dev:    unix.Mkdev(st.Dev_major, st.Dev_minor),
				Ino:    st.Ino,
			}
		case unix.EINTR:
			continue
		case unix.ENOSYS:
			noStatx.Store(true)
			return p.statOld()
		case unix.EPERM:
			// A sandbox's filter says EPERM for calls that it does not know.
			return p.statOld()
		}
		return failed(errno)
	}
}

func (p Path) statOld() Stamp {
	var st unix.Stat_t
	for {
		err := unix.Stat(p.name, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			return failed(errno)
		}
		return Stamp{
			Kind:   kindOf(st.Mode),
			Size:   st.Size,
			Mod:    st.Mtim.Nano(),
			Change: st.Ctim.Nano(),
			Dev:    uint64(st.Dev),
			Ino:    uint64(st.Ino),
		}
	}
}
