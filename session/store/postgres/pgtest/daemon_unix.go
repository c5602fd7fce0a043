//go:build unix

package pgtest

import (
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
)

// locked has the files that this process has locked, by path.
var locked sync.Map

// lock locks a file until unlock is called or this process ends: exclusively, or shared with others.
func lock(path string, alone bool) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}

	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(f.Fd()), how)
	}

	locked.Store(path, f)
	return err
}

func unlock(path string) {
	if f, ok := locked.LoadAndDelete(path); ok {
		f.(*os.File).Close()
	}
}

// unprivileged returns attributes that give a process its own group, so that a terminal's interrupts do not
// reach it, and the user postgres or nobody if this process runs as root: PostgreSQL refuses to run as root.
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

// chown gives a folder to the user of processes with these attributes.
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
