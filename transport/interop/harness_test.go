//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
)

// instructions are what a client is told, as the JSON of its one argument.
type instructions struct {
	Over    string   `json:"over,omitempty"` // stdio, sse or http
	Mode    string   `json:"mode,omitempty"` // of the Python client: legacy, or auto for the newest version
	Command []string `json:"command,omitempty"`
	URL     string   `json:"url,omitempty"`
	Token   string   `json:"token"`
	Root    string   `json:"root"`
	Told    string   `json:"told"`   // is to be made at the first notification of progress
	Config  string   `json:"config"` // is to get the text Later in the middle of the walk
	Later   string   `json:"later"`
}

func (p project) instructions(t *testing.T) instructions {
	return instructions{Root: p.root, Told: p.told, Config: p.config(), Later: sources(t)}
}

type sight struct {
	At         string          `json:"at"`
	Error      bool            `json:"error"`
	Text       string          `json:"text"`
	Structured json.RawMessage `json:"structured"`
	Names      []string        `json:"names"`
	Without    []string        `json:"without"`
	Status     int             `json:"status"`
}

// walk runs a client and returns what it saw, by name.
func walk(t *testing.T, told instructions, argv ...string) map[string]sight {
	t.Helper()
	argument := testkit.Get(json.Marshal(told)).Must(t)
	out := runClient(t, append(argv, string(argument))...)
	all := map[string]sight{}
	for line := range bytes.Lines(out) {
		var s sight
		err := json.Unmarshal(line, &s)
		_, twice := all[s.At]
		testkit.Need(t, err == nil && !twice, "the client printed %q, twice: %t; %v", line, twice, err)

		if string(s.Structured) == "null" {
			s.Structured = nil
		}
		all[s.At] = s
	}
	_, ended := all["end"]
	testkit.Need(t, ended, "the client did not come to its end:\n%s", out)
	return all
}

// wants are what a client must have seen, by the name of the sight: the values at paths of the structured
// content, as JSON, or, where the path is "text", a part of the text.
type wants map[string]map[string]string

func (w wants) check(t *testing.T, saw map[string]sight) {
	t.Helper()
	for at, values := range w {
		s, ok := saw[at]
		testkit.True(t, ok, "%s was not seen", at)
		for path, want := range values {
			if path == "text" {
				testkit.Contains(t, s.Text, want, at)
			} else {
				testkit.Equal(t, s.value(t, path), want, "%s: %s", at, path)
			}
		}
	}
}

// refusals are the calls that must have been refused; all others not.
var refusals = []string{"nobody", "stranger", "nothing", "unknown", "refused", "mistyped", "ahead", "lost"}

// everyWalk is what every client sees: by the name of a sight, paths and what is there.
var everyWalk = wants{
	"server":    {"name": `"deepwork"`, "text": "trip/main"},
	"workflows": {"jobs.0.name": `"trip"`, "jobs.0.workflows.1.name": `"side"`, "errors": `[]`},
	"unknown":   {"text": "ToolError: Workflow 'nowhere' not found"},
	"started":   {"begin_step.step_id": `"collect"`, "stack.0.workflow": `"trip/main"`},
	"refused":   {"text": "ToolError: Output 'notes': file not found at 'docs/notes.md'"},
	"mistyped":  {"text": "declared as type 'file' and must be a single string path"},
	"nested":    {"begin_step.step_id": `"look"`, "stack.0.workflow": `"trip/main"`, "stack.1.workflow": `"trip/side"`},
	"unnested":  {"status": `"workflow_complete"`, "resumed_workflow": `"trip/main"`, "resumed_step": `"collect"`},
	"group": {
		"status":                     `"next_step"`,
		"begin_step.step_id":         `"left"`,
		"concurrent_steps.0.step_id": `"right"`,
		"text":                       "**CONCURRENT STEPS**",
	},
	"right": {"begin_step": `null`, "pending_concurrent_steps": `["left"]`},
	"left":  {"begin_step.step_id": `"judge"`, "begin_step.step_reviews.0.run_each": `"step"`},
	"failed": {
		"status": `"needs_work"`,
		"feedback": `"Try 1 of 3. docs/report.md: say that it is good\n- Not met: Does the report ` +
			`say that it is good?\nCorrect that, then call finished_step again."`,
		"failed_reviews.0.passed": `false`,
	},
	"passed":   {"begin_step.step_id": `"wrap"`},
	"back":     {"begin_step.step_id": `"judge"`},
	"greeted":  {"state": `"completed"`, "result": `{"greeting":"Hello, Ada"}`},
	"projects": {"projects.0.is_root": `true`},
	"created":  {"status": `"todo"`},
	"tasks":    {"tasks.0.title": `"Fix the door"`, "count": `1`},
	"found":    {"begin_step.step_id": `"judge"`, "goal": `"Walk"`},
	"resumed":  {"begin_step.step_id": `"wrap"`},
	"complete": {
		"status":              `"workflow_complete"`,
		"all_outputs.right":   `["docs/right-1.md","docs/right-2.md"]`,
		"all_outputs.summary": `"docs/summary.md"`,
		"stack":               `[]`,
	},
	"second":  {"begin_step.step_id": `"look"`},
	"aborted": {"aborted_workflow": `"trip/side"`, "explanation": `"Seen enough"`},
}

