package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry/telemetrytest"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt/executors"
)

// coder is the coding agent of the tests of the task board, a program of its own.
// Lines of its prompt that begin with "! " tell it what to do, in its working
// directory:
//
//	write FILE TEXT   writes a file
//	commit TEXT       commits all
//	say TEXT          prints a text
//	await FILE        goes on when that absolute path is there, in which $NAME is expanded
//	touch FILE        makes an empty file of such a path
//	script FILE       carries out the lines of a file of such a path
//	context           asks the deepwork of the workspace for get_context and prints it
//	call TOOL ARGS    calls another tool of it and prints what it says
//	at DIR TOOL ARGS  does so with the deepwork of another folder
//	workflow N        walks N steps of the workflow that the prompt names, and prints the last status
//	review GATE hands out.txt in for the first step of that workflow, to be reviewed, and again when GATE is
//	there
//	nest N            begins that workflow, and in its first step once more, which it walks N steps
//	exit N            ends
func coder() {
	prompt, err := io.ReadAll(os.Stdin)
	mustDo("reading the prompt", err)
	fmt.Println("coder", strings.Join(os.Args[1:], " "))
	for line := range strings.Lines(string(prompt)) {
		if order, ok := strings.CutPrefix(strings.TrimSpace(line), "! "); ok {
			obey(order, string(prompt))
		}
	}
	fmt.Println("all done")
}

// mustDo ends an agent that cannot do what it was told.
func mustDo(order string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", order, err)
		os.Exit(97)
	}
}

// ordinary carries out an order that agents of all kinds know, with files that path finds.
func ordinary(verb, rest string, path func(string) string) (known bool, err error) {
	switch verb {
	case "write":
		name, text, _ := strings.Cut(rest, " ")
		return true, os.WriteFile(name, []byte(text+"\n"), 0o644)
	case "await":
		for !fileExists(path(rest)) {
			time.Sleep(5 * time.Millisecond)
		}
	case "touch":
		return true, os.WriteFile(path(rest), nil, 0o644)
	case "exit":
		code, err := strconv.Atoi(rest)
		if err == nil {
			os.Exit(code)
		}
		return true, err
	default:
		return false, nil
	}

	return true, nil
}

