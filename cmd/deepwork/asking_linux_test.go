package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/cmd/proof/tty"
	"deepwork/session/codes"
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
	testkit.True(t, err != nil && strings.Contains(string(out), "no terminal to ask at"),
		"without a terminal: %v, %s", err, out)
}

// The user approves at the terminal, and nowhere else.
func TestTrustAsksAtTheTerminal(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	write := func(config, script string) {
		t.Helper()
		writeFiles(t, root, map[string]string{".deepwork/config.yml": config, "review.sh": script})
		must(t, os.Chmod(filepath.Join(root, "review.sh"), 0o755))
	}
	trust := []string{"deepwork", "trust", "--path", root}
	list := func(want string) {
		t.Helper()
		testkit.Contains(t, mustPrint(t, root, "trust", "--list"), want)
	}
	first := "git: {branch: checkout}\nquality_gate:\n  agent_review_command: [./review.sh, \"\\e[2J\"]\n"
	write(first, "#!/bin/sh\n")

	// Not by stdin.
	asksAtNoPipe(t, trust...)
	list("Nothing was approved")
	types(t, false, "no", trust, "git.branch  (", "config.yml:1)", "agent_review_command  (", "config.yml:3)",
		`"./review.sh" "\x1b[2J"`, `checks the content of "review.sh"`, "coding agents", "Type yes",
		"nothing was approved")
	list("Nothing was approved")
	out, _, err := typingAhead(t, "yes\n", "no", trust...) // a yes before the question
	testkit.Fails(t, err, "")
	testkit.Contains(t, out, "nothing was approved")

	list("Nothing was approved")
	types(t, true, "yes", trust, "Approved.")
	list("agent_review_command")
	types(t, true, "", trust, "approved already")
	write(first, "#!/bin/sh\n:\n")
	types(t, false, "no", trust, "changed: quality_gate.agent_review_command, the content of review.sh\n")
	write("quality_gate:\n  agent_review_command: [./review.sh, other]\nprojects: [{name: p, repos: [{path: /tmp}]}]\n",
		"#!/bin/sh\n")
	types(t, false, "no", trust, "new: projects.p", "gone: git.branch",
		"changed: quality_gate.agent_review_command, which was\n    \"./review.sh\" \"\\x1b[2J\"")
	ownUser(t, "trusted_folders: ["+root+"]\n")
	testkit.Contains(t, mustPrint(t, root, "trust"), "needs no approval", "in a trusted folder")
	for _, c := range [][3]string{{"--revoke", "needs none", "needs no approval"},
		{"--deny", "is denied", "is denied"}} {
		testkit.Contains(t, mustPrint(t, root, "trust", c[0]), c[1])
		list(c[2])
	}
}

// A check runs only once the user has approved it at the terminal, as it is; other edits of the job need nothing.
// Checks of additional folders need it too.
func TestChecksRunOnlyAfterTheUserApproved(t *testing.T) {
	additional := testkit.Dir(t)
	ownUser(t, "")
	t.Setenv("DEEPWORK_ADDITIONAL_JOBS_FOLDERS", additional)
	jobOf := func(name, more string) string {
		return runJob(name, "a, b", "a checks: [{run: [sh, check.sh], name: tests"+more+"}]", "b")
	}
	const check = "echo tried >> tried; grep -q good out.txt"
	root := projectOf(t, jobOf("one", ""), "out.txt", "done\n", "check.sh", check)
	writeFiles(t, additional, map[string]string{"two/job.yml": jobOf("two", ", timeout: 1m"), "two/a.md": "Do it."})
	client, _ := startClient(t, root)
	finish := func(id, code string, says ...string) {
		t.Helper()
		r := testkit.Get(client.CallTool(t.Context(), &mcp.CallToolParams{
			Name:      "finished_step",
			Arguments: map[string]any{"outputs": map[string]any{"text": "out.txt"}, "step_id": "a", "session_id": id},
		})).Must(t)
		testkit.Equal(t, codeOf(r), code)
		testkit.ContainsAll(t, resultText(r), says)
	}
	one, two := beginSession(t, client, "one", "Check it"), beginSession(t, client, "two", "Check it")
	for _, id := range []string{one, two} {
		finish(id, codes.Untrusted, "'tests' (sh check.sh)", "deepwork trust --path")
	}
	testkit.Need(t, !fileExists(filepath.Join(root, "tried")), "a check ran before it was approved")

	types(t, true, "yes", []string{"deepwork", "trust", "--path", root}, "checks.one.a.tests", "checks.two.a.tests",
		`"sh" "check.sh"`, `checks the content of "check.sh"`, "5m0s", "Approved.",
		"2 checks (not approved before: 2)")
	testkit.Contains(t, mustPrint(t, root, "trust", "--list"), "checks.two.a.tests", "the list")

	finish(one, "", "Checks failed: 1 of 1", "exit code 1")
	testkit.ContainsAll(t, mustPrint(t, root, "sessions", "show", one),
		[]string{"check tests: failed", "calls whose checks failed: 1"})

	// Another edit of the job needs nothing; another script does.
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": strings.Replace(jobOf("one", ""), "name: A,", "name: B,", 2),
		"out.txt":                    "good\n",
		"check.sh":                   "exit 0 # edited",
	})
	finish(one, codes.Untrusted)
	writeFiles(t, root, map[string]string{"check.sh": check})
	finish(one, "", `"next_step"`)
	testkit.ContainsAll(t, mustPrint(t, root, "sessions", "show", one),
		[]string{"evidence: its checks passed", "check tests passed", "bound to outputs"})

	mustPrint(t, root, "trust", "--revoke")
	finish(two, codes.Untrusted)
	types(t, true, "yes", []string{"deepwork", "sessions", "override", two, "a", "--reason", "known", "--path", root},
		"the check tests: sh check.sh")
	finish(two, "", `"next_step"`)
}

