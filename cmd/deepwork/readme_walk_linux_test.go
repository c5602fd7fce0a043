//go:build !race

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// promised says what commands of README.md print, as regular expressions. All others must succeed, too.
var promised = map[string]string{
	`go run ./cmd/deepwork demo`:                         `All of it works here`,
	`deepwork init`:                                      `(?s)\.deepwork/jobs\n.*\.mcp\.json\n`,
	`deepwork jobs`:                                      `(?s)release_notes .*deepwork_jobs `,
	`deepwork validate`:                                  `2 jobs and config.yml checked: 0 errors, 0 warnings`,
	`deepwork jobs show release_notes/write_notes`:       `--- step_instructions ---\n# Write the notes`,
	`deepwork trust`:                                     `Approved\.|approved already`,
	`deepwork board start latest --executor CLAUDE_CODE`: `(?s)I have fixed the login\..*state: +completed`,
	`deepwork board merge latest --squash`:               `^merged deepwork/fix-the-login-[0-9a-f]{4} into main`,
	`deepwork board diff latest`:                         `\n\+It works on Mondays\.\n`,
	`deepwork run release_notes/write --goal "The notes of 2.0" --executor CLAUDE_CODE`: `(?s)write_notes ` +
		`+CLAUDE_CODE completed.*state: +completed\n`,
	`deepwork run status latest`:               `goal: +The notes of 2\.0\n`,
	`deepwork run resume latest --max-cost 10`: `the run is completed already`,
}

// unwalked are the commands of the pages that are not run here, and why.
var unwalked = map[string]string{
	`go test ./...`:          `this test is a part of it`,
	`.ci/release 1.2.3 dist`: `it reads modules from the Go proxy, and its checkout must be clean`,
	`docker run -i --rm --user "$(id -u):$(id -g)" -v "$PWD:$PWD" -w "$PWD" -v ` +
		`"$HOME/.local/state/deepwork:/state" NAME:1.2.3`: `it needs Docker`,
	`createuser --pwprompt deepwork && createdb --owner deepwork ` +
		`deepwork`: `it needs PostgreSQL`,
	`export DEEPWORK_STORE='postgres://deepwork@db.example.com/deepwork?sslmode=verify-full'`: `it needs PostgreSQL`,
	`deepwork store migrate --project ` +
		`shop`: `it needs PostgreSQL`,
	`deepwork serve --project ` +
		`shop`: `it needs PostgreSQL`,
	`deepwork store status --project ` +
		`shop`: `it needs PostgreSQL`,
	`deepwork store copy --from files --to ` +
		`"$DEEPWORK_STORE"`: `it needs PostgreSQL`,
	`deepwork worker --executors CLAUDE_CODE --max ` +
		`2`: `it needs PostgreSQL`,
	`deepwork serve --transport http --host 0.0.0.0 --token-file tokens --tls-cert cert.pem --tls-key ` +
		`key.pem`: `it needs a certificate`,
	`deepwork serve --transport http --token-file tokens --allowed-host deep.example.com`: `it ` +
		`ends with the server`,
	`claude mcp add --transport http deepwork https://HOST:8000/mcp --header "Authorization: Bearer TOKEN"`: `it ` +
		`needs Claude Code`,
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
		case s.kind == "sh":
			for i, line := range strings.Split(strings.TrimSpace(s.text), "\n") {
				n.walk(s.at(i), line)
			}
		case s.kind == "json":
			n.connect(s.at(0), s.text)
			n.must("git add -A && git commit -q -m deepwork") // as README.md says
		case s.kind == "yaml job":
			n.write(s.text)
		}
	}
	n.walk("at the end", "deepwork check")
	for _, line := range []string{`go test "$patience" ./...`, `.ci/release 0.0.0-ci "$scratch/release"`} {
		is := slices.Contains(strings.FieldsFunc(readAll("..", "..", ".ci", "run"), func(r rune) bool {
			return r == '\n' || r == '\t'
		}), line)
		testkit.True(t, is, ".ci/run does not have %q any more: who runs that command of README.md?", line)
	}
}

