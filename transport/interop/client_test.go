//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// output runs a client, two minutes at most, and returns what it printed. The client
// has its own home, for what it keeps there.
func output(t *testing.T, argv ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stderr, cmd.WaitDelay = t.Output(), time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("it took too long: %w", errors.Join(ctx.Err(), err))
	}
	return out, err
}

func runClient(t *testing.T, argv ...string) []byte {
	t.Helper()
	out, err := output(t, argv...)
	testkit.Need(t, err == nil, "the client ended with %v, after\n%s", err, out)
	return out
}

// The client of the official Python SDK, in the version of requirements.txt: with
// the handshake, and without a connection, as the newest protocol version has it.
func TestClientOfThePythonSDK(t *testing.T) {
	script := testkit.Get(filepath.Abs("client.py")).Must(t)
	for _, c := range []struct{ name, over, mode, protocol string }{
		{"stdio", "stdio", "legacy", "2025-11-25"},
		{"stdio in the newest version", "stdio", "auto", "2026-07-28"},
		{"sse", "sse", "legacy", "2025-11-25"},
		{"http", "http", "legacy", "2025-11-25"},
		{"http in the newest version", "http", "auto", "2026-07-28"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProject(t)
			told := p.instructions(t)
			told.Over, told.Mode = c.over, c.mode
			if c.over == "stdio" {
				told.Command = p.command(t)
			} else {
				token, file := newToken(t)
				told.URL, told.Token = p.serve(t, c.over, "--token-file", file), token
			}
			saw := walk(t, told, python(t), script)
			judge(t, told, saw, wants{"server": {"protocol": `"` + c.protocol + `"`}})
			p.whole(t)
		})
	}
}

// typescriptWalk is what the TypeScript client sees in addition.
var typescriptWalk = wants{
	"server": {"capabilities.tools.listChanged": `true`}, "nothing": {"text": "StateError: No active workflow session"}, "again": {"stack.1": `nothing`},
	"ahead": {"text": "go_to_step only leads back"}, "task": {"title": `"Fix the door"`}, "lost": {"text": "resume one of these"},
}

// The client of the official TypeScript SDK, in the version of the lock file.
func TestClientOfTheTypeScriptSDK(t *testing.T) {
	for _, over := range []string{"stdio", "http", "http with a token"} {
		t.Run(over, func(t *testing.T) {
			p := newProject(t)
			told := p.instructions(t)
			switch over {
			case "stdio":
				told.Command = p.command(t)
			case "http":
				told.URL = p.serve(t, "http")
			default:
				token, file := newToken(t)
				told.URL, told.Token = p.serve(t, "http", "--token-file", file), token
			}
			saw := walk(t, told, node(t), filepath.Join(packages(t), "client.mjs"))
			judge(t, told, saw, typescriptWalk)
			testkit.Equal(t, saw["again"].value(t, "begin_step.session_id"), saw["started"].value(t, "begin_step.session_id"), "the session of the same request_id")
			if end := saw["terminated"]; over != "stdio" {
				testkit.True(t, end.Status == 404 && end.Text == "", "a session that was terminated answers %d, and is %q", end.Status, end.Text)
			}
			for _, at := range []string{"nobody", "stranger"} {
				testkit.True(t, told.Token == "" || saw[at].Status == 401 && strings.Contains(saw[at].Text, "token"), "%s: %+v", at, saw[at])
			}
			p.whole(t)
		})
	}
}

