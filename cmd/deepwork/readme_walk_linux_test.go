//go:build !race

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
)

// promised says what commands of README.md print, as regular expressions. All others must succeed, too.
var promised = map[string]string{
	`go run ./cmd/deepwork demo`:             `\d+ claims were checked, and all hold`,
	`deepwork init`:                          `(?s)\.deepwork/jobs\n.*\.mcp\.json\n`,
	`deepwork jobs`:                          `(?s)release_notes .*deepwork_jobs `,
	`deepwork validate`:                      `2 jobs and config.yml checked: 0 faults, 0 warnings`,
	`deepwork jobs show release_notes/notes`: `--- step_instructions ---\n# Write the notes`,
	`deepwork trust`:                         `Approved\.`,
	`deepwork board start latest --executor CLAUDE_CODE`:                                `(?s)I have fixed the login\..*state: +completed`,
	`deepwork board merge latest --squash`:                                              `^merged deepwork/fix-the-login-[0-9a-f]{4} into main`,
	`deepwork board diff latest`:                                                        `\n\+It works on Mondays\.\n`,
	`deepwork run release_notes/write --goal "The notes of 2.0" --executor CLAUDE_CODE`: `(?s)notes +CLAUDE_CODE completed.*state: +complete\n`,
	`deepwork run status latest`:                                                        `goal: +The notes of 2\.0\n`,
	`deepwork run resume latest --max-cost 10`:                                          `the run is complete already`,
}

// unwalked are the commands of README.md that are not run here, each with the reason and the line of .ci/run that
// runs it.
var unwalked = map[string][2]string{
	`go test ./...`:          {`this test is a part of it`, `go test "$patience" ./...`},
	`.ci/release 1.2.3 dist`: {`it reads modules from the Go proxy, and its checkout must be clean`, `.ci/release 0.0.0-ci "$scratch/release"`},
}

// claude stands in for Claude Code, which needs an account: for a step of a run it is the stepper in a
// folder, else it does its task.
const claude = `#!/bin/sh
[ -z "$DEEPWORK_STEP_ID" ] || exec %q %q claude "$@"
cat >/dev/null
echo "It works on Mondays." >login.md && git add login.md && git commit -q -m "Fix the login" && echo "I have fixed the login."
`

const claudePlan = `features write features.md - A login that works on Mondays
features call finished_step {"outputs":{"features.md":"features.md"}}
fixes write fixes.md - None
fixes call finished_step {"outputs":{"fixes.md":"fixes.md"}}
notes write RELEASE_NOTES.md # 2.0
notes call finished_step {"outputs":{"RELEASE_NOTES.md":"RELEASE_NOTES.md"}}
notes call finished_step {"outputs":{"RELEASE_NOTES.md":"RELEASE_NOTES.md"},"quality_review_override_reason":"A subagent says that every criterion is met."}
`

