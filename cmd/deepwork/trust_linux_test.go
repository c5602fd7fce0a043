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

// typing runs a command with a controlling terminal of its own, at which answer is
// typed when it asks, and returns what it printed on stdout and at the terminal.
func typing(t *testing.T, answer string, command ...string) (stdout, screen string, err error) {
	t.Helper()
	return typingAhead(t, "", answer, command...)
}

// typingAhead is typing with a text that is typed before the command starts.
func typingAhead(t *testing.T, ahead, answer string, command ...string) (stdout, screen string, err error) {
	t.Helper()
	stdout, screen, err = tty.Run(exec.CommandContext(t.Context(), command[0], command[1:]...), ahead, answer)
	if errors.Is(err, tty.ErrNone) {
		t.Skip(err)
	}
	return stdout, screen, err
}

// types types an answer to a command that must succeed, or fail, and say all of wants on stdout or at the terminal.
func types(t *testing.T, succeeds bool, answer string, command []string, wants ...string) (shown string) {
	t.Helper()
	out, screen, err := typing(t, answer, command...)
	testkit.Need(t, (err == nil) == succeeds, "%q to %q: %v\n%s%s", answer, command, err, out, screen)
	testkit.ContainsAll(t, out+screen, wants, "%q to %q", answer, command)
	return out + screen
}

// asksAtNoPipe runs a command without a terminal and with a yes on its stdin, which does not count.
func asksAtNoPipe(t *testing.T, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Stdin = strings.NewReader("yes\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	testkit.True(t, err != nil && strings.Contains(string(out), "no terminal to ask at"), "without a terminal: %v, %s", err, out)
}

// The user approves at the terminal, and nowhere else.
func TestTrustAsksAtTheTerminal(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	write := func(text string) {
		t.Helper()
		writeFiles(t, root, map[string]string{".deepwork/config.yml": text})
		must(t, os.WriteFile(filepath.Join(root, "review.sh"), []byte("#!/bin/sh\n"), 0o755))
	}
	trust := []string{"deepwork", "trust", "--path", root}
	list := func(want string) {
		t.Helper()
		out := mustPrint(t, root, "trust", "--list")
		testkit.True(t, strings.Contains(out, want), "%s\nis to contain %q", out, want)
	}
	write("git: {branch: checkout}\nquality_gate:\n  agent_review_command: [./review.sh, \"\\e[2J\"]\n")

	// Not by stdin.
	asksAtNoPipe(t, trust...)
	list("Nothing was approved")

	out, screen, err := typing(t, "no", trust...)
	for _, want := range []string{"git.branch  (", "config.yml:1)", "agent_review_command  (", "config.yml:3)", `"./review.sh" "\x1b[2J"`, `checks the content of "review.sh"`, "coding agents"} {
		testkit.True(t, strings.Contains(out, want), "it does not show %q: %s", want, out)
	}
	testkit.True(t, err != nil && strings.Contains(screen, "Type yes") && strings.Contains(out, "nothing was approved"), "an answer of no: %v, %q, %q", err, out, screen)
	list("Nothing was approved")

	if out, _, err = typingAhead(t, "yes\n", "no", trust...); err == nil || !strings.Contains(out, "nothing was approved") {
		t.Errorf("a yes that was typed before the question: %v, %s", err, out)
	}
	list("Nothing was approved")

	if out, _, err = typing(t, "yes", trust...); err != nil || !strings.Contains(out, "Approved.") {
		t.Errorf("an answer of yes: %v, %s", err, out)
	}
	list("agent_review_command")
	if out, _, err = typing(t, "", trust...); err != nil || !strings.Contains(out, "approved already") {
		t.Errorf("once more: %v, %s", err, out)
	}
	must(t, os.WriteFile(filepath.Join(root, "review.sh"), []byte("#!/bin/sh\n:\n"), 0o755))
	if out, _, _ = typing(t, "no", trust...); !strings.Contains(out, "changed: quality_gate.agent_review_command, the content of review.sh\n") {
		t.Errorf("an edited script: %s", out)
	}
	write("quality_gate:\n  agent_review_command: [./review.sh, other]\nprojects: [{name: p, repos: [{path: /tmp}]}]\n")
	if out, _, _ = typing(t, "no", trust...); !strings.Contains(out, "new: projects.p") || !strings.Contains(out, "gone: git.branch") || !strings.Contains(out, "changed: quality_gate.agent_review_command, which was\n    \"./review.sh\" \"\\x1b[2J\"") {
		t.Errorf("what changed is not shown: %s", out)
	}
	ownUser(t, "trusted_folders: ["+root+"]\n")
	testkit.Contains(t, mustPrint(t, root, "trust"), "needs no approval", "in a trusted folder")
	for _, c := range [][2]string{{"--revoke", "Nothing was approved"}, {"--deny", "is denied"}} { // a denial stays
		mustPrint(t, root, "trust", c[0])
		list(c[1])
	}
}

// The question says how much is asked for, and whose content is checked; nothing is hidden by
// blanks or by characters that are not seen.
func TestTrustHidesNothing(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	text := `projects: [{name: "\u0430bc", repos: [{name: o, path: ../other, setup: [./x.sh]}]}]
executors:
  ENV: {command: [env, A=b, sh, x.sh]}
  FOLDER: {command: [python3, ./pkg]}
  MODULE: {command: [python3, -m, pkg]}
  BARE: {command: [claude, --print, "` + strings.Repeat(" ", 3000) + `evil\u3164\u034f\u200b\u2028\u00a0\u0435"]}
  OPTION: {command: [sh, -e, x.sh]}
`
	writeFiles(t, root, map[string]string{"x.sh": "", "pkg/__main__.py": "", ".deepwork/config.yml": text})
	out, screen, _ := typing(t, "yes", "deepwork", "trust", "--path", root)
	for key, want := range map[string]string{
		"executors.ENV":       `does NOT check the content of "x.sh"`,
		"executors.FOLDER":    `does NOT check the content of "./pkg"`,
		"executors.MODULE":    `does NOT check the content of "pkg"`,
		"executors.BARE":      `does NOT check the content of what it runs`,
		"executors.OPTION":    `checks the content of "x.sh" (SHA-256 e3b0c44298fc…)`,
		`"projects.\u0430bc"`: `does NOT check the content of "../other"`,
	} {
		_, entry, _ := strings.Cut(out, "\n"+key+"  (")
		if entry, _, _ = strings.Cut(entry, "\n\n"); !strings.Contains(entry, "\n  "+want) {
			t.Errorf("%s does not say %s: %s", key, want, entry)
		}
	}
	want := `"claude" "--print" "\x20{3000}evil\u3164\u034f\u200b\u2028\u00a0\u0435"`
	testkit.True(t, strings.Contains(out, want), "it does not show %s: %s", want, out)
	testkit.True(t, strings.Contains(screen, "It asks for 7 things: "), "the question is %q", screen)
	writeFiles(t, root, map[string]string{".deepwork/config.yml": strings.Replace(text, "./x.sh", "./y.sh", 1) + "attempts: {setup: make}\n"})
	out, screen, _ = typing(t, "no", "deepwork", "trust", "--path", root)
	testkit.True(t, strings.Contains(screen, "Since the last approval: 2 changes.\r\nMay") && !strings.Contains(out, "changed: executors"), "after two edits: %s%q", out, screen)
}
