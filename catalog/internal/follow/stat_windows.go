package follow

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

func stat(path string) Stamp {
	fi, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Stamp{Kind: Absent}
		}
		errno, _ := errors.AsType[syscall.Errno](err)
		return Stamp{Kind: Failed, Fault: uint32(errno)}
	}
	s := Stamp{Kind: Other, Size: fi.Size(), Mod: fi.ModTime().UnixNano()}
	if d, ok := fi.Sys().(*syscall.Win32FileAttributeData); ok {
		s.Change = d.CreationTime.Nanoseconds() // there is no inode
	}
	switch {
	case fi.Mode().IsRegular():
		s.Kind = Regular
	case fi.IsDir():
		s.Kind = Dir
	}

	return s
}