// A newcomer has this repository, a project, Go and git, and nothing else: no settings, and no agent until
// README.md asks for one.
type newcomer struct {
	t         *testing.T
	top       string   // the folder with everything of theirs
	dir       string   // where they are
	env       []string // NAME=VALUE
	met       map[string]bool
	hasClaude bool
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	top := testkit.Dir(t)
	checkout, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	n := &newcomer{t: t, top: top, dir: checkout, met: map[string]bool{}}
	bin, home, project := filepath.Join(top, "bin"), filepath.Join(top, "home"), n.project()
	for _, dir := range []string{bin, home, project} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	for _, name := range []string{"go", "git", "sh", "env", "cat"} {
		path, err := exec.LookPath(name)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	n.env = []string{"HOME=" + home, "PATH=" + bin + ":" + filepath.Join(home, "go", "bin"), "NO_COLOR=1"}
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOCACHE").Output()
	must(t, err)
	for i, dir := range strings.Fields(string(caches)) {
		n.env = append(n.env, []string{"GOMODCACHE=", "GOCACHE="}[i]+dir)
	}
	// With these a release is built as well, so that what this compiles is not compiled again there.
	n.env = append(n.env, "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"config", "user.name", "Newcomer"}, {"config", "user.email", "newcomer@example.com"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		testkit.Git(t, project, args...)
	}
	return n
}

func (n *newcomer) project() string { return filepath.Join(n.top, "your", "project") }

// walk runs a line of a block for the shell.
func (n *newcomer) walk(at, line string) {
	n.t.Helper()
	line, _, _ = strings.Cut(line, " #")
	line = strings.TrimSpace(line)
	n.met[line] = true
	if line == "" || unwalked[line][0] != "" {
		return
	}
	if to, is := strings.CutPrefix(line, "cd "); is {
		n.dir = filepath.Join(n.top, to)
		return
	}
	if strings.Contains(line, "CLAUDE_CODE") && !n.hasClaude {
		if said, err := n.run(line); err == nil || !strings.Contains(said, "not found: claude. Install it") {
			n.t.Fatalf("%s: %s without Claude Code: %v\n%s", at, line, err, said)
		}
		n.installClaude()
	}
	said, err := n.run(line)
	if err != nil {
		n.t.Fatalf("%s: %s: %v\n%s", at, line, err, said)
	}
	if want := promised[line]; !regexp.MustCompile(want).MatchString(said) {
		n.t.Errorf("%s: %s does not print %s:\n%s", at, line, want, said)
	}
}

// run runs a command in the shell, and returns what it prints. Where it asks at the terminal, it hears yes.
func (n *newcomer) run(line string) (said string, err error) {
	n.t.Helper()
	words := append(append([]string{"env", "-i"}, n.env...), "sh", "-c", `cd "$0" && `+line, n.dir)
	if line == "deepwork trust" {
		said, _, err = typing(n.t, "yes", words...)
		return said, err
	}
	out, err := exec.CommandContext(n.t.Context(), words[0], words[1:]...).CombinedOutput()
	return string(out), err
}

func (n *newcomer) installClaude() {
	n.t.Helper()
	stepper, err := exec.LookPath("stepper")
	must(n.t, err)
	dir := filepath.Join(n.top, "stepper")
	testkit.Write(n.t, filepath.Join(dir, "plan"), claudePlan)
	must(n.t, os.WriteFile(filepath.Join(n.top, "bin", "claude"), fmt.Appendf(nil, claude, stepper, dir), 0o755))
	n.hasClaude = true
}

// program returns the program that the newcomer has installed, to be run in the project.
func (n *newcomer) program(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(n.t.Context(), filepath.Join(n.top, "home", "go", "bin", "deepwork"), args...)
	cmd.Dir, cmd.Env, cmd.Stderr = n.project(), n.env, n.t.Output()
	return cmd
}

// connect checks that init has written what README.md shows, and asks for the workflows as a client would.
func (n *newcomer) connect(at, shown string) {
	n.t.Helper()
	written, err := os.ReadFile(filepath.Join(n.project(), ".mcp.json"))
	must(n.t, err)
	type servers struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		}
	}
	var got, want servers
	must(n.t, json.Unmarshal(written, &got))
	must(n.t, json.Unmarshal([]byte(shown), &want))
	if !reflect.DeepEqual(got, want) || want.MCPServers["deepwork"].Command != "deepwork" {
		n.t.Fatalf("%s: deepwork init has written %s", at, written)
	}
	client, err := connect(n.t.Context(), n.program(want.MCPServers["deepwork"].Args...))
	must(n.t, err)
	if reply := callTool(n.t, client, "get_workflows", map[string]any{}); !strings.Contains(string(reply), `"release_notes"`) || !strings.Contains(string(reply), `"new_job"`) {
		n.t.Errorf("%s: the client is offered %s", at, reply)
	}
	must(n.t, client.Close())
}

// write makes the job that README.md shows, with the instructions that it names.
func (n *newcomer) write(text string) {
	n.t.Helper()
	dir := filepath.Join(n.project(), ".deepwork", "jobs", "guide")
	testkit.Write(n.t, filepath.Join(dir, "job.yml"), text)
	for _, m := range regexp.MustCompile(`instructions_file: (\S+)`).FindAllStringSubmatch(text, -1) {
		testkit.Write(n.t, filepath.Join(dir, m[1]), "Do it.\n")
	}
}

// browse opens the page that deepwork ui names, and ends it with Ctrl-C.
func (n *newcomer) browse() {
	n.t.Helper()
	cmd := n.program("ui")
	stdout, err := cmd.StdoutPipe()
	must(n.t, err)
	must(n.t, cmd.Start())
	url, err := bufio.NewReader(stdout).ReadString('\n')
	must(n.t, err)
	jar, err := cookiejar.New(nil)
	must(n.t, err)
	res, err := (&http.Client{Jar: jar}).Get(strings.TrimSpace(url))
	must(n.t, err)
	must(n.t, res.Body.Close())
	must(n.t, cmd.Process.Signal(syscall.SIGINT))
	err = cmd.Wait()
	if exit, is := errors.AsType[*exec.ExitError](err); res.StatusCode != http.StatusOK || is || err != nil {
		n.t.Errorf("the page of deepwork ui: %s; its end: %v, %v", res.Status, err, exit)
	}
}

// README.md can be followed from its first line to its last by somebody who has only Go and git.
func TestReadmeWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program twice, and runs every command of README.md")
	}
	t.Parallel()
	n := newNewcomer(t)
	for _, s := range snippets(t, "sh", "json", "yaml job") {
		switch {
		case s.page != "README.md":
		case s.kind == "json":
			n.connect(s.at(0), s.text)
			if said, err := n.run("git add -A && git commit -q -m deepwork"); err != nil { // as README.md says
				t.Fatal(err, said)
			}
		case s.kind == "yaml job":
			n.write(s.text)
		default:
			for i, line := range strings.Split(strings.TrimSpace(s.text), "\n") {
				n.walk(s.at(i), line)
			}
		}
	}
	n.browse()
	n.walk("at the end", "deepwork check")
	for line := range promised {
		if !n.met[line] {
			t.Errorf("README.md has no command %q any more: remove what it promised", line)
		}
	}
	ci, err := os.ReadFile(filepath.Join("..", "..", ".ci", "run"))
	must(t, err)
	for line, why := range unwalked {
		if !n.met[line] {
			t.Errorf("README.md has no command %q any more, which was not run because %s", line, why[0])
		}
		if !strings.Contains(string(ci), "\n"+why[1]+"\n") {
			t.Errorf(".ci/run does not run %q", line)
		}
	}
}
