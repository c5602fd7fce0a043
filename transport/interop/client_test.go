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

	"github.com/modelcontextprotocol/go-sdk/mcp"

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

// exitCode is that of a program that was not killed; -1 if it was.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return -1
}

// runClient runs a client to its good end.
func runClient(t *testing.T, argv ...string) []byte {
	t.Helper()
	out, err := output(t, argv...)
	testkit.Need(t, err == nil, "the client ended with %v, after\n%s", err, out)
	return out
}

// waitForTool waits until a server that was started just now has found a tool at
// its source, as a client hears of it.
func waitForTool(t *testing.T, url, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed := make(chan struct{}, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	cs := testkit.Get(client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})).Must(t)
	defer cs.Close()
	for {
		list := testkit.Get(cs.ListTools(ctx, nil)).Must(t)
		if slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == name }) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the server does not list %s", name)
		}
	}
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
			judge(t, told, saw, append(slices.Clip(everyWalk), want{"server", "protocol", `"` + c.protocol + `"`})...)
			p.whole(t)
		})
	}
}

// typescriptWalk is what the TypeScript client sees in addition.
var typescriptWalk = []want{
	{"server", "capabilities.tools.listChanged", `true`},
	{"nothing", "text", "StateError: No active workflow session"},
	{"again", "stack.1", `nothing`},
	{"ahead", "text", "go_to_step only leads back"},
	{"task", "title", `"Fix the door"`},
	{"lost", "text", "resume one of these"},
}

// The client of the official TypeScript SDK, in the version of the lock file.
func TestClientOfTheTypeScriptSDK(t *testing.T) {
	client := func(t *testing.T, p project, told instructions) map[string]sight {
		saw := walk(t, told, node(t), filepath.Join(packages(t), "client.mjs"))
		judge(t, told, saw, append(slices.Clip(everyWalk), typescriptWalk...)...)
		if first, again := saw["started"].value(t, "begin_step.session_id"), saw["again"].value(t, "begin_step.session_id"); first != again {
			t.Errorf("the same request_id began %s and %s", first, again)
		}
		p.whole(t)
		return saw
	}
	terminated := func(t *testing.T, saw map[string]sight) {
		t.Helper()
		if end := saw["terminated"]; end.Status != 404 || end.Text != "" {
			t.Errorf("a session that was terminated answers %d, and is %q", end.Status, end.Text)
		}
	}
	t.Run("stdio", func(t *testing.T) {
		p := newProject(t)
		told := p.instructions(t)
		told.Command = p.command(t)
		client(t, p, told)
	})
	t.Run("http", func(t *testing.T) {
		p := newProject(t)
		told := p.instructions(t)
		told.URL = p.serve(t, "http")
		terminated(t, client(t, p, told))
	})
	t.Run("http with a token", func(t *testing.T) {
		p := newProject(t)
		told := p.instructions(t)
		token, file := newToken(t)
		told.URL, told.Token = p.serve(t, "http", "--token-file", file), token
		saw := client(t, p, told)
		terminated(t, saw)
		for _, at := range []string{"nobody", "stranger"} {
			testkit.Equal(t, saw[at].Status, 401, "%s", at)
			testkit.Contains(t, saw[at].Text, "token", "%s", at)
		}
	})
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
				for _, w := range []want{
					{"server", "protocol", `"` + protocol + `"`},
					{"prompt", "text", "Walk the dog"},
					{"resource", "text", "=== care/judge: Judge ==="},
					{"question", "text", "Is it good?"},
					{"question", "properties.decision.enum", `["pass","fail"]`},
					{"judged", "status", `"workflow_complete"`},
				} {
					if w.path == "text" {
						testkit.Contains(t, saw[w.at].Text, w.is, "%s", w.at)
					} else {
						testkit.Equal(t, saw[w.at].value(t, w.path), w.is, "%s: %s", w.at, w.path)
					}
				}
				for at, name := range map[string]string{"tools": "finished_step", "prompts": "deepwork:care:main", "resources": "deepwork://jobs/care"} {
					if !slices.Contains(saw[at].Names, name) {
						t.Errorf("%s: %v", at, saw[at].Names)
					}
				}
			})
		}
	}
}