func obey(order, prompt string) {
	verb, rest, _ := strings.Cut(order, " ")
	if known, err := ordinary(verb, rest, os.ExpandEnv); known {
		mustDo(order, err)
		return
	}
	n, _ := strconv.Atoi(rest)
	name, args, _ := strings.Cut(rest, " ")
	value := func(key string) string { // of what the prompt says of its workflow
		_, rest, _ := strings.Cut(prompt, key+`: "`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	start := map[string]any{
		"goal":          value("goal"),
		"job_name":      value("job_name"),
		"workflow_name": value("workflow_name"),
	}
	var at server
	defer func() {
		if at.process != nil {
			at.process.Kill() // it is never asked to end: an agent that dies gives it no time
		}
	}()
	switch verb {
	case "commit":
		_, err := testkit.TryGit(".", "add", "-A")
		mustDo(order, err)
		_, err = testkit.TryGit(".", "commit", "-q", "-m", rest)
		mustDo(order, err)
	case "say":
		fmt.Println(rest)
	case "script":
		lines, err := os.ReadFile(os.ExpandEnv(rest))
		mustDo(order, err)
		for line := range strings.Lines(string(lines)) {
			obey(strings.TrimSpace(line), prompt)
		}
	case "context":
		at = inProject(".", "--no-quality-gate")
		fmt.Println("context", string(at.must("get_context", map[string]any{})))
	case "call":
		at = inProject(".", "--no-quality-gate")
		fmt.Println(name, "said", at.call(name, json.RawMessage(args)))
	case "at":
		tool, args, _ := strings.Cut(args, " ")
		at = inProject(name, "--no-quality-gate")
		fmt.Println(tool, "said", at.call(tool, json.RawMessage(args)))
	case "workflow":
		at = inProject(".", "--no-quality-gate")
		now := at.must("get_context", map[string]any{})
		if id := strings.Trim(string(lookup(now, "workflow_session_id")), `"`); id != "null" {
			now = at.must("get_step", map[string]any{"session_id": id})
		} else {
			now = at.must("start_workflow", start)
		}
		for range n {
			now = at.must("finished_step",
				map[string]any{"outputs": map[string]any{}, "step_id": lookup(now, "begin_step.step_id")})
		}
		fmt.Println("workflow", strings.Trim(string(lookup(now, "status")), `"`))
	case "review":
		at = inProject(".")
		at.must("start_workflow", start)
		for range 2 {
			fmt.Println("reviewed",
				string(at.must("finished_step", map[string]any{"outputs": map[string]any{"out": "out.txt"}})))
			obey("await "+rest, prompt)
		}
	case "nest":
		at = inProject(".", "--no-quality-gate")
		at.must("start_workflow", start)
		at.must("start_workflow", start)
		for range n {
			fmt.Println("nested", string(at.must("finished_step", map[string]any{"outputs": map[string]any{}})))
		}
	default:
		mustDo(order, fmt.Errorf("unknown order"))
	}
}

// A server is one that an agent has started.
type server struct {
	client  *mcp.ClientSession
	process *os.Process
}

func inProject(dir string, flags ...string) server {
	cmd := exec.Command("deepwork",
		append([]string{"serve", "--path", filepath.Clean(dir), "--log-level", "error"}, flags...)...)
	cmd.Stderr = os.Stderr
	client, err := connect(context.Background(), cmd)
	mustDo("connecting", err)
	return server{client, cmd.Process}
}

// call makes a call, which may be refused, and returns what it says.
func (s server) call(tool string, args any) string {
	result, err := s.client.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err.Error()
	}
	return resultText(result)
}

// must makes a call that must not be refused.
func (s server) must(tool string, args any) json.RawMessage {
	result, err := s.client.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	mustDo(tool, err)
	if result.IsError {
		mustDo(tool, fmt.Errorf("was refused: %s", resultText(result)))
	}
	return json.RawMessage(resultText(result))
}

// stepper is the agent of the tests of deepwork run, a program of its own: `stepper DIR [WORD...]`. It writes
// STEP.md and hands it in as the output text, unless the file plan in DIR says something else. The lines of
// that are `STEP ORDER` or `STEP:N ORDER` for its Nth start for a step:
//
//	write FILE TEXT    writes a file
//	merge FILE...      appends files to STEP.md
//	say TEXT           prints a text, to which its conversation is added where it says CONVERSATION
//	warn TEXT          prints a text on stderr
//	await NAME         goes on when that file is in DIR
//	touch NAME         makes one
//	call TOOL ARGS     calls a tool, and records what it answers
//	start ARGS         calls start_workflow
//	child STEP         finishes a step of the workflow that it has started, in the session of the last begin_step
//	reconnect          goes on over another connection
//	finish             finishes its own step
//	deepwork ARG...    runs that command, and records what it prints
//	serve TOOL ARGS    calls a tool of an ordinary server of its folder, as call
//	asks               is a client that passes what it is asked as a person
//	run COMMAND        runs a command, with variables, and records what it prints
//	span NAME          sends a span that continues the trace that it was started in
//	exit N             ends
//
// What it does is recorded in the file journal in DIR, as stepped. It reaches the server of its step as the
// program would whose name is among its words (see endpoint).
func stepper() {
	ctx := context.Background()
	time.AfterFunc(2*time.Minute, func() { mustDo("ending", context.DeadlineExceeded) })
	prompt, err := io.ReadAll(os.Stdin)
	mustDo("reading the prompt", err)
	a := &stepping{dir: os.ExpandEnv(os.Args[1]), step: os.Getenv(config.StepEnv), prompt: string(prompt)}
	for a.n = 1; ; a.n++ { // how often this step was begun
		f, err := os.OpenFile(filepath.Join(a.dir, fmt.Sprintf("%s.%d", a.step, a.n)), os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			f.Close()
			break
		} else if !os.IsExist(err) {
			mustDo("beginning", err)
		}
	}

	dir, err := os.Getwd()
	mustDo("beginning", err)
	s := stepped{
		Event:   "begin",
		Args:    os.Args[2:],
		Session: os.Getenv(config.SessionEnv),
		Folder:  dir,
		Prompt:  a.prompt,
		URL:     os.Getenv(config.MCPURLEnv),
		Token:   os.Getenv(executors.TokenEnv),
		Config:  os.Getenv(config.MCPConfigEnv),
	}

	if info, err := os.Stat(s.Config); err == nil {
		s.Mode = info.Mode().String()
	}
	for _, o := range journalOf(a.dir) {
		if o.Event == "begin" && o.Step == a.step && o.Session == s.Session && isStepper(o.PID, a.dir) {
			s.Beside = append(s.Beside, o.PID)
		}
	}
	a.record(s)
	var orders []string
	for line := range strings.Lines(readAll(a.dir, "plan")) {
		whose, order, _ := strings.Cut(strings.TrimSpace(line), " ")
		if whose == a.step || whose == "*" || whose == fmt.Sprintf("%s:%d", a.step, a.n) {
			orders = append(orders, order)
		}
	}
	if len(orders) == 0 {
		orders = []string{"finish"}
	}
	for _, order := range orders {
		verb, rest, _ := strings.Cut(order, " ")
		mustDo(order, a.obey(ctx, verb, rest))
	}
	a.record(stepped{Event: "end"})
}

// A stepped is a line of the journal of steppers.
type stepped struct {
	Event   string // begin, end, or what was called
	Step    string
	N       int
	PID     int
	Args    []string `json:",omitempty"`
	Session string   `json:",omitempty"`
	Folder  string   `json:",omitempty"`
	Prompt  string   `json:",omitempty"`
	URL     string   `json:",omitempty"`
	Token   string   `json:",omitempty"`
	Config  string   `json:",omitempty"`
	Mode    string   `json:",omitempty"` // of that file
	Text    string   `json:",omitempty"`
	Beside  []int    `json:",omitempty"` // the processes that work on the same step
}

type stepping struct {
	dir, step, prompt, child string // child is the session of the last begin_step
	n                        int
	client                   *mcp.ClientSession
}

func (a *stepping) record(s stepped) {
	s.Step = a.step
	s.N = a.n
	s.PID = os.Getpid()
	f, err := os.OpenFile(filepath.Join(a.dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	mustDo("recording", err)
	defer f.Close()
	line, err := json.Marshal(s)
	mustDo("recording", err)
	_, err = f.Write(append(line, '\n'))
	mustDo("recording", err)
}

// journalOf is what the steppers of a folder have recorded.
func journalOf(dir string) (all []stepped) {
	text := readAll(dir, "journal")
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) { // another one may be half written
		var s stepped
		mustDo("reading the journal", json.Unmarshal([]byte(line), &s))
		all = append(all, s)
	}
	return all
}

// isStepper reports whether a process is a stepper of a folder that runs, where there is /proc.
func isStepper(pid int, dir string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(line, []byte("stepper\x00"+dir+"\x00"))
}

func (a *stepping) obey(ctx context.Context, verb, rest string) error {
	switch verb {
	case "merge":
		all := ""
		for _, name := range strings.Fields(rest) {
			all += readAll(name)
		}
		return os.WriteFile(a.step+".md", []byte(all), 0o644)
	case "say":
		fmt.Println(strings.ReplaceAll(rest, "CONVERSATION", "talk-"+a.step))
	case "warn":
		fmt.Fprintln(os.Stderr, rest)
	case "call":
		name, args, _ := strings.Cut(rest, " ")
		a.call(ctx, name, json.RawMessage(args))
	case "start":
		a.call(ctx, "start_workflow", json.RawMessage(rest))
	case "reconnect":
		a.client.Close()
		a.client = nil
	case "child":
		a.call(ctx, "finished_step",
			map[string]any{"session_id": a.child, "step_id": rest, "outputs": map[string]any{}})
	case "finish":
		name := a.step + ".md"
		if !fileExists(name) {
			mustDo(verb, os.WriteFile(name, []byte("text of "+a.step+"\n"), 0o644))
		}
		outputs := map[string]any{"text": name}
		if strings.HasPrefix(a.prompt, "# Goal") && !strings.Contains(a.prompt, `"text"`) {
			outputs = map[string]any{}
		}
		a.call(ctx, "finished_step", map[string]any{"outputs": outputs})
	case "deepwork":
		cmd := exec.CommandContext(ctx, "deepwork", strings.Fields(rest)...)
		said, _ := cmd.CombinedOutput()
		a.record(stepped{Event: verb, Text: fmt.Sprintf("%d %s", cmd.ProcessState.ExitCode(), said)})
	case "serve":
		name, args, _ := strings.Cut(rest, " ")
		at := inProject(".", "--no-quality-gate")
		defer at.process.Kill()
		a.record(stepped{Event: "serve " + name, Text: at.call(name, json.RawMessage(args))})
	case "asks":
		var err error
		url, token := endpoint(os.Args)
		client := mcp.NewClient(&mcp.Implementation{
			Name:    "stepper",
			Version: "1",
		}, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			a.record(stepped{Event: "asked"})
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}, nil
		}})
		a.client, err = client.Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint:   url,
			HTTPClient: &http.Client{Transport: bearer(token)},
		}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
		return err
	case "run":
		words := strings.Fields(os.ExpandEnv(rest))
		// that it fails is in what it prints
		out, _ := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
		a.record(stepped{Event: "run", Text: string(out)})
	case "span":
		return telemetrytest.Send(ctx, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("TRACEPARENT"), rest)
	default:
		if verb == "exit" {
			a.record(stepped{Event: "end"})
		}
		known, err := ordinary(verb, rest, func(name string) string { return filepath.Join(a.dir, name) })
		if !known {
			err = fmt.Errorf("unknown order")
		}
		return err
	}

	return nil
}

