package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"deepwork/catalog/job"
)

// TestLaidOutJobs checks every job that this package lays out, with the files it
// names.
func TestLaidOutJobs(t *testing.T) {
	jobs := t.TempDir()
	for _, dir := range []string{"template/jobs", "demo/jobs"} {
		must(t, os.CopyFS(jobs, os.DirFS(dir)))
	}
	check := func(name string) {
		t.Helper()
		j, faults := job.Load(filepath.Join(jobs, name))
		if j == nil {
			t.Fatal(faults)
		}
		for _, d := range append(job.CheckFiles(j), j.Warnings...) {
			t.Errorf("%s: %v", name, d)
		}
	}
	check("release_notes")
	check("almanac")
	check("newsletter")
}

// A name is shown on one line.
func TestInitInAFolderWithALineBreakInItsName(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such names there")
	}
	root := filepath.Join(t.TempDir(), "a\ncreated  b\x1b")
	writeFiles(t, root, map[string]string{".mcp.json": "[]"})
	out, err := exec.Command("deepwork", "init", "--path", root).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 || strings.Contains(string(out), "\ncreated  b") || strings.Count(string(out), `/a\ncreated  b\u001b/`) != 6 {
		t.Errorf("%v: %s", err, out)
	}
}