// The client of the TypeScript SDK's second major version has the tools, prompts and resources, and its user is asked,
// in both generations of the protocol.
func TestClientInBothEras(t *testing.T) {
	t.Parallel()
	for mode, protocol := range map[string]string{"legacy": "2025-11-25", "auto": "2026-07-28"} {
		for _, over := range []string{"stdio", "http"} {
			t.Run(over+"/"+mode, func(t *testing.T) {
				t.Parallel()
				script := filepath.Join(packages(t), "eras.mjs") // it installs that before the time of the server begins
				p := personProject(t)
				told := instructions{Mode: mode}
				if over == "stdio" {
					told.Command = p.command(t)
				} else {
					told.URL = p.serve(t, "http")
				}
				saw := walk(t, told, node(t), script)
				wants{
					"server": {"protocol": `"` + protocol + `"`}, "prompt": {"text": "Walk the dog"}, "resource": {"text": "=== care/judge: Judge ==="},
					"question": {"text": "Is it good?", "properties.decision.enum": `["pass","fail"]`}, "judged": {"status": `"workflow_complete"`},
				}.check(t, saw)
				for at, name := range map[string]string{"tools": "finished_step", "prompts": "deepwork:care:main", "resources": "deepwork://jobs/care"} {
					testkit.True(t, slices.Contains(saw[at].Names, name), "%s: %v", at, saw[at].Names)
				}
			})
		}
	}
}

// inspect runs the Inspector's command line: method and its flags on a server,
// which is named as the Inspector wants it. Its exit code is that of a tool's result.
func inspect(t *testing.T, server []string, args ...string) (tools []string, result sight) {
	t.Helper()
	script := filepath.Join(packages(t), "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
	argv := append([]string{node(t), script, "--cli", "--quiet", "--format", "json"}, args...)
	out, err := output(t, append(argv, server...)...)
	var said struct {
		Result struct {
			Tools             []struct{ Name string }
			Content           []struct{ Text string }
			StructuredContent json.RawMessage
			IsError           bool
		}
	}
	testkit.Need(t, json.Unmarshal(out, &said) == nil, "%v ended with %v\n%s", args, err, out)
	refused, is := errors.AsType[*exec.ExitError](err)
	testkit.Need(t, said.Result.IsError == is && (err == nil || refused.ExitCode() == 5), "%v ended with %v\n%s", args, err, out)
	for _, tool := range said.Result.Tools {
		tools = append(tools, tool.Name)
	}
	result = sight{Error: said.Result.IsError, Structured: said.Result.StructuredContent}
	for _, block := range said.Result.Content {
		result.Text += block.Text
	}
	return tools, result
}

// The command line of the MCP Inspector, with both generations of the protocol:
// each of its runs is a connection of its own.
func TestInspector(t *testing.T) {
	p := newProject(t)
	token, file := newToken(t)
	for name, server := range map[string][]string{
		"stdio": append([]string{"--"}, p.command(t)...),
		"http":  {"--transport", "http", "--server-url", p.serve(t, "http", "--token-file", file), "--header", "Authorization: Bearer " + token},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+"/"+era, func(t *testing.T) {
				call := func(tool, arguments string) sight {
					t.Helper()
					_, result := inspect(t, server, "--protocol-era", era, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", arguments)
					return result
				}
				// --strict fails where a schema is one that clients cannot use.
				listed, _ := inspect(t, server, "--protocol-era", era, "--method", "tools/list", "--strict")
				for _, name := range append([]string{"create_task", "call_workflow_tool"}, workflowTools...) {
					testkit.True(t, slices.Contains(listed, name), "%s is not listed", name)
				}
				testkit.Equal(t, call("get_workflows", `{}`).value(t, "jobs.0.name"), `"trip"`, "job")
				refused := call("start_workflow", `{"goal":"g","job_name":"nowhere","workflow_name":"w"}`)
				testkit.True(t, refused.Error && refused.Structured == nil && strings.Contains(refused.Text, "Job not found: nowhere"), "refused: %+v", refused)
				id := call("start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"main"}`).value(t, "begin_step.session_id")
				testkit.Equal(t, call("get_step", `{"session_id":`+id+`}`).value(t, "begin_step.step_id"), `"collect"`, "resumed")
				testkit.Equal(t, call("abort_workflow", `{"session_id":`+id+`,"explanation":"seen"}`).value(t, "aborted_workflow"), `"trip/main"`, "aborted")
			})
		}
	}
	p.whole(t)
}