// Each tutorial and how-to can be followed in a project of its own, and its commands and calls print what it shows.
func TestDocsWalk(t *testing.T) {
	t.Parallel()
	followed := 0
	for _, page := range testkit.Pages(t, filepath.Join("..", "..")) {
		name, ok := strings.CutPrefix(page.Path, testkit.Docs)
		if !ok || !strings.HasPrefix(name, "tutorials/") && !strings.HasPrefix(name, "howto/") {
			continue
		}
		blocks := snippetsOf(page)
		if !slices.ContainsFunc(blocks, func(s snippet) bool { return s.kind == "sh" || s.kind == "console" }) {
			continue
		}

		followed++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newReader(t, page)
			if name == "tutorials/contain.md" {
				needContain(t)
				n.env[1] += ":/usr/bin:/bin" // as for everybody: contained programs see these
			}
			for _, s := range blocks {
				n.follow(s)
			}
		})
	}
	testkit.True(t, followed >= 8, "only %d pages have commands", followed)
}

// claude stands in for Claude Code, which needs an account: for a step of a run it is the stepper in a
// folder, else it does its task.
const claude = `#!/bin/sh
[ -z "$DEEPWORK_STEP_ID" ] || exec %q %q claude "$@"
cat >/dev/null
echo "It works on Mondays." >>login.md && git add login.md && git commit -q -m "Fix the login" && echo "I have ` +
	`fixed the login."
`

const claudePlan = `collect_features write features.md - A login that works on Mondays
collect_features call finished_step {"outputs":{"features":"features.md"}}
collect_fixes write fixes.md - None
collect_fixes call finished_step {"outputs":{"fixes":"fixes.md"}}
collect_fixes call finished_step {"outputs":{"fixes":"fixes.md"},"quality_review_override_reason":"Nothing is ` +
	`breaking, and there is no page to review."}
write_notes write notes.md # 2.0
write_notes call finished_step {"outputs":{"notes":"notes.md"}}
write_notes call finished_step {"outputs":{"notes":"notes.md"},"quality_review_override_reason":"A subagent says ` +
	`that every criterion is met."}
`

// A newcomer has this repository, a project, Go and git, and nothing else: no settings but their name in git, and no
// agent until README.md asks for one.
type newcomer struct {
	t         *testing.T
	top       string   // the folder with everything of theirs
	dir       string   // where they are
	env       []string // NAME=VALUE
	hasClaude bool
	agent     *mcp.ClientSession // of a page; nil before its first call
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	top := testkit.Dir(t)
	checkout := testkit.Get(filepath.Abs(filepath.Join("..", ".."))).Must(t)
	n := &newcomer{t: t, top: top, dir: checkout}
	bin := filepath.Join(top, "bin")
	home := filepath.Join(top, "home")
	project := n.project()
	for _, dir := range []string{bin, home, project} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	for _, name := range []string{"go", "git", "sh", "env", "cat", "chmod", "grep", "cp", "mkdir"} {
		must(t, os.Symlink(testkit.Get(exec.LookPath(name)).Must(t), filepath.Join(bin, name)))
	}
	n.env = []string{"HOME=" + home, "PATH=" + bin + ":" + filepath.Join(home, "go", "bin"), "NO_COLOR=1"}

	// With the same settings, what go test has compiled is not compiled again.
	names := []string{"GOMODCACHE", "GOCACHE", "CGO_ENABLED"}
	settings := testkit.Get(exec.CommandContext(t.Context(), "go", append([]string{"env"}, names...)...).Output()).
		Must(t)
	for i, value := range strings.Fields(string(settings)) {
		n.env = append(n.env, names[i]+"="+value)
	}

	if path, err := exec.LookPath("gcc"); err == nil {
		must(t, os.Symlink(path, filepath.Join(bin, "gcc")))
	}

	// A newcomer has made the checkout; here somebody else may own it.
	testkit.Write(t, filepath.Join(home, ".gitconfig"),
		"[user]\n\tname = Newcomer\n\temail = newcomer@example.com\n[safe]\n\tdirectory = "+checkout+"\n")
	n.env = append(n.env, "GOFLAGS=-ldflags=-w")
	testkit.Git(t, project, "init", "-q", "-b", "main")
	testkit.Git(t, project, "commit", "-q", "--allow-empty", "-m", "first")
	return n
}

func (n *newcomer) project() string { return filepath.Join(n.top, "your", "project") }

