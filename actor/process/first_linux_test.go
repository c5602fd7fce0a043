package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
)

// The first process of a container reaps orphans, passes signals on, and ends with the exit code of the program.
func TestTheFirstProcessReapsOrphans(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"stdin", "SIGTERM"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), modeEnv+"=first")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		stdin := testkit.Get(cmd.StdinPipe()).Must(t)
		stdout := testkit.Get(cmd.StdoutPipe()).Must(t)
		if err := cmd.Start(); err != nil {
			t.Skip("a namespace of processes cannot be made here: ", err)
		}

		line, _ := bufio.NewReader(stdout).ReadString('\n')
		testkit.Equal(t, line, "orphans\n")
		testkit.Until(t, "reaped", func() bool { return len(childrenOf(cmd.Process.Pid)) == 1 })

		want := 7
		if end == "SIGTERM" {
			want = 128 + int(syscall.SIGTERM)
			testkit.Must(t, cmd.Process.Signal(syscall.SIGTERM))
		} else {
			testkit.Must(t, stdin.Close())
		}
		cmd.Wait()
		testkit.Equal(t, cmd.ProcessState.ExitCode(), want, end)
	}
}

// childrenOf lists the children of a process, those included that nobody has reaped.
func childrenOf(pid int) (all []string) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}
