package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/cmd/proof/tty"
)

// At a terminal init asks for what no flag says; an empty answer is the default.
func TestInitAsks(t *testing.T) {
	ownUser(t, "")
	t.Setenv("HOME", t.TempDir())
	for _, c := range []struct {
		name    string
		flags   []string
		answers []string // in the order of the questions
		want    map[string]string
		absent  string
	}{
		{"all", nil, []string{"claude, codex", "workflows,board", "y"},
			map[string]string{".deepwork/config.yml": "platforms: [claude, codex]\ntoolsets: [workflows, board]\n", ".codex/config.toml": "deepwork", ".claude/settings.json": "deepwork hook compact"}, ""},
		{"the defaults", nil, []string{"", "", ""},
			map[string]string{".deepwork/config.yml": "platforms: [claude]\ntoolsets: [workflows, remote, board]\n", ".claude/skills/deepwork-start/SKILL.md": "start_workflow"}, ""},
		{"not for Claude Code", []string{"--toolsets", "board"}, []string{"codex"}, map[string]string{".deepwork/config.yml": "toolsets: [board]\n"}, ".claude"},
		{"again", nil, []string{"", "no"}, map[string]string{".deepwork/config.yml": "toolsets: [board]\n"}, ".claude"}, // toolsets are not asked again
		{"no skills", []string{"--client", "claude"}, []string{"", "no"}, map[string]string{".mcp.json": "deepwork"}, ".claude"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			if c.name == "again" {
				writeFiles(t, root, map[string]string{".deepwork/config.yml": "toolsets: [board]\n"})
			}
			master, slave, err := tty.Open(100, 40)
			if errors.Is(err, tty.ErrNone) {
				t.Skip(err)
			}
			must(t, err)
			defer master.Close()
			cmd := exec.CommandContext(t.Context(), "deepwork", append([]string{"init", "--path", root}, c.flags...)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			must(t, cmd.Start())
			must(t, slave.Close())
			screen, asked := "", 0
			for buffer := make([]byte, 1024); ; {
				n, err := master.Read(buffer)
				screen += string(buffer[:n])
				if asked < len(c.answers) && strings.Count(screen, "]: ") > asked {
					testkit.Get(master.WriteString(c.answers[asked] + "\n")).Must(t)
					asked++
				}
				if err != nil {
					break // the terminal has no process any more
				}
			}
			if err := cmd.Wait(); err != nil || asked != len(c.answers) || strings.Count(screen, "]: ") != asked {
				t.Fatalf("%v after %d questions:\n%s", err, asked, screen)
			}
			for name, want := range c.want {
				testkit.Contains(t, readAll(root, name), want, "%s", name)
			}
			if _, err := os.Stat(filepath.Join(root, c.absent)); c.absent != "" && err == nil {
				t.Errorf("%s was made", c.absent)
			}
		})
	}
}