// workflowTools must be listed, each with an output schema.
var workflowTools = []string{"abort_workflow", "finished_step", "get_step", "get_workflows", "go_to_step",
	"start_workflow"}

// judge holds what a client saw against wants, and against what holds for all.
func judge(t *testing.T, told instructions, saw map[string]sight, more wants) {
	t.Helper()
	if told.Token != "" {
		wants{"nobody": {"text": ""}, "stranger": {"text": ""}}.check(t, saw)
	}
	everyWalk.check(t, saw)
	more.check(t, saw)
	for at, s := range saw {
		testkit.Equal(t, s.Error, slices.Contains(refusals, at), "%s: refused: %s", at, s.Text)
		testkit.True(t, !s.Error || s.Structured == nil, "%s is refused and has structured content: %s", at,
			s.Structured)

		// What is in the text is for clients that do not know structured content.
		if !s.Error && s.Structured != nil && strings.HasPrefix(s.Text, "{") {
			var x, y any
			testkit.Need(t, json.Unmarshal(s.Structured, &x) == nil, "%s: structured content %s, text %s", at,
				s.Structured, s.Text)
			testkit.Need(t, json.Unmarshal([]byte(s.Text), &y) == nil, "%s: structured content %s, text %s", at,
				s.Structured, s.Text)
			testkit.True(t, reflect.DeepEqual(x, y), "%s: structured content %s, text %s", at, s.Structured, s.Text)
		}
	}
	tools := saw["tools"]
	testkit.True(t, len(tools.Without) == 0, "without an output schema: %v", tools.Without)
	for _, name := range workflowTools {
		testkit.True(t, slices.Contains(tools.Names, name), "%s is not in %v", name, tools.Names)
	}
	for _, name := range []string{"greet", "count"} {
		testkit.True(t, !slices.Contains(tools.Names, name) && slices.Contains(saw["changed"].Names, name),
			"%s: in tools %v and, later, %v", name, tools.Names, saw["changed"].Names)
	}
	testkit.Equal(t, saw["found"].value(t, "begin_step.session_id"), saw["started"].value(t, "begin_step.session_id"),
		"the session that was resumed")

	progress := saw["progress"]
	testkit.Contains(t, progress.value(t, "0.message"), "quality review of step 'judge'", "progress %s",
		progress.Structured)
}

// value is what is at a path of the structured content, as JSON.
func (s sight) value(t *testing.T, path string) string {
	t.Helper()
	if s.Structured == nil {
		return "nothing"
	}

	var at any
	testkit.Must(t, json.Unmarshal(s.Structured, &at))
	for key := range strings.SplitSeq(path, ".") {
		ok := false
		switch v := at.(type) {
		case map[string]any:
			at, ok = v[key]
		case []any:
			if i, err := strconv.Atoi(key); err == nil && i < len(v) {
				at, ok = v[i], true
			}
		}

		if !ok {
			return "nothing"
		}
	}
	return string(testkit.Get(json.Marshal(at)).Must(t))
}

