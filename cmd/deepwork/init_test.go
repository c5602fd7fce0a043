package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
	"deepwork/cmd/deepwork/library"
)

// TestLaidOutJobs checks every job that this program lays out, with the files it
// names.
func TestLaidOutJobs(t *testing.T) {
	jobs := t.TempDir()
	for _, dir := range []string{"library/jobs", "demo/jobs"} {
		must(t, os.CopyFS(jobs, os.DirFS(dir)))
	}
	check := func(name string) {
		t.Helper()
		j, faults := job.Load(filepath.Join(jobs, name))
		testkit.Need(t, j != nil, "%v", faults)
		for _, d := range append(job.CheckFiles(j), j.Warnings...) {
			t.Errorf("%s: %v", name, d)
		}
	}
	for _, p := range library.All() {
		if p.Say != "" {
			check(p.Name)
		}
	}
	check("almanac")
	check("newsletter")
}

// There is one example of a job: what init lays out is what the bundled job teaches.
func TestOneExample(t *testing.T) {
	taught := testkit.Get(fs.ReadFile(standard.FS(), "deepwork_jobs/templates/job.yml.example")).Must(t)
	laidOut := testkit.Get(os.ReadFile("library/jobs/" + library.Example + "/job.yml")).Must(t)
	testkit.Same(t, string(laidOut), string(taught), "catalog/standard/jobs/deepwork_jobs/templates/job.yml.example and the library's job.yml")
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
