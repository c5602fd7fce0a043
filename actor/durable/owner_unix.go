//go:build unix

package durable

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// FaultOf returns why the content of a file cannot be trusted, and what to do, or "": everybody may
// write to it, or it belongs to another user who is not root. For a folder whose sticky bit is set,
// in which others cannot replace files, only the owner counts. name is what the message calls it.
func FaultOf(name string, fi fs.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	open := fi.Mode().Perm()
	if fi.IsDir() && fi.Mode()&fs.ModeSticky != 0 {
		open = 0
	}
	switch {
	case open&0o002 != 0:
		return fmt.Sprintf("everybody may write to %s: run chmod o-w on it", name)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Sprintf("%s belongs to another user, with the id %d: if its content is right, run chown on it",
			name, st.Uid)
	case open&0o020 != 0 && int(st.Gid) != os.Getegid():
		return fmt.Sprintf("the group %d, which is not yours, may write to %s: run chmod g-w on it", st.Gid, name)
	}

	return ""
}