// jobs convert asks at the terminal before it writes, and any answer but yes leaves the file as it is.
func TestConvertAsks(t *testing.T) {
	const old = "name: old\nversion: \"0.3.0\"\nsummary: Old\ndescription: Be careful.\nsteps: [{id: a, name: A, " +
		"description: A, instructions: A, outputs: [a.md]}]\n"
	root := projectOf(t, old)
	for answer, says := range map[string]string{"no": "nothing was written", "yes": "Wrote "} {
		writeFiles(t, root, map[string]string{".deepwork/jobs/one/job.yml": old})
		types(t, answer == "yes", answer, []string{"sh", "-c", `deepwork jobs convert --path "$1" 2>&1`, "sh", root},
			"Write 1 converted job? Type yes: ", says)
		testkit.Equal(t, readAll(root, ".deepwork/jobs/one/job.yml") != old, answer == "yes", "the file is changed")
	}
}

// At a terminal init asks for what no flag says; an empty answer is the default.
func TestInitAsks(t *testing.T) {
	ownUser(t, "")
	t.Setenv("HOME", t.TempDir())
	const board = "toolsets: [board]\n"
	for _, c := range []struct {
		name    string
		flags   []string
		answers []string // in the order of the questions
		want    map[string]string
		absent  string
	}{
		{"all", nil, []string{"claude, codex", "workflows board", "y"},
			map[string]string{
				".deepwork/config.yml":  "platforms: [claude, codex]\ntoolsets: [workflows, board]\n",
				".codex/config.toml":    "deepwork",
				".claude/settings.json": "deepwork hook compact",
			}, ""},
		{"the defaults", nil, []string{"", "", ""},
			map[string]string{
				".deepwork/config.yml":                   "platforms: [claude]\ntoolsets: [workflows, remote, board]\n",
				".claude/skills/deepwork-start/SKILL.md": "start_workflow",
			}, ""},
		{"not for Claude Code", []string{"--toolsets", "board"}, []string{"codex"},
			map[string]string{".deepwork/config.yml": board}, ".claude"},
		// toolsets are not asked again
		{"again", nil, []string{"", "no"}, map[string]string{".deepwork/config.yml": board}, ".claude"},
		{"no skills", []string{"--client", "claude"}, []string{"", "no"}, map[string]string{".mcp.json": "deepwork"},
			".claude"},
	} {
		root := t.TempDir()
		if c.name == "again" {
			writeFiles(t, root, map[string]string{".deepwork/config.yml": board})
		}
		screen, asked, err := answering(t, c.answers, append([]string{"init", "--path", root}, c.flags...)...)
		testkit.Works(t, err, "%s: %s", c.name, screen)
		testkit.True(t, asked == len(c.answers) && strings.Count(screen, "]: ") == asked, "%s: after %d questions:\n%s",
			c.name, asked, screen)

		for name, want := range c.want {
			testkit.Contains(t, readAll(root, name), want, "%s: %s", c.name, name)
		}
		testkit.True(t, c.absent == "" || !fileExists(filepath.Join(root, c.absent)), "%s: %s was made",
			c.name, c.absent)
	}
}

func init() { programs["screen"] = onScreen }

// onScreen runs a command at a terminal, prints what is on its screen, and exits as the command does:
// screen COLUMNS COMMAND [ARG...].
func onScreen() {
	columns, err := strconv.ParseUint(os.Args[1], 10, 16)
	if err != nil {
		panic(err)
	}
	master, slave, err := tty.Open(uint16(columns), 50)
	if err != nil {
		panic(err)
	}

	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	slave.Close()
	var shown bytes.Buffer
	_, _ = shown.ReadFrom(master) // until nobody has the other end open
	_ = cmd.Wait()
	fmt.Print(strings.ReplaceAll(shown.String(), "\r\n", "\n"))
	os.Exit(cmd.ProcessState.ExitCode())
}

// Before init asks it refuses what no answer would change.
func TestInitAsksNothingBeforeItRefuses(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{".deepwork": "a file"})
	for says, flags := range map[string][]string{
		"is not a directory": {"--path", root}, "emacs": {"--path", t.TempDir(), "--client", "emacs"},
	} {
		screen, asked, err := answering(t, []string{"claude", "workflows", "no"}, append([]string{"init"}, flags...)...)
		testkit.Fails(t, err, "exit status")
		testkit.Equal(t, asked, 0, "%s: questions", screen)
		testkit.Contains(t, screen, says)
	}
}

// answering runs deepwork at a terminal and answers its questions in their order. It returns what the
// terminal shows, and how many questions there were.
func answering(t *testing.T, answers []string, args ...string) (screen string, asked int, err error) {
	t.Helper()
	master, slave, err := tty.Open(100, 40)
	if errors.Is(err, tty.ErrNone) {
		t.Skip(err)
	}
	must(t, err)

	cmd := exec.CommandContext(t.Context(), "deepwork", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, errors.Join(cmd.Start(), slave.Close()))
	for buffer := make([]byte, 1024); err == nil; { // until the terminal has no process any more
		var n int
		n, err = master.Read(buffer)
		screen += string(buffer[:n])
		if asked < len(answers) && strings.Count(screen, "]: ") > asked {
			testkit.Get(master.WriteString(answers[asked] + "\n")).Must(t)
			asked++
		}
	}
	must(t, master.Close())
	return screen, asked, cmd.Wait()
}
