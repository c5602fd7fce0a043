package validate

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

var update = flag.Bool("update", false, "write the golden file")

// The files are those of the script that tests the command, and some that only a system with links has.
func TestWhatIsFound(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the errors of Unix")
	}
	script := testkit.Get(os.ReadFile("../testdata/script/validate.txtar")).Must(t)
	golden := testkit.Get(filepath.Abs("testdata/found.txt")).Must(t)
	dir := testkit.Dir(t)
	for _, file := range strings.Split(string(script), "\n-- ")[1:] {
		name, text, _ := strings.Cut(file, " --\n")
		testkit.Write(t, filepath.Join(dir, name), text+"\n")
	}
	testkit.Write(t, filepath.Join(dir, "bin/sh"), "")
	testkit.Must(t, os.Chmod(filepath.Join(dir, "bin/sh"), 0o700))
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	t.Setenv(config.JobsFoldersEnv,
		strings.Join([]string{dir + "/more", dir + "/none"}, string(filepath.ListSeparator)))
	t.Chdir(dir)
	testkit.Must(t, os.MkdirAll("empty", 0o700))
	t.Setenv("XDG_CONFIG_HOME", dir+"/own")
	testkit.Write(t, "own/deepwork/config.yml", "executors: {OWN: {command: [sh]}}\n")
	testkit.Write(t, "auto/.deepwork/config.yml",
		"attempts: {auto_start: {executor: CODEX, max_in_review: 1}}\nquality_gate: {reviewer_executor: "+
			"GEMINI}\nrun: {executor: OWM}\n")
	testkit.Write(t, "large/.deepwork/config.yml", strings.Repeat("#", config.MaxBytes+1))
	testkit.Must(t, errors.Join(os.MkdirAll("folder/.deepwork/config.yml", 0o700),
		os.MkdirAll("linked/.deepwork/jobs", 0o700)))
	testkit.Must(t, os.Symlink(dir+"/good/.deepwork/jobs/one", "linked/.deepwork/jobs/one"))
	testkit.Must(t, os.Symlink(dir+"/config.bad", "linked/.deepwork/config.yml"))

	var found strings.Builder
	list := func(target string, checks []*Check, err error) {
		text, _ := Summary(checks)
		fmt.Fprintf(&found, "# %s: %s, %v\n", target, text, err)
		for _, c := range checks {
			for _, d := range c.Diagnostics {
				fmt.Fprintln(&found, d)
			}
			if len(c.Diagnostics) == 0 {
				fmt.Fprintln(&found, c.File)
			}
		}
	}
	for _, target := range []string{"good/.deepwork/jobs", "good/.deepwork/jobs/one/job.yml", "bad", "warn", "twice",
		"misnamed", "misnamed/one", "uses", "empty", "nowhere", "config.bad"} {
		checks, err := Folders("", []string{target})
		list(target, checks, err)
	}
	for _, root := range []string{"good", "copies", "agents", "programs", "auto", "large", "folder", "linked",
		"empty"} {
		checks, err := Project(root, func(path string) string { return strings.TrimPrefix(path, dir+"/") })
		list("project "+root, checks, err)
	}
	testkit.Golden(t, golden, strings.ReplaceAll(found.String(), dir, "DIR"), *update)
}

func TestConfigOfAProject(t *testing.T) {
	file := filepath.Join(testkit.Dir(t), ".deepwork", config.FileName)
	testkit.Same(t, testkit.Get(Config(file)).Must(t), config.Default(), "without a file")
	testkit.Write(t, file, "version: \"7\"\n")
	testkit.Equal(t, testkit.Get(Config(file)).Must(t).Version, "7")
	testkit.Write(t, file, "\"a\\e[31m\": 1\n")
	_, err := Config(file)
	testkit.True(t, err != nil && !strings.Contains(err.Error(), "\x1b"), "a fault is told as %q", err)
	testkit.Must(t, errors.Join(os.Remove(file), os.Mkdir(file, 0o700)))
	testkit.Fails(t, testkit.Get(Config(file)).Err(), "it is a folder, not a file")
}

func TestSame(t *testing.T) {
	dir := testkit.Dir(t)
	testkit.Write(t, filepath.Join(dir, "job.yml"), "name: x\n")
	look := func() *Check { return testkit.Get(Folders("", []string{dir})).Must(t)[0] }
	before := look()
	testkit.True(t, look().Same(before) && !before.Same(nil), "a file that did not change differs")
	testkit.Write(t, filepath.Join(dir, "job.yml"), "name: y\nz: 1\n")
	testkit.True(t, !look().Same(before), "a file that changed is the same")
}
