package stamp

import (
	"io/fs"
	"syscall"
)

// created tells a file from the one that took its place: there is no inode here.
func created(fi fs.FileInfo) int64 {
	if d, ok := fi.Sys().(*syscall.Win32FileAttributeData); ok {
		return d.CreationTime.Nanoseconds()
	}
	return 0
}
