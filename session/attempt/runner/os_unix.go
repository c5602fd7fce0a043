//go:build unix

package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopLook is how often a shim looks for a request to stop; the signal is quicker.
const stopLook = time.Second

// stopSignal tells a shim to look for a request to stop.
const stopSignal = syscall.SIGUSR1

// survived are the signals that a shim does not die of: what terminals and
// people send, and who sends to all.
var survived = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXFSZ,
}

// firstEnv is the environment of a process that RunShim is to make a shim of.
func firstEnv(string) []string { return nil }

// detach is done by leave, in the process in between.
func detach(*exec.Cmd) {}

// startDetached runs the process in between, which starts the shim. The shim is
// its child, and so nobody has to wait for it here.
func startDetached(cmd *exec.Cmd) error {
	var words strings.Builder
	cmd.Stderr = &words
	err := cmd.Run()
	if said := strings.TrimSpace(words.String()); err != nil && said != "" {
		return fmt.Errorf("%w: %s", err, said[max(0, len(said)-1000):])
	}
	return err
}

// leave starts this command line again as the shim, in a session of its own.
func leave(dir string) error {
	// What this process has inherited, from an editor say, must not stay open for
	// as long as an agent runs.
	for fd := 3; fd < 1024; fd++ {
		unix.CloseOnExec(fd)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting a shim: %w", err)
	}
	cmd := &exec.Cmd{
		Path: self, Args: os.Args, Dir: "/", Stdout: os.Stdout,
		Env:         append(without(os.Environ(), shimEnv), shimEnv+"="+dir),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a shim: %w", err)
	}
	return cmd.Process.Release()
}

// hangUp ends the line to the Runner.
func hangUp() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		os.Stdout.Close()
		return
	}
	defer null.Close()
	// The number stays taken, so that nothing that is opened later becomes stdout.
	if replaceStdout(int(null.Fd())) != nil {
		os.Stdout.Close()
	}
}

// A group is an agent and all it has started.
type group struct {
	id    int
	ended chan ending // has the agent's end, once

	reaper sync.WaitGroup
	quit   chan struct{}
}

// An ending is how an agent has ended.
type ending struct {
	code   int
	signal string
}

// startGroup starts a command as the leader of a process group of its own, and
// reaps it and whatever of its descendants comes to be a child of this process.
func startGroup(cmd *exec.Cmd) (*group, error) {
	becomeReaper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithShim(cmd.SysProcAttr)
	child := make(chan os.Signal, 1) // one is enough: each look reaps all there is
	signal.Notify(child, syscall.SIGCHLD)
	if err := cmd.Start(); err != nil {
		signal.Stop(child)
		return nil, err
	}
	g := &group{id: cmd.Process.Pid, ended: make(chan ending, 1), quit: make(chan struct{})}
	g.reaper.Go(func() {
		defer signal.Stop(child)
		for {
			g.reap()
			select {
			case <-child:
			case <-g.quit:
				return
			}
		}
	})
	return g, nil
}

// reap takes notice of all children that have ended.
func (g *group) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid <= 0:
			return
		case pid == g.id && status.Exited():
			g.ended <- ending{code: status.ExitStatus()}
		case pid == g.id && status.Signaled():
			g.ended <- ending{code: -1, signal: unix.SignalName(status.Signal())}
		}
	}
}

// terminate asks the group to end.
func (g *group) terminate() { unix.Kill(-g.id, unix.SIGTERM) }

// kill ends the group.
func (g *group) kill() { unix.Kill(-g.id, unix.SIGKILL) }

// alive tells whether something of the group is left.
func (g *group) alive() bool { return unix.Kill(-g.id, 0) == nil }

// close ends what is left of the group, and what of the agent's descendants has
// left it, and reaps it all. It is called once the agent itself has ended.
func (g *group) close() {
	close(g.quit)
	g.reaper.Wait()
	// The leader was reaped, but its number is not given out again before the
	// system has gone round all others, so this reaches nobody else.
	g.kill()
	g.endDescendants()
	g.reap()
}

// nudge tells a shim that somebody has asked it to stop, if it is there.
func nudge(s *startedRecord) bool {
	if s == nil || s.ShimPID <= 0 || s.Boot != bootID() {
		return false
	}
	// Where the system has handles of processes this is one, and the number may
	// pass to another process from here on.
	p, err := os.FindProcess(s.ShimPID)
	if err != nil {
		return false
	}
	defer p.Release()
	if start, ok := startOf(s.ShimPID); !ok || start != s.ShimStart {
		return false
	}
	return p.Signal(stopSignal) == nil
}
