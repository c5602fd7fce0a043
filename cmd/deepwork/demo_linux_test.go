package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Ctrl-C, which reaches every process in the terminal's foreground, leaves no folder and no process of the demo: while
// an agent of the board is at work, and the agents of a run.
func TestDemoCleansUpAfterCtrlC(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"   branch: ", "WRITER started"} {
		t.Run(strings.TrimSpace(at), func(t *testing.T) {
			temp := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "deepwork", "demo")
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			seen := false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if !seen && strings.Contains(lines.Text(), at) {
					seen = true
					must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
				}
			}
			err = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); !seen || code != 1 || !strings.Contains(stderr.String(), "demo: interrupted") {
				t.Errorf("it printed %q: %v; exit code %d (%v) and %s", at, seen, code, err, &stderr)
			}
			left, err := os.ReadDir(temp)
			if err != nil || len(left) > 0 {
				t.Errorf("its folder is left: %v, %v", left, err)
			}
			if left := processesWith(t, temp); left != "" {
				t.Errorf("its processes are left:\n%s", left)
			}
		})
	}
}

// processesWith returns the command lines of processes that have a text in their environment.
func processesWith(t *testing.T, text string) (found string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, folder := range folders {
		if env, _ := os.ReadFile(filepath.Join(folder, "environ")); bytes.Contains(env, []byte(text)) {
			line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
			found += fmt.Sprintf("%s %q\n", filepath.Base(folder), line)
		}
	}
	return found
}
