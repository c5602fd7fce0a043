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

// FaultOf returns why the content of a file cannot be trusted, and what to do, or "". Either everybody may
// write to the file, or it belongs to another user who is not root. For a folder with the sticky bit, in
// which others cannot replace files, only the owner counts. name is the message's name for the file.
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

// inGroup reports whether this process belongs to a group. A volume may be writable for a group that is not
// the primary one.
func inGroup(id int) bool {
	groups, err := os.Getgroups()
	return id == os.Getegid() || err == nil && slices.Contains(groups, id)
}

// maxOwned is the maximum number of files that the error of CheckOwner names.
const maxOwned = 3

// CheckOwner returns an error that names what in a folder belongs to another user, such as files that a
// container has written as root, with the command that gives them to this user. Links are not followed.
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
