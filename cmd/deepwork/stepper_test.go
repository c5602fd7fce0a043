package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry/telemetrytest"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

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
//	start ARGS         calls start_workflow, and records the session
//	child STEP         finishes a step of the workflow that it has started
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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	prompt, err := io.ReadAll(os.Stdin)
	if err == nil {
		a := &stepping{dir: os.ExpandEnv(os.Args[1]), step: os.Getenv(config.StepEnv), prompt: string(prompt)}
		err = a.work(ctx)
	}
	if err != nil {
		fmt.Println("stepper:", err)
		os.Exit(97)
	}
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
	dir, step, prompt string
	n                 int
	child             string // session
	client            *mcp.ClientSession
}

func (a *stepping) record(s stepped) error {
	s.Step, s.N, s.PID = a.step, a.n, os.Getpid()
	f, err := os.OpenFile(filepath.Join(a.dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	line, err := json.Marshal(s)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	return err
}

// number finds out how often this step was begun.
func (a *stepping) number() error {
	for a.n = 1; ; a.n++ {
		f, err := os.OpenFile(filepath.Join(a.dir, fmt.Sprintf("%s.%d", a.step, a.n)), os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			return f.Close()
		}
		if !os.IsExist(err) {
			return err
		}
	}
}

// beside returns the processes that have begun its step and run.
func (a *stepping) beside() (all []int, err error) {
	data, err := os.ReadFile(filepath.Join(a.dir, "journal"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) { // another one may be half written
		var s stepped
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, err
		}
		if s.Event == "begin" && s.Step == a.step && s.Session == os.Getenv(config.SessionEnv) && isStepper(s.PID, a.dir) {
			all = append(all, s.PID)
		}
	}
	return all, nil
}

// isStepper reports whether a process is a stepper of a folder that runs, where there is /proc.
func isStepper(pid int, dir string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(line, []byte("stepper\x00"+dir+"\x00"))
}

func (a *stepping) work(ctx context.Context) error {
	if err := a.number(); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s := stepped{Event: "begin", Args: os.Args[2:], Session: os.Getenv(config.SessionEnv), Folder: dir, Prompt: a.prompt,
		URL: os.Getenv(config.MCPURLEnv), Token: os.Getenv(runner.TokenEnv), Config: os.Getenv(config.MCPConfigEnv)}
	if info, err := os.Stat(s.Config); err == nil {
		s.Mode = info.Mode().String()
	}
	if s.Beside, err = a.beside(); err != nil {
		return err
	}
	if err := a.record(s); err != nil {
		return err
	}
	plan, err := os.ReadFile(filepath.Join(a.dir, "plan"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var orders []string
	for line := range strings.Lines(string(plan)) {
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
		if err := a.obey(ctx, verb, rest); err != nil {
			return fmt.Errorf("%s: %w", order, err)
		}
	}
	return a.record(stepped{Event: "end"})
}

func (a *stepping) obey(ctx context.Context, verb, rest string) error {
	switch verb {
	case "write":
		name, text, _ := strings.Cut(rest, " ")
		return os.WriteFile(name, []byte(text+"\n"), 0o644)
	case "merge":
		var all bytes.Buffer
		for _, name := range strings.Fields(rest) {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			all.Write(text)
		}
		return os.WriteFile(a.step+".md", all.Bytes(), 0o644)
	case "say":
		fmt.Println(strings.ReplaceAll(rest, "CONVERSATION", "talk-"+a.step))
	case "warn":
		fmt.Fprintln(os.Stderr, rest)
	case "await":
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(a.dir, rest)); err == nil {
				return nil
			}
			time.Sleep(5 * time.Millisecond)
		}
		return ctx.Err()
	case "touch":
		return os.WriteFile(filepath.Join(a.dir, rest), nil, 0o644)
	case "call":
		name, args, _ := strings.Cut(rest, " ")
		_, err := a.call(ctx, name, json.RawMessage(args))
		return err
	case "start":
		text, err := a.call(ctx, "start_workflow", json.RawMessage(rest))
		var r struct {
			BeginStep struct {
				SessionID string `json:"session_id"`
			} `json:"begin_step"`
		}
		if err == nil {
			err = json.Unmarshal([]byte(text), &r)
		}
		a.child = r.BeginStep.SessionID
		return err
	case "reconnect":
		a.client.Close()
		a.client = nil
	case "child":
		_, err := a.call(ctx, "finished_step", map[string]any{"session_id": a.child, "step_id": rest, "outputs": map[string]any{}})
		return err
	case "finish":
		name := a.step + ".md"
		if _, err := os.Stat(name); err != nil {
			if err := os.WriteFile(name, []byte("text of "+a.step+"\n"), 0o644); err != nil {
				return err
			}
		}
		outputs := map[string]any{"text": name}
		if strings.HasPrefix(a.prompt, "# Goal") && !strings.Contains(a.prompt, `"text"`) {
			outputs = map[string]any{}
		}
		_, err := a.call(ctx, "finished_step", map[string]any{"outputs": outputs})
		return err
	case "deepwork":
		cmd := exec.CommandContext(ctx, "deepwork", strings.Fields(rest)...)
		said, err := cmd.CombinedOutput()
		if _, is := errors.AsType[*exec.ExitError](err); err != nil && !is {
			return err
		}
		return a.record(stepped{Event: verb, Text: fmt.Sprintf("%d %s", cmd.ProcessState.ExitCode(), said)})
	case "serve":
		name, args, _ := strings.Cut(rest, " ")
		return inWorkspace(func(ctx context.Context, client *mcp.ClientSession) error {
			_, err := a.callOf(ctx, client, "serve "+name, name, json.RawMessage(args))
			return err
		})
	case "asks":
		url, token, err := endpoint(os.Args)
		if err != nil {
			return err
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "stepper", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}, a.record(stepped{Event: "asked"})
		}})
		a.client, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
		return err
	case "run":
		words := strings.Fields(os.ExpandEnv(rest))
		out, _ := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput() // that it fails is in what it prints
		return a.record(stepped{Event: "run", Text: string(out)})
	case "span":
		return telemetrytest.Send(ctx, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("TRACEPARENT"), rest)
	case "exit":
		var code int
		if _, err := fmt.Sscan(rest, &code); err != nil {
			return err
		}
		if err := a.record(stepped{Event: "end"}); err != nil {
			return err
		}
		os.Exit(code)
	default:
		return fmt.Errorf("unknown order")
	}
	return nil
}

