package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
)

// A server that is the first process of a container leaves the work to a child, so that it can reap orphans.
func TestAServerThatIsTheFirstProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "deepwork", "serve", "--path", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	stdin := testkit.Get(cmd.StdinPipe()).Must(t)
	if err := cmd.Start(); err != nil {
		t.Skip("a namespace of processes cannot be made here: ", err)
	}

	testkit.Until(t, "with a child that is the server", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		for _, thread := range threads {
			if text, err := os.ReadFile(thread); err == nil && len(text) > 0 {
				return true
			}
		}
		return false
	})
	must(t, errors.Join(stdin.Close(), cmd.Wait()))
}