// A project is a folder with the job trip, and where its reviewer looks for a sign of the client.
type project struct {
	root string
	told string
}

func newProject(t *testing.T) project {
	t.Helper()
	p := project{root: t.TempDir(), told: filepath.Join(t.TempDir(), "told")}
	testkit.Must(t, os.CopyFS(filepath.Join(p.root, ".deepwork", "jobs"), os.DirFS("testdata")))
	p.configure(t, "workflow_tools: {enabled: true}\n")
	return p
}

func (p project) config() string { return filepath.Join(p.root, ".deepwork", "config.yml") }

func (p project) configure(t *testing.T, text string) { testkit.Write(t, p.config(), text) }

// sources is a config with the source that is written with the TypeScript SDK.
func sources(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("workflow_tools:\n  status_interval: 150ms\n  sources:\n    - {name: typescript, command: "+
		"[%q, %q]}\n",
		node(t), filepath.Join(packages(t), "source.mjs"))
}

// command is what serves the project, with the test binary as the reviewer. Clients pass few
// variables on to servers that they start, so env sets those of the state and of the user's config.
func (p project) command(t *testing.T, args ...string) []string {
	t.Helper()
	self := testkit.Get(os.Executable()).Must(t)
	reviewer := fmt.Sprintf("'%s' review '%s'", self, p.told)
	command := []string{"env"}
	for _, name := range []string{state.Env, "XDG_CONFIG_HOME"} {
		command = append(command, name+"="+os.Getenv(name))
	}
	return append(append(command, binary(t), "serve", "--path", p.root, "--quality-gate", reviewer), args...)
}

var listening = regexp.MustCompile(`msg=listening.* url=(\S+)`)

// serve starts a server of many clients on a free port, and returns its URL. When the test is over the server
// is asked to end, and has to.
func (p project) serve(t *testing.T, transport string, args ...string) (url string) {
	t.Helper()
	argv := p.command(t, append(args, "--transport", transport, "--port", "0")...)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	log := new(testkit.Log)
	cmd.Stderr = io.MultiWriter(log, t.Output())
	cmd.Cancel = func() error {
		return cmd.Process.Signal(os.Interrupt)
	}
	cmd.WaitDelay = time.Minute
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		defer cancel()
		testkit.Works(t, cmd.Process.Signal(os.Interrupt))
		testkit.Works(t, cmd.Wait(), "the server")
	})
	testkit.Until(t, "listening", func() bool {
		m := listening.FindStringSubmatch(log.String())
		url = append(m, "", "")[1]
		return m != nil
	})
	return url
}

func newToken(t *testing.T) (token, file string) {
	t.Helper()
	var line bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary(t), "token", "new", "ann")
	cmd.Stderr = &line
	out, err := cmd.Output()
	testkit.Need(t, err == nil, "making a token: %v\n%s", err, &line)

	file = filepath.Join(t.TempDir(), "tokens")
	testkit.Must(t, os.WriteFile(file, line.Bytes(), 0o600))
	return strings.TrimSpace(string(out)), file
}

// whole has deepwork check judge what is on disk.
func (p project) whole(t *testing.T) {
	t.Helper()
	testkit.Works(t, command(p.root, binary(t), "check", "--path", p.root))
}

// review is the reviewer: it passes what says that it is good. Before it says anything the client must have
// been told that a review runs.
func review(told string) {
	task, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}

	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(told); err == nil {
			break
		}
		if time.Now().After(deadline) {
			panic("the client heard nothing of its review for 20 s")
		}
	}
	passed := bytes.Contains(task, []byte("this is good"))
	feedback := map[bool]string{false: "say that it is good"}[passed]
	fmt.Printf(`{"passed": %t, "feedback": %q, "criteria_results": [{"criterion": "good", "passed": %t, `+
		`"feedback": null}]}`+"\n", passed, feedback, passed)
}

// shared is a folder outside the checkout for what all tests use: the binary, the packages of npm, the
// environment of Python.
var shared string

// Everything is made once, by the first test that needs it; the error is for all.
var (
	builtBinary    = sync.OnceValues(buildBinary)
	nodePackages   = sync.OnceValues(installNode)
	codingAgentsAt = sync.OnceValues(installAgents)
	pythonProgram  = sync.OnceValues(installPython)
)