// walk runs a line of a block for the shell.
func (n *newcomer) walk(at, line string) {
	n.t.Helper()
	line, _, _ = strings.Cut(line, " #")
	line = strings.TrimSpace(line)
	if line == "" || unwalked[line] != "" {
		return
	}
	switch line {
	case "deepwork ui":
		n.browse()
		return
	case "deepwork serve --transport http":
		n.serve()
		return
	}
	if to, ok := strings.CutPrefix(line, "cd "); ok {
		n.dir = filepath.Join(n.top, to)
		return
	}
	if strings.Contains(line, "CLAUDE_CODE") && !n.hasClaude {
		said, err := n.run(line)
		testkit.Need(n.t, err != nil && strings.Contains(said, "not found: claude. Install it"),
			"%s: %s without Claude Code: %v\n%s", at, line, err, said)
		n.installClaude()
	}
	said, err := n.run(line)
	testkit.Need(n.t, err == nil, "%s: %s: %v\n%s", at, line, err, said)

	want := promised[line]
	testkit.True(n.t, regexp.MustCompile(want).MatchString(said), "%s: %s does not print %s:\n%s", at, line, want, said)
}

// run runs a command in the shell, and returns what it prints. Where it asks at the terminal, it hears yes.
func (n *newcomer) run(line string) (said string, err error) {
	n.t.Helper()
	dir := n.dir
	if strings.Contains(line, "your/project") {
		dir = n.top
	}
	words := append(append([]string{"env", "-i"}, n.env...), "sh", "-c", `cd "$0" && `+line, dir)
	// a person's decision
	if line == "deepwork trust" || strings.HasPrefix(line, "deepwork sessions ") && strings.Contains(line, " --") {
		said, _, err = typing(n.t, "yes", words...)
		return said, err
	}
	out, err := exec.CommandContext(n.t.Context(), words[0], words[1:]...).CombinedOutput()
	return string(out), err
}

func (n *newcomer) installClaude() {
	n.t.Helper()
	stepper := testkit.Get(exec.LookPath("stepper")).Must(n.t)
	dir := filepath.Join(n.top, "stepper")
	testkit.Write(n.t, filepath.Join(dir, "plan"), claudePlan)
	must(n.t, os.WriteFile(filepath.Join(n.top, "bin", "claude"), fmt.Appendf(nil, claude, stepper, dir), 0o755))
	n.hasClaude = true
}

// program returns the program that the newcomer has installed, to be run in the project.
func (n *newcomer) program(args ...string) *exec.Cmd {
	path := filepath.Join(n.top, "bin", "deepwork") // of a page
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(n.top, "home", "go", "bin", "deepwork")
	}
	cmd := exec.CommandContext(n.t.Context(), path, args...)
	cmd.Dir = n.project()
	cmd.Env = n.env
	cmd.Stderr = n.t.Output()
	return cmd
}

// connect checks that init has written what README.md shows, and asks for the workflows as a client would.
func (n *newcomer) connect(at, shown string) {
	n.t.Helper()
	written := testkit.Get(os.ReadFile(filepath.Join(n.project(), ".mcp.json"))).Must(n.t)
	type servers struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		}
	}

	var got, want servers
	must(n.t, json.Unmarshal(written, &got))
	must(n.t, json.Unmarshal([]byte(shown), &want))
	testkit.Need(n.t, reflect.DeepEqual(got, want) && want.MCPServers["deepwork"].Command == "deepwork",
		"%s: deepwork init has written %s", at, written)
	client := testkit.Get(connect(n.t.Context(), n.program(want.MCPServers["deepwork"].Args...))).Must(n.t)
	testkit.ContainsAll(n.t, string(callTool(n.t, client, "get_workflows", map[string]any{})),
		[]string{`"release_notes"`, `"new_job"`}, "%s: the client is offered", at)
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
	stdout := testkit.Get(cmd.StdoutPipe()).Must(n.t)
	must(n.t, cmd.Start())
	opened(n.t, testkit.Get(bufio.NewReader(stdout).ReadString('\n')).Must(n.t))
	must(n.t, cmd.Process.Signal(syscall.SIGINT))
	testkit.Works(n.t, cmd.Wait(), "the end of deepwork ui")
}

