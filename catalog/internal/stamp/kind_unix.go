//go:build unix

package stamp

import "golang.org/x/sys/unix"

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Regular
	case unix.S_IFDIR:
		return Dir
	}
	return Other
}

func failed(errno unix.Errno) Stamp {
	if errno == unix.ENOENT || errno == unix.ENOTDIR {
		return Stamp{Kind: Absent}
	}
	return Stamp{Kind: Failed, Fault: uint32(errno)}
}
