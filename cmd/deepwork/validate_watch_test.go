package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

// TestValidateWatch edits a job in the ways editors save and reads what the
// real command prints of each.
func TestValidateWatch(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted there")
	}
	root := t.TempDir()
	dir := filepath.Join(root, ".deepwork", "jobs", "one")
	file := filepath.Join(dir, "job.yml")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a", "b"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})

	watch := exec.CommandContext(t.Context(), "deepwork", "validate", "--watch", "--path", root)
	watch.Env = append(os.Environ(), config.JobsFoldersEnv+"=")
	out := testkit.Get(watch.StdoutPipe()).Must(t)
	stderr := testkit.Get(watch.StderrPipe()).Must(t)
	must(t, watch.Start())
	lines, notes := bufio.NewScanner(out), bufio.NewScanner(stderr)
	expect := func(s *bufio.Scanner, want string) {
		t.Helper()
		for s.Scan() {
			if strings.Contains(s.Text(), want) {
				return
			}
			t.Logf("passed over: %s", s.Text())
		}
		t.Fatalf("the output ended without %q", want)
	}
	expect(notes, "1 job checked: 0 errors, 0 warnings")
	expect(notes, "watching")

	// Truncate and write: a fault.
	must(t, os.WriteFile(file, []byte(strings.Replace(jobText("one", "a", "b"), "1.0.0", "one", 1)), 0o644))
	expect(lines, file+":2:")
	expect(notes, "1 error")

	// Rename: the fault is gone.
	must(t, os.WriteFile(file+".new", []byte(jobText("one", "b")), 0o644))
	must(t, os.Rename(file+".new", file))
	expect(lines, file+": ok")

	// A new job, and one that goes.
	writeFiles(t, root, map[string]string{".deepwork/jobs/three/job.yml": jobText("three", "a"), ".deepwork/jobs/three/a.md": "Do it.\n"})
	expect(lines, filepath.Join("three", "job.yml")+": ok")
	must(t, os.RemoveAll(filepath.Join(root, ".deepwork", "jobs", "three")))
	expect(lines, filepath.Join("three", "job.yml")+": removed")

	must(t, watch.Process.Signal(os.Interrupt))
	for lines.Scan() {
		t.Errorf("printed more: %s", lines.Text())
	}
	for notes.Scan() {
		t.Logf("stderr: %s", notes.Text())
	}
	err := watch.Wait()
	testkit.True(t, err == nil, "after an interrupt: %v, want exit 0", err)
}