// serve asks a server over HTTP whether it is ready, and ends it with Ctrl-C. Its port is another one than on the page,
// which somebody may use.
func (n *newcomer) serve() {
	n.t.Helper()
	cmd := n.program("serve", "--path", n.project(), "--transport", "http", "--port", "0")
	cmd.Stderr = nil
	url, log := startServer(n.t, cmd)
	res := testkit.Get(http.Get(strings.Replace(url, "/mcp", "/healthz", 1))).Must(n.t)
	must(n.t, res.Body.Close())
	must(n.t, cmd.Process.Signal(syscall.SIGINT))
	testkit.Get(io.Copy(n.t.Output(), log)).Must(n.t)
	err := cmd.Wait()
	testkit.True(n.t, err == nil && res.StatusCode == http.StatusOK, "/healthz of the server: %s; its end: %v",
		res.Status, err)
}

// readerPlan is what the agents of a run in a tutorial do.
const readerPlan = `features write features.md - A login that works on Mondays
features call finished_step {"outputs":{"features":"features.md"}}
fixes write fixes.md - None
fixes call finished_step {"outputs":{"fixes":"fixes.md"}}
notes write notes.md # 2.0
notes call finished_step {"outputs":{"notes":"notes.md"}}
`

// newReader returns somebody who follows a page of the documentation in a project of their own, where deepwork init was
// run unless the page does.
func newReader(t *testing.T, page testkit.Page) *newcomer {
	t.Helper()
	n := newNewcomer(t)
	n.dir = n.project()
	must(t, os.Symlink(testkit.Get(exec.LookPath("deepwork")).Must(t), filepath.Join(n.top, "bin", "deepwork")))
	if strings.Contains(page.Text, "CLAUDE_CODE") {
		n.installClaude()
		testkit.Write(t, filepath.Join(n.top, "stepper", "plan"), readerPlan)
	}
	if !strings.Contains(page.Text, "deepwork init\n") {
		n.must("deepwork init")
	}
	t.Cleanup(func() {
		if n.agent != nil {
			n.agent.Close()
		}
	})
	return n
}

func (n *newcomer) must(line string) string {
	n.t.Helper()
	said, err := n.run(line)
	testkit.Need(n.t, err == nil, "%s: %v\n%s", line, err, said)
	return said
}

// follow does what a block of a page says.
func (n *newcomer) follow(s snippet) {
	n.t.Helper()
	if _, file, ok := strings.Cut(s.kind, " file="); ok {
		path := filepath.Join(n.project(), file)
		testkit.Write(n.t, path, s.text)
		if strings.HasPrefix(s.text, "#!") {
			must(n.t, os.Chmod(path, 0o755))
		}
		return
	}
	lines := strings.Split(strings.TrimSpace(s.text), "\n")
	switch s.kind {
	case "sh":
		for i, line := range lines {
			n.walk(s.at(i), line)
		}
	case "console":
		said := ""
		for i, line := range lines {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				said = n.must(command)
				continue
			}
			said = n.expect(s.at(i), line, said)
		}
	case "agent":
		said := ""
		for i, line := range lines {
			call, ok := strings.CutPrefix(line, "-> ")
			if !ok {
				said = n.expect(s.at(i), strings.TrimPrefix(line, "<- "), said)
				continue
			}
			if n.agent == nil {
				n.agent = testkit.Get(connect(n.t.Context(), n.program("serve", "--path", "."))).Must(n.t)
			}
			tool, arguments, _ := strings.Cut(call, " ")
			said = resultText(testkit.Get(n.agent.CallTool(n.t.Context(),
				&mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})).Must(n.t))
		}
	}
}

var changing = regexp.MustCompile(`\b[0-9a-f]{8}\b|-[0-9a-f]{4}\b|\b[0-9.]+m?s\b|\b[0-9a-f]{40,}\b`)

// expect checks that a text has the parts of a line, between which a page has …, and returns what follows.
// Ids, hashes and times may be others.
func (n *newcomer) expect(at, line, said string) string {
	n.t.Helper()
	rest := changing.ReplaceAllString(said, "#")
	for part := range strings.SplitSeq(changing.ReplaceAllString(line, "#"), "…") {
		part = strings.TrimSpace(part)
		_, after, found := strings.Cut(rest, part)
		if !found {
			n.t.Errorf("%s: %q is not in\n%s", at, part, said)
			return said
		}
		rest = after
	}
	return rest
}
