//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A group is a child and all it has started, but for what left it on purpose.
type group struct{ id int }

// isolate makes the child the leader of a process group of its own.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// adopt returns the group of a child that was started isolated.
func adopt(p *os.Process) (*group, error) { return &group{id: p.Pid}, nil }

// terminate asks the group to end.
func (g *group) terminate() error { return unix.Kill(-g.id, unix.SIGTERM) }

// kill ends the group. It tells whether there was something to end.
func (g *group) kill() bool { return unix.Kill(-g.id, unix.SIGKILL) == nil }

// alive tells whether something of the group is left, zombies included.
func (g *group) alive() bool { return unix.Kill(-g.id, 0) == nil }

// waitGone waits until nothing is left, but no longer than limit.
func (g *group) waitGone(limit time.Duration) {
	for pause, end := time.Millisecond, time.Now().Add(limit); g.alive() && time.Now().Before(end); pause = min(2*pause, 20*time.Millisecond) {
		time.Sleep(pause)
	}
}

func (g *group) close() {}

// signalName is the name of the signal that ended a process, or "".
func signalName(s *os.ProcessState) string {
	status, ok := s.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return ""
	}
	if name := unix.SignalName(status.Signal()); name != "" {
		return name
	}
	return status.Signal().String()
}
