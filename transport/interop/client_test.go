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
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// output runs a client, two minutes at most, and returns what it printed. The client has its own home, for
// what it keeps there.
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
	"server":  {"capabilities.tools.listChanged": `true`},
	"nothing": {"text": "StateError: No active workflow session"},
	"again":   {"stack.1": `nothing`},
	"ahead":   {"text": "go_to_step only leads back"},
	"task":    {"title": `"Fix the door"`},
	"lost":    {"text": "resume one of these"},
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
			testkit.Equal(t, saw["again"].value(t, "begin_step.session_id"),
				saw["started"].value(t, "begin_step.session_id"), "the session of the same request_id")
			if end := saw["terminated"]; over != "stdio" {
				testkit.True(t, end.Status == 404 && end.Text == "",
					"a session that was terminated answers %d, and is %q", end.Status, end.Text)
			}

			for _, at := range []string{"nobody", "stranger"} {
				testkit.True(t, told.Token == "" || saw[at].Status == 401 && strings.Contains(saw[at].Text, "token"),
					"%s: %+v", at, saw[at])
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
				// it installs that before the time of the server begins
				script := filepath.Join(packages(t), "eras.mjs")
				p := personProject(t)
				told := instructions{Mode: mode}
				if over == "stdio" {
					told.Command = p.command(t)
				} else {
					told.URL = p.serve(t, "http")
				}
				saw := walk(t, told, node(t), script)
				wants{
					"server":   {"protocol": `"` + protocol + `"`},
					"prompt":   {"text": "Walk the dog"},
					"resource": {"text": "=== care/judge: Judge ==="},
					"question": {"text": "Is it good?", "properties.decision.enum": `["pass","fail"]`},
					"judged":   {"status": `"workflow_complete"`},
				}.check(t, saw)

				for at, name := range map[string]string{
					"tools":     "finished_step",
					"prompts":   "deepwork:care:main",
					"resources": "deepwork://jobs/care",
				} {
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
	script := filepath.Join(packages(t), "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher",
		"build", "index.js")
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

	refused, ok := errors.AsType[*exec.ExitError](err)
	testkit.Need(t, said.Result.IsError == ok && (err == nil || refused.ExitCode() == 5), "%v ended with %v\n%s",
		args, err, out)

	for _, tool := range said.Result.Tools {
		tools = append(tools, tool.Name)
	}
	result = sight{Error: said.Result.IsError, Structured: said.Result.StructuredContent}
	for _, block := range said.Result.Content {
		result.Text += block.Text
	}
	return tools, result
}

// The command line of the MCP Inspector, with both generations of the protocol: each of its runs is a
// connection of its own.
func TestInspector(t *testing.T) {
	p := newProject(t)
	token, file := newToken(t)
	for name, server := range map[string][]string{
		"stdio": append([]string{"--"}, p.command(t)...),
		"http": {"--transport", "http", "--server-url", p.serve(t, "http", "--token-file", file), "--header",
			"Authorization: Bearer " + token},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+"/"+era, func(t *testing.T) {
				call := func(tool, arguments string) sight {
					t.Helper()
					_, result := inspect(t, server, "--protocol-era", era, "--method", "tools/call", "--tool-name",
						tool, "--tool-args-json", arguments)
					return result
				}

				// --strict fails where a schema is one that clients cannot use.
				listed, _ := inspect(t, server, "--protocol-era", era, "--method", "tools/list", "--strict")
				for _, name := range append([]string{"create_task", "call_workflow_tool"}, workflowTools...) {
					testkit.True(t, slices.Contains(listed, name), "%s is not listed", name)
				}
				testkit.Equal(t, call("get_workflows", `{}`).value(t, "jobs.0.name"), `"trip"`, "job")

				refused := call("start_workflow", `{"goal":"g","job_name":"nowhere","workflow_name":"w"}`)
				testkit.True(t, refused.Error, "refused: %+v", refused)
				testkit.Need(t, refused.Structured == nil, "refused: %+v", refused)
				testkit.Contains(t, refused.Text, "Job not found: nowhere", "refused: %+v", refused)

				id := call("start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"main"}`).value(t,
					"begin_step.session_id")
				testkit.Equal(t, call("get_step", `{"session_id":`+id+`}`).value(t, "begin_step.step_id"), `"collect"`,
					"resumed")
				testkit.Equal(t, call("abort_workflow", `{"session_id":`+id+`,"explanation":"seen"}`).value(t,
					"aborted_workflow"), `"trip/main"`, "aborted")
			})
		}
	}
	p.whole(t)
}

type session struct {
	*mcp.ClientSession
	mu       sync.Mutex
	progress []string
	changed  chan struct{} // capacity 1
}