// Claude Code accepts the plugin of a release, and its server answers.
func TestClaudeCodeConnectsToThePlugin(t *testing.T) {
	release := os.Getenv("DEEPWORK_TEST_RELEASE")
	if release == "" {
		t.Skip("DEEPWORK_TEST_RELEASE does not name the folder of a release")
	}
	plugin := filepath.Join(release, "plugin")
	home := t.TempDir()
	claude := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		program := filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs")
		cmd := exec.CommandContext(ctx, node(t), append([]string{program}, args...)...)
		cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
		cmd.Env = append(os.Environ(), "HOME="+home, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DEEPWORK_STATE_DIR="+filepath.Join(home, "state"),
			"PATH="+filepath.Dir(binary(t))+string(filepath.ListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		testkit.Need(t, err == nil, "claude %v: %v\n%s", args, err, out)
		return string(out)
	}
	claude("plugin", "validate", plugin)
	if out := claude("--plugin-dir", plugin, "mcp", "list"); !strings.Contains(out, "deepwork serve --path . - ") || !strings.Contains(out, "Connected") {
		t.Errorf("claude mcp list prints\n%s", out)
	}
}

// inspected is what the Inspector's command line prints.
type inspected struct {
	Result struct {
		Tools             []struct{ Name string }
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
	}
}

// The exit codes of the Inspector's command line.
const (
	inspectorDone    = 0
	inspectorRefused = 5 // a tool's result has isError
)

// inspect runs the Inspector's command line: method and its flags on a server,
// which is named as the Inspector wants it.
func inspect(t *testing.T, server []string, code int, args ...string) inspected {
	t.Helper()
	script := filepath.Join(packages(t), "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
	argv := append([]string{node(t), script, "--cli", "--quiet", "--format", "json"}, args...)
	out, err := output(t, append(argv, server...)...)
	if got := exitCode(err); got != code {
		t.Fatalf("%v ended with %v, not %d\n%s", args, err, code, out)
	}
	var said inspected
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return said
}

// The command line of the MCP Inspector, with both generations of the protocol:
// each of its runs is a connection of its own.
func TestInspector(t *testing.T) {
	p := newProject(t)
	token, file := newToken(t)
	servers := map[string][]string{
		"stdio": append([]string{"--"}, p.command(t)...),
		"http":  {"--transport", "http", "--server-url", p.serve(t, "http", "--token-file", file), "--header", "Authorization: Bearer " + token},
	}
	for name, server := range servers {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+"/"+era, func(t *testing.T) {
				call := func(code int, tool, arguments string) sight {
					t.Helper()
					r := inspect(t, server, code, "--protocol-era", era, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", arguments).Result
					return sight{Error: r.IsError, Text: r.Content[0].Text, Structured: r.StructuredContent}
				}
				// --strict fails where a schema is one that clients cannot use.
				listed := map[string]bool{}
				for _, tool := range inspect(t, server, inspectorDone, "--protocol-era", era, "--method", "tools/list", "--strict").Result.Tools {
					listed[tool.Name] = true
				}
				for _, name := range append([]string{"create_task", "call_workflow_tool"}, workflowTools...) {
					testkit.True(t, listed[name], "%s is not listed", name)
				}
				testkit.Equal(t, call(inspectorDone, "get_workflows", `{}`).value(t, "jobs.0.name"), `"trip"`, "job")
				refused := call(inspectorRefused, "start_workflow", `{"goal":"g","job_name":"nowhere","workflow_name":"w"}`)
				testkit.True(t, refused.Error && refused.Structured == nil && strings.Contains(refused.Text, "Job not found: nowhere"), "refused: %+v", refused)
				started := call(inspectorDone, "start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"main"}`)
				id := started.value(t, "begin_step.session_id")
				testkit.Equal(t, call(inspectorDone, "get_step", `{"session_id":`+id+`}`).value(t, "begin_step.step_id"), `"collect"`, "resumed")
				aborted := call(inspectorDone, "abort_workflow", `{"session_id":`+id+`,"explanation":"seen"}`)
				testkit.Equal(t, aborted.value(t, "aborted_workflow"), `"trip/main"`, "aborted")
			})
		}
	}
	p.whole(t)
}