// call calls a tool of the server of the step, and records the answer, also one that refuses.
func (a *stepping) call(ctx context.Context, tool string, args any) (string, error) {
	if a.client == nil {
		url, token, err := endpoint(os.Args)
		if err != nil {
			return "", err
		}
		if a.client, err = dialStep(ctx, url, token); err != nil {
			return "", err
		}
	}
	return a.callOf(ctx, a.client, tool, tool, args)
}

// callOf calls a tool, and records the answer as an event.
func (a *stepping) callOf(ctx context.Context, client *mcp.ClientSession, event, tool string, args any) (string, error) {
	result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", a.record(stepped{Event: event, Text: err.Error()})
	}
	return resultText(result), a.record(stepped{Event: event, Text: resultText(result)})
}

// endpoint finds the server of the step and its token where a program looks for them, of the name that is
// the word after the folder, or else in the environment.
func endpoint(args []string) (url, token string, err error) {
	named := func(option string) string {
		if i := slices.Index(args, option); i > 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	file := ""
	switch program := append(args, "", "")[2]; program {
	case "claude":
		if !slices.Contains(args, "--strict-mcp-config") {
			return "", "", fmt.Errorf("not strict: %q", args)
		}
		file = named("--mcp-config")
	case "config":
		file = args[3]
	case "codex":
		m := regexp.MustCompile(`^mcp_servers\.deepwork-run=\{url="(.+)",bearer_token_env_var="(.+)"\}$`).FindStringSubmatch(named("-c"))
		if m == nil {
			return "", "", fmt.Errorf("no server: %q", args)
		}
		return m[1], os.Getenv(m[2]), nil
	case "gemini":
		if named("--allowed-mcp-server-names") != runner.MCPName {
			return "", "", fmt.Errorf("any server: %q", args)
		}
		fallthrough
	default:
		return os.Getenv(config.MCPURLEnv), os.Getenv(runner.TokenEnv), nil
	}
	var f struct {
		MCPServers map[string]struct {
			Type, URL string
			Headers   map[string]string
		}
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	server := f.MCPServers[runner.MCPName]
	return server.URL, strings.TrimPrefix(server.Headers["Authorization"], "Bearer "), err
}