// call calls a tool of the server of the step, and records the answer, also one that refuses.
func (a *stepping) call(ctx context.Context, tool string, args any) (text string) {
	if a.client == nil {
		var err error
		url, token := endpoint(os.Args)
		a.client, err = dialStep(ctx, url, token)
		mustDo("connecting", err)
	}
	text = server{client: a.client}.call(tool, args)
	if id := strings.Trim(string(lookup(json.RawMessage(text), "begin_step.session_id")), `"`); id != "null" {
		a.child = id
	}
	a.record(stepped{Event: tool, Text: text})
	return text
}

// endpoint finds the server of the step and its token where a program looks for them, of the name that is
// the word after the folder, or else in the environment.
func endpoint(args []string) (url, token string) {
	named := func(option string) string {
		if i := slices.Index(args, option); i > 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	fits := func(is bool) {
		if !is {
			mustDo("finding the server", fmt.Errorf("it was started by %q", args))
		}
	}
	file := ""
	switch program := append(args, "", "")[2]; program {
	case "claude":
		fits(slices.Contains(args, "--strict-mcp-config"))
		file = named("--mcp-config")
	case "config":
		file = args[3]
	case "codex":
		m := regexp.MustCompile(`^mcp_servers\.deepwork-run=\{url="(.+)",bearer_token_env_var="(.+)"\}$`).
			FindStringSubmatch(named("-c"))
		fits(m != nil)
		return m[1], os.Getenv(m[2])
	case "gemini":
		fits(named("--allowed-mcp-server-names") == executors.MCPName)
		fallthrough
	default:
		return os.Getenv(config.MCPURLEnv), os.Getenv(executors.TokenEnv)
	}
	server := lookup(json.RawMessage(readAll(file)), "mcpServers."+executors.MCPName)
	text := func(path string) string { return strings.Trim(string(lookup(server, path)), `"`) }
	return text("url"), strings.TrimPrefix(text("headers.Authorization"), "Bearer ")
}

// scriptedReviewer is a reviewer program for the scripts: what it says is in the
// files that it is given, and it keeps what it read in the file that its first
// argument names.
func scriptedReviewer() {
	task, err := io.ReadAll(os.Stdin)
	mustDo("reading the task", err)
	if len(os.Args) > 1 {
		mustDo("keeping the task", os.WriteFile(os.Args[1], task, 0o600))
	}
	said := func(what string) bool { return bytes.Contains(task, []byte("this one is "+what)) }
	switch {
	case said("broken"):
		fmt.Fprintln(os.Stderr, "out of tokens")
		os.Exit(3)
	case said("bad"):
		fmt.Println(`{"passed": false, "feedback": "Write more.\nMuch more.", "criteria_results": [{"criterion": ` +
			`"good", "passed": false, "feedback": "too short"}]}`)
	default:
		fmt.Println(`{"passed": true, "feedback": "", "criteria_results": [{"criterion": "good", "passed": true, ` +
			`"feedback": null}]}`)
	}
}
