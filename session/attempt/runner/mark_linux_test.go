package runner

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// What bears a mark is found by it, in whatever session it is; what bears another
// is left alone.
func TestEndMarked(t *testing.T) {
	begin := func(mark string) *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = append(os.Environ(), Mark(mark))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	mine, other := begin("setup-1"), begin("setup-2")
	must(t, EndMarked(t.Context(), "setup-1"))
	mine.Wait()
	if s := mine.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v", mine.ProcessState)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another's is gone: %v", err)
	}
	must(t, EndMarked(t.Context(), "setup-1"))
}

// A server that git has started has variables by which git would work on the main
// checkout, wherever it is called.
func TestAgentIsBoundToNoRepository(t *testing.T) {
	b := newBench(t)
	for _, name := range elsewhere {
		t.Setenv(name, "/main/.git")
	}
	t.Setenv("GIT_SSH_COMMAND", "ssh -x")
	s := b.spec("1", "")
	s.Command = []string{"sh", "-c", "env | grep -e =/main -e ^GIT_N -e ^GIT_SSH | sort"}
	s.Env = []string{"GIT_NAMESPACE=own"} // what the config says counts
	b.run(s)
	if got, want := texts(b.log(), Stdout), "GIT_NAMESPACE=own|GIT_SSH_COMMAND=ssh -x"; got != want {
		t.Errorf("the agent has %q, want %q", got, want)
	}
}
