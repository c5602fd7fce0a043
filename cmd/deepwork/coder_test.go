package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
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
//	at DIR TOOL ARGS  calls a tool of a deepwork of another project
//	workflow N        walks N steps of the workflow that the prompt names, and prints the last status
//	review GATE       hands out.txt in for the first step of that workflow, to be reviewed, and again when GATE is there
//	nest N            begins that workflow, and in its first step once more, which it walks N steps
//	exit N            ends
func coder() {
	prompt, err := io.ReadAll(os.Stdin)
	mustDo("reading the prompt", err)
	fmt.Println("coder", strings.Join(os.Args[1:], " "))
	for line := range strings.Lines(string(prompt)) {
		if order, is := strings.CutPrefix(strings.TrimSpace(line), "! "); is {
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
	start := map[string]any{"goal": value("goal"), "job_name": value("job_name"), "workflow_name": value("workflow_name")}
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
			now = at.must("finished_step", map[string]any{"outputs": map[string]any{}, "step_id": lookup(now, "begin_step.step_id")})
		}
		fmt.Println("workflow", strings.Trim(string(lookup(now, "status")), `"`))
	case "review":
		at = inProject(".")
		at.must("start_workflow", start)
		for range 2 {
			fmt.Println("reviewed", string(at.must("finished_step", map[string]any{"outputs": map[string]any{"out": "out.txt"}})))
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
	cmd := exec.Command("deepwork", append([]string{"serve", "--path", filepath.Clean(dir), "--log-level", "error"}, flags...)...)
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
