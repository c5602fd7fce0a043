//go:build unix

package pgtest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged makes a process its own group, which a terminal's interrupts do not reach, and one
// of the user postgres or nobody if this one is root's: PostgreSQL refuses to run as root.
func unprivileged() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() != 0 {
		return a
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			break
		}
	}
	return a
}

// chown gives a folder to the user of processes with attributes.
func chown(dir string, a *syscall.SysProcAttr) error {
	if a.Credential == nil {
		return nil
	}
	return os.Chown(dir, int(a.Credential.Uid), int(a.Credential.Gid))
}

// alive reports whether the process has not ended.
func (d *daemon) alive() bool {
	var info syscall.WaitStatus
	pid, err := syscall.Wait4(d.cmd.Process.Pid, &info, syscall.WNOHANG, nil)
	return err == nil && pid == 0
}
