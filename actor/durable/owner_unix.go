//go:build unix

package durable

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"deepwork/actor/process"
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
	case open&0o020 != 0 && !inGroup(int(st.Gid)):
		return fmt.Sprintf("the group %d, which is not yours, may write to %s: run chmod g-w on it", st.Gid, name)
	}

	return ""
}

// inGroup reports whether a group is one of those of this process. A volume may be writable for one that is
// not the first.
func inGroup(id int) bool {
	groups, err := os.Getgroups()
	return id == os.Getegid() || err == nil && slices.Contains(groups, id)
}

// maxOwned bounds the files that the error of CheckOwner names.
const maxOwned = 3

// CheckOwner returns an error that names what belongs to another user in a folder, such as files that a container has
// written as root, with the command that gives them to this user. Links are not followed.
func CheckOwner(dir string) error {
	var others []string
	fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, _ error) error {
		if d == nil {
			return nil
		}
		fi, err := d.Info()
		if err == nil && int(fi.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			others = append(others, name)
		}
		return nil
	})
	if len(others) == 0 {
		return nil
	}

	more := ""
	if left := len(others) - maxOwned; left > 0 {
		more = fmt.Sprintf(" and %d more", left)
	}
	return fmt.Errorf("in %s these belong to another user, as what a container writes does: %s%s; to take them "+
		"over, run: sudo chown -R %d %s", dir, strings.Join(others[:min(len(others), maxOwned)], ", "), more,
		os.Geteuid(), process.InShell(dir))
}
