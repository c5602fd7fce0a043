//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/state"
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

// sight is a line that a client printed.
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

// A want is what a client must have seen: the value at a path of the structured
// content, as JSON, or, where the path is "text", a part of the text.
type want struct{ at, path, is string }

func (w want) check(t *testing.T, saw map[string]sight) {
	t.Helper()
	s, ok := saw[w.at]
	testkit.True(t, ok, "%s was not seen", w.at)
	if w.path == "text" {
		testkit.Contains(t, s.Text, w.is, "%s", w.at)
	} else {
		testkit.Equal(t, s.value(t, w.path), w.is, "%s: %s", w.at, w.path)
	}
}

// refusals are the calls that must have been refused; all others not.
var refusals = []string{"nobody", "stranger", "nothing", "unknown", "refused", "mistyped", "ahead", "lost"}

// everyWalk is what every client sees.
var everyWalk = []want{
	{"server", "name", `"deepwork"`},
	{"server", "text", "trip/main"},
	{"workflows", "jobs.0.name", `"trip"`},
	{"workflows", "jobs.0.workflows.1.name", `"side"`},
	{"workflows", "errors", `[]`},
	{"unknown", "text", "ToolError: Workflow 'nowhere' not found"},
	{"started", "begin_step.step_id", `"collect"`},
	{"started", "stack.0.workflow", `"trip/main"`},
	{"refused", "text", "ToolError: Output 'notes': file not found at 'docs/notes.md'"},
	{"mistyped", "text", "declared as type 'file' and must be a single string path"},
	{"nested", "begin_step.step_id", `"look"`},
	{"nested", "stack.0.workflow", `"trip/main"`},
	{"nested", "stack.1.workflow", `"trip/side"`},
	{"unnested", "status", `"workflow_complete"`},
	{"unnested", "resumed_workflow", `"trip/main"`},
	{"unnested", "resumed_step", `"collect"`},
	{"group", "status", `"next_step"`},
	{"group", "begin_step.step_id", `"left"`},
	{"group", "concurrent_steps.0.step_id", `"right"`},
	{"group", "text", "**CONCURRENT STEPS**"},
	{"right", "begin_step", `null`},
	{"right", "pending_concurrent_steps", `["left"]`},
	{"left", "begin_step.step_id", `"judge"`},
	{"left", "begin_step.step_reviews.0.run_each", `"step"`},
	{"failed", "status", `"needs_work"`},
	{"failed", "feedback", `"Try 1 of 3. docs/report.md: say that it is good\n- Not met: Does the report say that it is good?\nCorrect that, then call finished_step again."`},
	{"failed", "failed_reviews.0.passed", `false`},
	{"passed", "begin_step.step_id", `"wrap"`},
	{"back", "begin_step.step_id", `"judge"`},
	{"greeted", "state", `"completed"`},
	{"greeted", "result", `{"greeting":"Hello, Ada"}`},
	{"projects", "projects.0.is_root", `true`},
	{"created", "status", `"todo"`},
	{"tasks", "tasks.0.title", `"Fix the door"`},
	{"tasks", "count", `1`},
	{"found", "begin_step.step_id", `"judge"`},
	{"found", "goal", `"Walk"`},
	{"resumed", "begin_step.step_id", `"wrap"`},
	{"complete", "status", `"workflow_complete"`},
	{"complete", "all_outputs.right", `["docs/right-1.md","docs/right-2.md"]`},
	{"complete", "all_outputs.summary", `"docs/summary.md"`},
	{"complete", "stack", `[]`},
	{"second", "begin_step.step_id", `"look"`},
	{"aborted", "aborted_workflow", `"trip/side"`},
	{"aborted", "explanation", `"Seen enough"`},
}

// workflowTools must be listed, each with an output schema.
var workflowTools = []string{"abort_workflow", "finished_step", "get_step", "get_workflows", "go_to_step", "start_workflow"}

// judge holds what a client saw against wants, and against what holds for all.
func judge(t *testing.T, told instructions, saw map[string]sight, wants ...want) {
	t.Helper()
	if told.Token != "" {
		wants = append(wants, want{"nobody", "text", ""}, want{"stranger", "text", ""})
	}
	for _, w := range wants {
		w.check(t, saw)
	}
	for at, s := range saw {
		testkit.Equal(t, s.Error, slices.Contains(refusals, at), "%s: refused: %s", at, s.Text)
		testkit.True(t, !s.Error || s.Structured == nil, "%s is refused and has structured content: %s", at, s.Structured)
		// What is in the text is for clients that do not know structured content.
		if !s.Error && s.Structured != nil && strings.HasPrefix(s.Text, "{") {
			var x, y any
			testkit.True(t, json.Unmarshal(s.Structured, &x) == nil && json.Unmarshal([]byte(s.Text), &y) == nil && reflect.DeepEqual(x, y), "%s: structured content %s, text %s", at, s.Structured, s.Text)
		}
	}
	tools := saw["tools"]
	testkit.True(t, len(tools.Without) == 0, "without an output schema: %v", tools.Without)
	for _, name := range workflowTools {
		testkit.True(t, slices.Contains(tools.Names, name), "%s is not in %v", name, tools.Names)
	}
	for _, name := range []string{"greet", "count"} {
		testkit.True(t, !slices.Contains(tools.Names, name) && slices.Contains(saw["changed"].Names, name), "%s: in tools %v and, later, %v", name, tools.Names, saw["changed"].Names)
	}
	testkit.Equal(t, saw["found"].value(t, "begin_step.session_id"), saw["started"].value(t, "begin_step.session_id"), "the session that was resumed")
	progress := saw["progress"]
	testkit.Contains(t, progress.value(t, "0.message"), "quality review of step 'judge'", "progress %s", progress.Structured)
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
	return fmt.Sprintf("workflow_tools:\n  status_interval: 150ms\n  sources:\n    - {name: typescript, command: [%q, %q]}\n",
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

// serve starts a server of many clients on a free port, and returns its URL. When
// the test is over the server is asked to end, and has to.
func (p project) serve(t *testing.T, transport string, args ...string) string {
	t.Helper()
	argv := p.command(t, append(args, "--transport", transport, "--port", "0")...)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	log := testkit.Get(cmd.StderrPipe()).Must(t)
	testkit.Must(t, cmd.Start())
	url := make(chan string, 1) // one value; closed when the log ends
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(url)
		lines, found := bufio.NewScanner(io.TeeReader(log, t.Output())), false
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil && !found {
				found = true
				url <- m[1]
			}
		}
		io.Copy(io.Discard, log)
	}()
	t.Cleanup(func() {
		defer cancel()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			cmd.Process.Kill()
		}
		<-read
		testkit.Works(t, cmd.Wait(), "the server")
	})
	at, ok := <-url
	testkit.Need(t, ok, "the server did not start")
	return at
}

// newToken makes a token, and returns it with the file that lets it in.
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

// review is the reviewer: it passes what says that it is good. Before it says
// anything the client must have been told that a review runs.
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
	fmt.Printf(`{"passed": %t, "feedback": %q, "criteria_results": [{"criterion": "good", "passed": %t, "feedback": null}]}`+"\n", passed, feedback, passed)
}
