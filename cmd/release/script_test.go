package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The script refuses what would make a bad release, before it makes a folder.
func TestScriptRefuses(t *testing.T) {
	for _, program := range []string{"bash", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	script, err := os.ReadFile(filepath.Join("..", "..", ".ci", "release"))
	check(t, err)
	around := t.TempDir()
	check(t, exec.CommandContext(t.Context(), "git", "init", "-q", around).Run())
	copied := filepath.Join(around, "unpacked", ".ci", "release")
	check(t, os.MkdirAll(filepath.Dir(copied), 0o755))
	check(t, os.WriteFile(copied, script, 0o755))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"1.2.3"}, 2, "usage: "},
		{[]string{"v1.2.3", "DIR"}, 2, "usage: "},
		{[]string{"1.2", "DIR"}, 2, "usage: "},
		{[]string{"01.2.3", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3-rc..1", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3-", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3+build", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3-rc.1", "DIR"}, 1, "is not a git checkout of its own"},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{copied}, tt.args...)...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit == nil || exit.ExitCode() != tt.code || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: %v\n%s", tt.args, err, out)
		}
		if made, err := os.ReadDir(cmd.Dir); err != nil || len(made) > 0 {
			t.Errorf("%q made %v, %v", tt.args, made, err)
		}
	}
}