func connect(t *testing.T, over mcp.Transport) *session {
	t.Helper()
	s := &session{changed: make(chan struct{}, 1)}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case s.changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.progress = append(s.progress, r.Params.Message)
		},
	})
	s.ClientSession = testkit.Get(
		client.Connect(t.Context(), over, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})).Must(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *session) until(t *testing.T, names ...string) map[string]*mcp.Tool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for {
		all := map[string]*mcp.Tool{}
		for tool, err := range s.Tools(ctx, nil) {
			testkit.Must(t, err)
			all[tool.Name] = tool
		}
		if !slices.ContainsFunc(names, func(name string) bool { return all[name] == nil }) {
			return all
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			t.Fatalf("waited for %v", names)
		}
	}
}

func (s *session) call(ctx context.Context, name, arguments string) (*mcp.CallToolResult, error) {
	params := &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)}
	params.SetProgressToken(name)
	return s.CallTool(ctx, params)
}

// gives calls a tool that must succeed, and returns the run's result.
func (s *session) gives(t *testing.T, name, arguments string) string {
	t.Helper()
	res := testkit.Get(s.call(t.Context(), name, arguments)).Must(t)
	var got struct {
		State  string          `json:"state"`
		Result json.RawMessage `json:"result"`
	}
	testkit.Must(t, json.Unmarshal([]byte(words(res)), &got))
	testkit.Need(t, !res.IsError && got.State == "completed", "%s: %s", name, words(res))
	return string(got.Result)
}

// running waits for the progress of a call that its source has, and returns its execution_id.
func (s *session) running(t *testing.T, name string) (id string) {
	t.Helper()
	testkit.Until(t, name+" runs at its source", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.progress); n > 1 { // the first is before the source has it
			id, _, _ = strings.Cut(strings.TrimPrefix(s.progress[n-1], "execution_id "), ":")
		}
		return id != ""
	})
	return id
}

func words(res *mcp.CallToolResult) string { return res.Content[0].(*mcp.TextContent).Text }

func TestSourceOfTheTypeScriptSDK(t *testing.T) {
	p := newProject(t)
	p.configure(t, sources(t))
	argv := p.command(t)
	server := exec.Command(argv[0], argv[1:]...)
	server.Stderr = t.Output()
	s := connect(t, &mcp.CommandTransport{Command: server, TerminateDuration: 10 * time.Second})
	all := s.until(t, "greet", "count", "break", "wait", "grow", "ask")
	testkit.Equal(t, all["greet"].Description, "[From the source typescript] Greets somebody")
	testkit.Equal(t, all["ask"].Description,
		"[From the source typescript; a person must perform the steps there] Asks somebody")
	testkit.Equal(t, s.gives(t, "greet", `{"name":"Ada"}`), `{"greeting":"Hello, Ada"}`, "greet")
	testkit.Equal(t, s.gives(t, "count", `{}`), `{"counted":3}`, "count")

	s.mu.Lock()
	testkit.Contains(t, strings.Join(s.progress, "\n"), "of 3, at", "progress")
	s.progress = nil
	s.mu.Unlock()

	for name, wants := range map[string][]string{"break": {"StateError: ", "it broke"}, "greet": {"ToolError: "}} {
		res := testkit.Get(s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(`{}`)})).
			Must(t)
		testkit.ContainsAll(t, words(res), wants, "%s", name)
		testkit.True(t, res.IsError, "%s is no error", name)
	}

	// A cancelled call ends there; its execution_id is in its progress.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *mcp.CallToolResult, 1)
	go func() {
		res, _ := s.call(ctx, "wait", `{}`)
		ended <- res
	}()
	id := s.running(t, "wait")
	cancel()
	<-ended
	testkit.Until(t, "the run is cancelled", func() bool {
		res := testkit.Get(s.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "workflow_status", Arguments: map[string]string{"execution_id": id}})).Must(t)
		testkit.Need(t, !res.IsError, "%s", words(res))
		return strings.Contains(words(res), `"state":"cancelled"`)
	})

	// Another call cancels what a person must do there.
	s.mu.Lock()
	s.progress = nil
	s.mu.Unlock()
	go func() {
		res, _ := s.call(t.Context(), "ask", `{}`)
		ended <- res
	}()
	id = s.running(t, "ask")
	for range 2 {
		res := testkit.Get(s.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "cancel_execution", Arguments: map[string]string{"execution_id": id}})).Must(t)
		testkit.Need(t, !res.IsError, "%s", words(res))
		testkit.Need(t, strings.Contains(words(res), `"state":"cancelled"`), "%s", words(res))
		testkit.Need(t, strings.Contains(words(res), "was cancelled at its source"), "%s", words(res))
	}
	res := <-ended
	testkit.Need(t, res != nil, "the call that waited: %v", res)
	testkit.True(t, res.IsError, "the call that waited: %v", res)
	testkit.Contains(t, words(res), "was cancelled", "the call that waited: %v", res)

	// What comes later is a tool without being asked for.
	s.gives(t, "grow", `{}`)
	s.until(t, "fresh")
}
