//go:build unix

package process

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// A group is a process group: a child and all descendants that have not left it on purpose.
type group struct {
	all         bool // Spec.Descendants
	tidy        bool // Spec.Tidy
	id          int
	detachedToo bool           // Spec.detachedToo
	orphans     chan os.Signal // SIGCHLD, if all is set; one is enough, since reap reaps every ended child
}

// start starts a command as the leader of a new group.
func (g *group) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if g.tidy {
		dieWithParent(cmd.SysProcAttr, syscall.SIGTERM)
	} else {
		dieWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	}
	if g.all {
		becomeReaper()
		g.orphans = make(chan os.Signal, 1)
		signal.Notify(g.orphans, syscall.SIGCHLD)
	}
	if err := cmd.Start(); err != nil {
		g.close()
		return err
	}
	g.id = cmd.Process.Pid
	return nil
}

// wait reaps the leader, and meanwhile the orphans that this process adopts.
func (g *group) wait(cmd *exec.Cmd) (code int, signal string) {
	if !g.all {
		cmd.Wait() // ProcessState has its result, too
		return exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus))
	}

	for {
		if leader := g.reap(); leader != nil {
			return exitOf(*leader)
		}
		<-g.orphans
	}
}

// reap reaps every ended child, and returns the status of the leader if that is one of them.
func (g *group) reap() (leader *syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return leader
		case pid == g.id:
			leader = &status
		}
	}
}

// terminate asks the group to end.
func (g *group) terminate() error { return unix.Kill(-g.id, unix.SIGTERM) }

// kill kills the group, and reports whether any process was left to kill.
func (g *group) kill() bool { return unix.Kill(-g.id, unix.SIGKILL) == nil }

// alive reports whether any process of the group is left, including zombies. Call it only after the leader is
// reaped.
func (g *group) alive() bool {
	if g.all {
		g.reap()
	}
	return unix.Kill(-g.id, 0) == nil
}

// EndGroup kills the group of a child whose parent was killed, unless the child's number belongs to another process by
// now. start is when the child started; see StartOf.
func EndGroup(child int, start string) {
	// As long as a member of the group lives, its number is not reused. So if another process has that
	// number, the group is gone.
	if now := StartOf(child); child <= 0 || start == "" || now != "" && now != start {
		return
	}
	unix.Kill(-child, unix.SIGKILL)
}

func (g *group) close() {
	if g.all {
		signal.Stop(g.orphans)
	}
}

// exitOf returns the exit code, or -1 and the name of a signal.
func exitOf(status syscall.WaitStatus) (code int, signal string) {
	if !status.Signaled() {
		return status.ExitStatus(), ""
	}
	if name := unix.SignalName(status.Signal()); name != "" {
		return -1, name
	}
	return -1, status.Signal().String()
}

// survived has the signals that end a Go program, out of those that terminals and people send and those sent
// to all processes. A Go program survives the others anyway, and catching each of these takes a tenth of a
// millisecond.
var survived = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE}

// startDetached starts a command as an orphan: the shell in between ends at once.
func startDetached(cmd *exec.Cmd) error {
	if _, err := exec.LookPath(cmd.Path); err != nil {
		return err // the shell could not report this
	}

	// Files that this process has inherited, for example from an editor, must not stay open while it runs.
	for fd := 3; fd < 1024; fd++ {
		unix.CloseOnExec(fd)
	}

	shell := &exec.Cmd{
		Path:   "/bin/sh",
		Args:   slices.Concat([]string{"sh", "-c", `"$@" &`, "sh", cmd.Path}, cmd.Args[1:]),
		Env:    cmd.Env,
		Dir:    cmd.Dir,
		Stdout: cmd.Stdout,
	}
	return shell.Run()
}

// leaveSession makes this process the leader of a new session.
func leaveSession() { unix.Setsid() } // fails if it already is one
