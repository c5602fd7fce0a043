package git

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

var must = testkit.Must

// repo makes a repository with settings and a hook that hinder every commit.
func repo(t *testing.T) (dir string, run func(args ...string) string) {
	dir = t.TempDir()
	run = func(args ...string) string {
		t.Helper()
		out, err := Line(t.Context(), Command{Dir: dir, Args: args})
		must(t, err)
		return out
	}
	run("init", "--quiet", "--initial-branch=main")
	for key, value := range map[string]string{"commit.gpgSign": "true", "gpg.program": "false", "user.name": "Someone",
		"core.fsmonitor": filepath.Join(dir, "no-such-monitor"), "core.hooksPath": filepath.Join(dir, ".git", "hooks")} {
		run("config", key, value)
	}
	must(t, os.MkdirAll(filepath.Join(dir, ".git", "hooks"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, ".git", "hooks", "pre-commit"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	return dir, run
}

// Neither the environment nor the repository's settings and hooks change what git
// does, and the settings of a run are not written into the repository.
func TestRunIsGuarded(t *testing.T) {
	dir, run := repo(t)
	other, _ := repo(t)
	for _, name := range Bound {
		t.Setenv(name, filepath.Join(other, ".git"))
	}
	t.Setenv("GIT_AUTHOR_NAME", "Someone")
	t.Setenv("GIT_EXTERNAL_DIFF", "false")
	before, err := os.ReadFile(filepath.Join(dir, ".git", "config"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a\n"), 0o644))
	run("add", "a")
	run("commit", "--quiet", "-m", "one")
	if got := run("log", "-1", "--format=%an %ae %cn"); got != "deepwork deepwork@localhost deepwork" {
		t.Errorf("the commit is by %s", got)
	}
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("b\n"), 0o644))
	if got := run("diff", "--name-only"); got != "a" {
		t.Errorf("changed: %q", got)
	}
	if run("diff"); slices.ContainsFunc(Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_DIR=") }) {
		t.Error("GIT_DIR is passed on")
	}
	after, err := os.ReadFile(filepath.Join(dir, ".git", "config"))
	if err != nil || string(after) != string(before) {
		t.Errorf("the repository's settings are now %s, %v", after, err)
	}
	if _, err := os.Stat(filepath.Join(other, ".git", "index")); err == nil {
		t.Error("git worked in the other repository")
	}
}

// A lock of another git is waited for.
func TestRunWaitsForLocks(t *testing.T) {
	dir, run := repo(t)
	lock := filepath.Join(dir, ".git", "index.lock")
	must(t, os.WriteFile(lock, nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o644))
	if _, err := Once(t.Context(), Command{Dir: dir, Args: []string{"add", "a"}}); !Said(err, "index.lock': File exists") {
		t.Fatal(err)
	}
	defer time.AfterFunc(50*time.Millisecond, func() { os.Remove(lock) }).Stop()
	run("add", "a")
}

func TestErrors(t *testing.T) {
	dir, _ := repo(t)
	_, err := Output(t.Context(), Command{Dir: dir, Args: []string{"rev-parse", "--verify", "--quiet", "no-such-branch"}})
	if ExitCode(err) != 1 {
		t.Errorf("%d, %v", ExitCode(err), err)
	}
	_, err = Output(t.Context(), Command{Dir: dir, Args: []string{"config", "--list"}, Limit: 10})
	if !errors.Is(err, process.ErrTooMuchOutput) || ExitCode(err) != -1 {
		t.Errorf("%d, %v", ExitCode(err), err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err = Output(t.Context(), Command{Dir: dir, Args: []string{"status"}}); err == nil || !strings.Contains(err.Error(), "git program is not in PATH") {
		t.Error(err)
	}
	if got := Fields("a\x00b\x00"); !slices.Equal(got, []string{"a", "b"}) || Fields("") != nil {
		t.Errorf("%q", got)
	}
}
