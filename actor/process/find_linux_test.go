package process_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// What bears a mark is found by it, in whatever session it is; what bears another
// is left alone.
func TestEndMarked(t *testing.T) {
	begin := func(mark string) *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = append(os.Environ(), "PROCESS_TEST_MARK="+mark)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		testkit.Must(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	mine, other := begin("setup-1"), begin("setup-2")
	testkit.Must(t, process.EndMarked(t.Context(), "PROCESS_TEST_MARK=setup-1"))
	mine.Wait()
	if s := mine.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v", mine.ProcessState)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another's is gone: %v", err)
	}
	testkit.Must(t, process.EndMarked(t.Context(), "PROCESS_TEST_MARK=setup-1"))
}
