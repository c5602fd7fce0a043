package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/transport"
	"deepwork/transport/tools/toolstest"
	"deepwork/transport/web"
)

func TestMain(m *testing.M) { toolstest.Main(m) }

// a system offers workflows as another server does.
func system(t *testing.T, workflows *atomic.Value) (url string) {
	server := mcp.NewServer(&mcp.Implementation{Name: "system", Version: "1"}, nil)
	looks := 0
	for name, answer := range map[string]func(id string) string{
		"list": func(string) string { return workflows.Load().(string) },
		"status": func(string) string {
			looks++
			return []string{`{"status":"running","progress":1,"total":2,"message":"half"}`,
				`{"status":"completed","output":[7]}`}[min(looks-1, 1)]
		},
		"cancel": func(string) string { return `{"status":"cancelled"}` },
		"execute": func(id string) string {
			return map[string]string{"w-add": `{"sum":3}`, "w-slow": `{"execution_id":"x-1","status":"running"}`}[id]
		},
	} {
		server.AddTool(&mcp.Tool{
			Name:        "workflows-" + name + "-tool",
			InputSchema: json.RawMessage(`{"type":"object"}`),
		}, func(
			_ context.Context, r *mcp.CallToolRequest,
		) (*mcp.CallToolResult, error) {
			var in struct {
				ID string `json:"workflow_id"`
			}
			_ = json.Unmarshal(r.Params.Arguments, &in) // others have none
			text := answer(in.ID)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: text == ""}, nil
		})
	}
	handler := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		return server
	}, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(handler.Close)
	return handler.URL
}

const offer = `[{"id":"w-add","name":"add","description":"Adds two numbers","executionType":"sync",` +
	`"category":"math","version":"2","inputSchema":{"type":"object","properties":{"a":{"type":"number"}},` +
	`"required":["a"]}},
	{"id":"w-slow","name":"slow","description":"Takes its time","executionType":"async"}, {"id":"w-fail",` +
	`"name":"Fail it!","description":"Fails","executionType":"sync"},
	{"id":"w-add-2","name":"add","description":"Adds otherwise","executionType":"sync"}, {"id":"w-bad",` +
	`"name":"bad","executionType":"sync","inputSchema":{"type":"string"}}]`

// What an agent calls, and what it gets, are in a golden file.
func TestToolsOfOtherSystems(t *testing.T) {
	workflows := new(atomic.Value)
	workflows.Store(offer)
	root := testkit.Dir(t)
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/config.yml": "workflow_tools:\n  status_interval: 20ms\n  expose_jobs: true\n  sources:\n    - " +
			"{name: shop, url: " + system(t, workflows) + "}\n    - {name: gone, url: http://127.0.0.1:9/mcp}\n",
		".deepwork/jobs/trip/job.yml": "name: trip\nversion: 1.0.0\nsummary: Plans a " +
			"trip\ncommon_job_info_provided_to_all_steps_at_runtime: C\nworkflows:\n  - {name: plan, summary: Plans, " +
			"inputs: [{name: where to, description: W}], steps: [idea]}\nsteps:\n  - {id: idea, name: I, " +
			"description: D, instructions: Think of it., outputs: {}, reviews: []}\n",
	})

	s := testkit.Get(transport.NewServer(transport.Options{
		ProjectRoot:    root,
		StandardJobs:   fstest.MapFS{},
		AdditionalJobs: []string{},
		Toolsets:       []string{"workflows", "remote", "source"},
	})).Must(t)

	h := testkit.Get(s.Listen(t.Context(), web.Options{})).Must(t)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	cs := testkit.Get(mcp.NewClient(&mcp.Implementation{
		Name:    "client",
		Version: "1",
	}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:   h.URL(),
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}, nil)).Must(t)
	defer func() {
		cs.Close()
		stop()
		testkit.Works(t, <-served)
		testkit.Works(t, s.Close(context.Background()))
	}()

	call := func(name, args string) string {
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		if err != nil {
			return err.Error()
		}
		return toolstest.Text(t, res)
	}
	testkit.Until(t, "the tools", func() bool {
		listed := call("list_workflow_tools", `{"name":"add*"}`)
		return strings.Contains(listed, "w-add") && strings.Contains(listed, "connecting:")
	})

	var out strings.Builder
	varies := regexp.MustCompile(
		`"([^"]*_at|project_root|job_dir|description_changed)":"[^"]*"|[0-9a-f]{8}-[0-9a-f-]{27}|` +
			`"(session_id|duration_ms|took_ms)":[^,}]+|127\.0\.0\.1:\d+|"connecting: (\\.|[^"\\])*"`)
	say := func(name, args string) {
		fmt.Fprintf(&out, "%s %s\n  %s\n", name, args, varies.ReplaceAllString(call(name, args), "…"))
	}
	for tool, err := range cs.Tools(t.Context(), nil) {
		testkit.Must(t, err)
		if meta := tool.Meta; meta != nil {
			fmt.Fprintf(&out, "%s: %s\n  %s\n", tool.Name, tool.Description,
				testkit.Get(json.Marshal(tool.InputSchema)).Must(t))
		}
	}

	each := func(calls ...string) {
		for _, c := range calls {
			name, args, _ := strings.Cut(c, " ")
			say(name, args)
		}
	}
	each(`list_workflow_tools {}`, `list_workflow_tools {"name":"add"}`, `list_workflow_tools {"name":"[a"}`,
		`list_workflow_tools {"cursor":"x"}`, `list_workflow_tools {"name":"add_*"}`,
		`add {"a":1}`, `add_w-add {"a":1}`, `add_w-add {"a":"one"}`, `Fail_it {}`, `nothing {}`,
		`workflow_status {"execution_id":"x-7"}`, `slow {}`, `workflow_status {"execution_id":"x-1"}`,
		`cancel_execution {"execution_id":"x-1"}`, `cancel_execution {"execution_id":"x-9"}`, `trip-plan {}`,
		`call_workflow_tool {"name":"add_w-add","arguments":{"a":2}}`,
		`call_workflow_tool {"name":"nothing"}`,
		`call_workflow_tool {"name":"trip-plan","arguments":{"goal":"g","where_to":"sea","instance_id":"i"}}`)

	workflows.Store(`[{"id":"w-add","name":"add","description":"Adds numbers","executionType":"sync"}]`)
	each(`refresh_workflow_tools {}`, `call_workflow_tool {"name":"slow"}`, `refresh_workflow_tools {}`,
		`workflow_status {"execution_id":"what"}`,
		`workflow_status {"execution_id":"3b241101-e2bb-4255-8caf-4136c566a962"}`,
		`call_workflow_tool {"name":"get_step"}`)
	for _, edit := range []string{"enabled: maybe", "enabled: false"} {
		testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), "workflow_tools: {"+edit+"}\n")
		say("refresh_workflow_tools", `{}`)
		say("list_workflow_tools", `{}`)
	}
	say("call_workflow_tool", `{"name":"add"}`)
	testkit.Golden(t, "testdata/tools.txt", out.String(), *toolstest.Update)
}
