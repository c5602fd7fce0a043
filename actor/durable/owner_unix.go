//go:build unix

package durable

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// FaultOf returns why the content of a file cannot be trusted, and what to do, or "": everybody may
// write to it, or it belongs to another user who is not root. name is what the message calls it.
func FaultOf(name string, fi fs.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	switch {
	case fi.Mode().Perm()&0o002 != 0:
		return fmt.Sprintf("everybody may write to %s: run chmod o-w on it", name)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Sprintf("%s belongs to another user, with the id %d: if its content is right, run chown on it", name, st.Uid)
	case fi.Mode().Perm()&0o020 != 0 && int(st.Gid) != os.Getegid():
		return fmt.Sprintf("the group %d, which is not yours, may write to %s: run chmod g-w on it", st.Gid, name)
	}
	return ""
}
