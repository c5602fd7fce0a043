//go:build interop

package interop

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

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
					if !listed[name] {
						t.Errorf("%s is not listed", name)
					}
				}
				if got := call(inspectorDone, "get_workflows", `{}`).value(t, "jobs.0.name"); got != `"trip"` {
					t.Errorf("job %s", got)
				}
				refused := call(inspectorRefused, "start_workflow", `{"goal":"g","job_name":"nowhere","workflow_name":"w"}`)
				if !refused.Error || refused.Structured != nil || !strings.Contains(refused.Text, "Job not found: nowhere") {
					t.Errorf("refused: %+v", refused)
				}
				started := call(inspectorDone, "start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"main"}`)
				id := started.value(t, "begin_step.session_id")
				if got := call(inspectorDone, "get_step", `{"session_id":`+id+`}`).value(t, "begin_step.step_id"); got != `"collect"` {
					t.Errorf("resumed at %s", got)
				}
				aborted := call(inspectorDone, "abort_workflow", `{"session_id":`+id+`,"explanation":"seen"}`)
				if got := aborted.value(t, "aborted_workflow"); got != `"trip/main"` {
					t.Errorf("aborted %s", got)
				}
			})
		}
	}
	p.whole(t)
}
