//go:build !unix

package stamp

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const openFlags = 0

type sysPath = struct{}

func sysName(string) sysPath { return sysPath{} }

func (p Path) stat() Stamp {
	fi, err := os.Stat(p.name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Stamp{Kind: Absent}
		}
		errno, _ := errors.AsType[syscall.Errno](err)
		return Stamp{Kind: Failed, Fault: uint32(errno)}
	}
	s := Stamp{Kind: Other, Size: fi.Size(), Mod: fi.ModTime().UnixNano(), Change: created(fi)}
	switch {
	case fi.Mode().IsRegular():
		s.Kind = Regular
	case fi.IsDir():
		s.Kind = Dir
	}
	return s
}
