package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// A child does not outlive the process that supervises it, even if that has no chance to end it. Nor does a service.
func TestChildEndsWithAKilledParent(t *testing.T) {
	endsWithParent(t, "parent")
	endsWithParent(t, "serving")
}

// A tidy one can remove its lock file before.
func TestTidyChildOfAKilledParentRemovesItsLock(t *testing.T) {
	t.Parallel()
	lock := endsWithParent(t, "tidying") + ".lock"
	testkit.True(t, !exists(lock), "the lock file was left")
}

// endsWithParent kills the parent and returns the path of its PID file when the child has ended.
func endsWithParent(t *testing.T, mode string) (pidFile string) {
	pidFile = filepath.Join(t.TempDir(), "pid")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), modeEnv+"="+mode, "PID_FILE="+pidFile)
	testkit.Must(t, parent.Start())
	pid := 0
	testkit.Until(t, "started", func() bool {
		text, _ := os.ReadFile(pidFile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid != 0
	})
	testkit.Must(t, parent.Process.Kill())
	parent.Wait()
	testkit.Until(t, "ended with its parent", func() bool {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		// dead, and waiting for the process that adopted it
		return err != nil || strings.Contains(string(state), ") Z ")
	})

	return pidFile
}

// The group of a child is ended only if its number is still that child's.
func TestEndGroup(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testkit.Must(t, cmd.Start())
	start := process.StartOf(cmd.Process.Pid)
	for _, other := range []string{"", "1", start + "0"} {
		process.EndGroup(cmd.Process.Pid, other)
	}
	process.EndGroup(0, start)
	testkit.True(t, start != "" && process.StartOf(cmd.Process.Pid) == start,
		"it was ended, or has no start: %q", start)
	process.EndGroup(cmd.Process.Pid, start)
	testkit.Fails(t, cmd.Wait(), "killed")
	process.EndGroup(cmd.Process.Pid, start)
	testkit.Equal(t, process.StartOf(cmd.Process.Pid), "")
}