// The test binary is the reviewer of the tests, too: a real subprocess of the server.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "review" {
		review(os.Args[2])
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "review-slowly" {
		reviewSlowly(os.Args[2])
		return
	}

	var err error
	if shared, err = os.MkdirTemp("", "deepwork-interop-"); err != nil {
		panic(err)
	}

	code := statetest.Main(m)
	os.RemoveAll(shared)
	os.Exit(code)
}

// command runs a program to its end, 4 minutes at most; an error has its output.
func command(dir string, argv ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %v: %w\n%s", argv, err, out)
	}
	return nil
}

func buildBinary() (string, error) {
	binary := filepath.Join(shared, "deepwork")
	return binary, command(filepath.Join("..", ".."), "go", "build", "-o", binary, "./cmd/deepwork")
}

// installNode puts the scripts and what they need, in the versions of the lock
// file, into one folder, which it returns. No script of a package is run.
func installNode() (string, error) {
	dir := filepath.Join(shared, "npm")
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		return "", err
	}
	return dir, npmInstall(dir)
}

// npmInstall installs the packages that a folder's package.json names, in the versions of its lock file. With
// newest those without a prerelease in package.json are the newest that npm serves, and it prints which these are.
func npmInstall(dir string) error {
	if os.Getenv(newest) == "" {
		return command(dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	}
	file := filepath.Join(dir, "package.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}

	pinned := regexp.MustCompile(`"([^"]+)": "\d+\.\d+\.\d+"`)
	err = errors.Join(os.WriteFile(file, pinned.ReplaceAll(data, []byte(`"$1": "latest"`)), 0o644),
		os.Remove(filepath.Join(dir, "package-lock.json")),
		command(dir, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"))
	for _, name := range pinned.FindAllSubmatch(data, -1) {
		var of struct{ Version string }
		data, err := os.ReadFile(filepath.Join(dir, "node_modules", string(name[1]), "package.json"))
		if err == nil && json.Unmarshal(data, &of) == nil {
			fmt.Printf("newest: %s %s\n", name[1], of.Version)
		}
	}

	return err
}

// newest is the variable with which .ci/newest has the newest packages tested.
const newest = "DEEPWORK_TEST_NEWEST"

func installAgents() (string, error) {
	dir := filepath.Join(shared, "agents")
	if err := os.CopyFS(dir, os.DirFS("agents")); err != nil {
		return "", err
	}
	return dir, npmInstall(dir)
}

// installPython makes an environment with the packages of requirements.txt, and returns its interpreter.
func installPython() (string, error) {
	dir := filepath.Join(shared, "python")
	python := filepath.Join(dir, "bin", "python")
	if err := command(".", "python3", "-m", "venv", dir); err != nil {
		return "", err
	}
	return python, command(".", python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
		"--only-binary", ":all:", "-r", "requirements.txt")
}

// binary is the built deepwork, packages the folder of npm's packages and of the scripts, agentPackages that of the
// coding agents, and python an interpreter.
func binary(t *testing.T) string        { return testkit.Get(builtBinary()).Must(t) }
func packages(t *testing.T) string      { return testkit.Get(nodePackages()).Must(t) }
func agentPackages(t *testing.T) string { return testkit.Get(codingAgentsAt()).Must(t) }
func python(t *testing.T) string        { return testkit.Get(pythonProgram()).Must(t) }

// node is an interpreter that is new enough for all of the packages: the one that npm has as a package, since
// distributions are years behind; without one for this platform, node in PATH is used.
func node(t *testing.T) string {
	t.Helper()
	arch := strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	path := filepath.Join(packages(t), "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(path); err == nil {
		return path
	}

	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	testkit.Need(t, err == nil, "npm has no node for %s/%s in the lock file, and node is not in PATH: %v", runtime.GOOS,
		runtime.GOARCH, err)

	var major, minor int
	_, err = fmt.Sscanf(string(out), "v%d.%d", &major, &minor)
	testkit.Need(t, err == nil && (major > 22 || major == 22 && minor >= 19),
		"node %s is too old for the clients: put 22.19 or newer into PATH", out)
	return "node"
}
