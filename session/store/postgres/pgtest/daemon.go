package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A daemon is a process that ends with this one, however this one ends.
type daemon struct {
	cmd     *exec.Cmd
	watcher *exec.Cmd
	life    *os.File // one end of a pipe; the watcher reads the other
}

// watch waits until the pipe is closed or, if there is a file $4, until nobody has that locked. Then it ends
// process $1 with signal $2, and removes folder $3, while it holds the lock.
const watch = `if [ -n "$4" ]; then exec 9<"$4"; flock 9; else cat >/dev/null; fi; kill -"$2" "$1"; n=0
while kill -0 "$1" && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1; done; rm -rf "$3"`

// start starts a program as an unprivileged user, with its output in the file log of a folder. When this
// process ends or, if users is not "", when nobody has that file locked any more, a signal ends the program,
// and the folder is removed.
func start(dir, users string, last syscall.Signal, program string, args ...string) (*daemon, error) {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	d := &daemon{cmd: exec.Command(program, args...), life: w}
	d.cmd.SysProcAttr = unprivileged()
	d.cmd.Dir = dir
	d.cmd.Stdout = log
	d.cmd.Stderr = log
	d.cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	if err := d.cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	d.watcher = exec.Command("sh", "-c", watch, "sh", fmt.Sprint(d.cmd.Process.Pid), fmt.Sprint(int(last)), dir, users)
	d.watcher.SysProcAttr, d.watcher.Stdin = unprivileged(), r
	if err := d.watcher.Start(); err != nil {
		d.watcher = nil
		d.end(syscall.SIGKILL)
		return nil, fmt.Errorf("watching %s: %w", program, err)
	}
	return d, nil
}

// end ends the process with a signal, and waits until it has ended.
func (d *daemon) end(by syscall.Signal) {
	if d.watcher != nil {
		_ = d.watcher.Process.Kill() // then the folder stays
		_ = d.watcher.Wait()
	}
	d.life.Close()
	_ = d.cmd.Process.Signal(by)
	_ = d.cmd.Wait()
}
