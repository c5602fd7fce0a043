package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(98)
	}
	fmt.Println("coder", strings.Join(os.Args[1:], " "))
	for line := range strings.Lines(string(prompt)) {
		order, is := strings.CutPrefix(strings.TrimSpace(line), "! ")
		if !is {
			continue
		}
		verb, rest, _ := strings.Cut(order, " ")
		if err := obey(verb, rest, string(prompt)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", verb, err)
			os.Exit(97)
		}
	}
	fmt.Println("all done")
}

func obey(verb, rest, prompt string) error {
	switch verb {
	case "write":
		name, text, _ := strings.Cut(rest, " ")
		return os.WriteFile(name, []byte(text+"\n"), 0o644)
	case "commit":
		return errors.Join(runGit(".", "add", "-A"), runGit(".", "commit", "-q", "-m", rest))
	case "say":
		fmt.Println(rest)
	case "await":
		for {
			if _, err := os.Stat(os.ExpandEnv(rest)); err == nil {
				return nil
			}
			time.Sleep(5 * time.Millisecond)
		}
	case "touch":
		return os.WriteFile(os.ExpandEnv(rest), nil, 0o644)
	case "script":
		lines, err := os.ReadFile(os.ExpandEnv(rest))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(lines)) {
			verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if err := obey(verb, rest, prompt); err != nil {
				return fmt.Errorf("%s: %w", verb, err)
			}
		}
	case "context":
		return inWorkspace(func(ctx context.Context, client *mcp.ClientSession) error {
			reply, err := toolText(ctx, client, "get_context", map[string]any{})
			fmt.Println("context", reply)
			return err
		})
	case "call":
		name, args, _ := strings.Cut(rest, " ")
		return inWorkspace(calling(name, args))
	case "at":
		dir, call, _ := strings.Cut(rest, " ")
		name, args, _ := strings.Cut(call, " ")
		if err := inProject(dir, calling(name, args), "--no-quality-gate"); err != nil {
			fmt.Println(err)
		}
	case "workflow":
		steps, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return walk(steps, prompt)
	case "review":
		return inProject(".", func(ctx context.Context, client *mcp.ClientSession) error {
			if _, err := toolText(ctx, client, "start_workflow", startArgs(prompt)); err != nil {
				return err
			}
			for range 2 {
				text, err := toolText(ctx, client, "finished_step", map[string]any{"outputs": map[string]any{"out": "out.txt"}})
				if err != nil {
					return err
				}
				fmt.Println("reviewed", text)
				if err := obey("await", rest, prompt); err != nil {
					return err
				}
			}
			return nil
		})
	case "nest":
		steps, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return nest(steps, prompt)
	case "exit":
		code, err := strconv.Atoi(rest)
		if err == nil {
			os.Exit(code)
		}
		return err
	default:
		return fmt.Errorf("unknown order")
	}
	return nil
}

// calling calls a tool and prints what it says.
func calling(name, args string) func(context.Context, *mcp.ClientSession) error {
	return func(ctx context.Context, client *mcp.ClientSession) error {
		result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		if err == nil {
			fmt.Println(name, "said", resultText(result))
		}
		return err
	}
}

// inWorkspace connects to a deepwork on the working directory.
func inWorkspace(use func(context.Context, *mcp.ClientSession) error) error {
	return inProject(".", use, "--no-quality-gate")
}

// inProject connects to a deepwork on a directory. It is killed, and never asked to end: an agent
// that dies gives it no time.
func inProject(dir string, use func(context.Context, *mcp.ClientSession) error, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, "deepwork", append([]string{"serve", "--path", dir, "--log-level", "error"}, flags...)...)
	server.Stderr = os.Stderr
	client, err := connect(ctx, server)
	if err != nil {
		return err
	}
	defer server.Process.Kill()
	return use(ctx, client)
}

// after is the value of a key in what the prompt says of its workflow.
func after(prompt, key string) string {
	_, rest, _ := strings.Cut(prompt, key+`: "`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func startArgs(prompt string) map[string]any {
	return map[string]any{"goal": after(prompt, "goal"), "job_name": after(prompt, "job_name"), "workflow_name": after(prompt, "workflow_name")}
}

func nest(steps int, prompt string) error {
	return inWorkspace(func(ctx context.Context, client *mcp.ClientSession) error {
		for range 2 {
			if _, err := toolText(ctx, client, "start_workflow", startArgs(prompt)); err != nil {
				return err
			}
		}
		for range steps {
			text, err := toolText(ctx, client, "finished_step", map[string]any{"outputs": map[string]any{}})
			if err != nil {
				return err
			}
			fmt.Println("nested", text)
		}
		return nil
	})
}

// walk does what the prompt says of its workflow, for so many steps.
func walk(steps int, prompt string) error {
	return inWorkspace(func(ctx context.Context, client *mcp.ClientSession) error {
		var around struct {
			WorkflowSessionID *string `json:"workflow_session_id"`
		}
		text, err := toolText(ctx, client, "get_context", map[string]any{})
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &around); err != nil {
			return err
		}
		var at struct {
			Status    string
			BeginStep struct {
				SessionID string `json:"session_id"`
				StepID    string `json:"step_id"`
			} `json:"begin_step"`
		}
		tool, args := "start_workflow", startArgs(prompt)
		if around.WorkflowSessionID != nil {
			tool, args = "get_step", map[string]any{"session_id": *around.WorkflowSessionID}
		}
		for range steps + 1 {
			if text, err = toolText(ctx, client, tool, args); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(text), &at); err != nil {
				return err
			}
			tool, args = "finished_step", map[string]any{"outputs": map[string]any{}, "step_id": at.BeginStep.StepID}
		}
		fmt.Println("workflow", at.Status)
		return nil
	})
}

// toolText makes a call that must succeed.
func toolText(ctx context.Context, client *mcp.ClientSession, tool string, args any) (string, error) {
	result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", err
	}
	if text := resultText(result); result.IsError {
		return "", fmt.Errorf("%s was refused: %s", tool, text)
	} else {
		return text, nil
	}
}

func runGit(dir string, args ...string) error {
	_, err := gitOutput(dir, args...)
	return err
}

var gitOutput = testkit.TryGit
