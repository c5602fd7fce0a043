package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/remote"
	"deepwork/session/workflow/machine"
	remotetools "deepwork/transport/tools/remote"
	"deepwork/transport/tools/source"
	"deepwork/transport/web"
)

// innerProject is a project for a deepwork that is another one's source.
func innerProject(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml": tripJob, ".deepwork/jobs/trip/idea.md": "Think.",
		"idea.txt": "sea", "h1.txt": "x",
	})
	return root
}

// One deepwork as the source of another: what is called at the outer one is an
// execution at the inner one, which an agent there moves on.
func TestADeepworkIsTheSourceOfAnother(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"stdio", "http"} {
		t.Run(over, func(t *testing.T) {
			root := innerProject(t)
			var source string
			var agentOf func() *mcp.ClientSession
			if over == "stdio" {
				binary := testkit.Get(os.Executable()).Must(t)
				source = fmt.Sprintf("{name: inner, command: [%q], env: {%s: \"1\", %s: %q}}", binary, sourceEnv, rootEnv, root)
				agentOf = func() *mcp.ClientSession {
					url := testkit.Get(os.ReadFile(filepath.Join(root, "url"))).Must(t)
					return dialURL(t, string(url))
				}
			} else {
				h := overHTTP(t, serverOn(t, root, asSource), web.Options{})
				source = fmt.Sprintf("{name: inner, url: %q}", h.URL())
				agentOf = func() *mcp.ClientSession { return dialURL(t, h.URL()) }
			}
			outer, _ := withConfig(t, "workflow_tools:\n"+fast+"  sources:\n    - "+source+"\n", nil)
			outer.names(t, "trip-dream", "trip-plan")
			conforms(t, outer)
			cs := client(t, outer)
			tool := listed(t, cs)["trip-plan"]
			if !strings.HasPrefix(tool.Description, "[From the source inner; an agent must perform the steps there] From idea to booking") || tool.Meta[remotetools.WorkflowMeta].(map[string]any)["id"] != "trip/plan" {
				t.Errorf("got %+v", tool)
			}
			testkit.Contains(t, refusedWith(t, cs, "trip-plan", `{}`, "ToolError"), "goal")

			ended := make(chan *mcp.CallToolResult, 1)
			progress := make(chan string, 100)
			go func() {
				caller := clientWith(t, outer, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					select {
					case progress <- r.Params.Message:
					default:
					}
				}})
				params := &mcp.CallToolParams{Name: "trip-plan", Arguments: json.RawMessage(`{"goal":"a week off"}`)}
				params.SetProgressToken(1)
				res, err := caller.CallTool(context.Background(), params)
				testkit.True(t, err == nil, "%v", err)
				ended <- res
			}()
			for m := range progress {
				if strings.Contains(m, "0 of 4, at step 'idea'") {
					break
				}
			}

			agent := agentOf()
			_, kept, _ := strings.Cut(refusedWith(t, agent, "get_step", `{}`, "StateError"), "\n- ")
			id, _, _ := strings.Cut(kept, ":")
			for _, step := range []string{`"step_id":"idea","outputs":{"idea":"idea.txt"}`, `"step_id":"train","outputs":{}`,
				`"step_id":"hotel","outputs":{"hotels":["h1.txt"]}`, `"step_id":"booking","outputs":{}`} {
				into[machine.FinishReply](t, agent, "finished_step", `{"session_id":"`+id+`",`+step+`}`)
			}
			res := <-ended
			var got remote.Run
			if err := json.Unmarshal([]byte(text(res)), &got); err != nil || res.IsError {
				t.Fatal(err, text(res))
			}
			testkit.True(t, got.State == remote.Completed && string(got.Result) == `{"idea":"idea.txt","hotels":["h1.txt"]}` && *got.SourceExecutionID == id, "got %+v, result %s", got, got.Result)

			// Cancelled there is cancelled here.
			_, done := inBackgroundWith(t, cs, "trip-dream", `{"goal":"g"}`)
			var second string
			for second == "" {
				_, kept, _ := strings.Cut(refusedWith(t, agent, "get_step", `{}`, "StateError"), "\n- ")
				second, _, _ = strings.Cut(kept, ":")
			}
			into[machine.AbortReply](t, agent, "abort_workflow", `{"explanation":"no money","session_id":"`+second+`"}`)
			if res := <-done; res == nil || !res.IsError || errorMetaOf(t, res)["code"] != "workflow_cancelled" || !strings.Contains(text(res), "no money") {
				t.Errorf("got %+v", res)
			}
		})
	}
}

// dialURL connects a client to a server over HTTP.
func dialURL(t *testing.T, url string) *mcp.ClientSession {
	t.Helper()
	return connect(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: httpClient(t, "")}, stateful, nil)
}

// Two that are each other's sources do not pass on what they got for ever.
func TestTwoDeepworksThatAreEachOthersSources(t *testing.T) {
	t.Parallel()
	root := innerProject(t)
	a := serverOn(t, root, asSource)
	first := overHTTP(t, a, web.Options{})
	b, _ := withConfig(t, fmt.Sprintf("workflow_tools:\n  refresh_interval: 100ms\n  sources:\n    - {name: a, url: %q}\n", first.URL()), asSource)
	second := overHTTP(t, b, web.Options{})
	write(t, root, map[string]string{".deepwork/config.yml": fmt.Sprintf("workflow_tools:\n  refresh_interval: 100ms\n  sources:\n    - {name: b, url: %q}\n", second.URL())})
	want := []string{"trip-dream", "trip-plan"}
	a.names(t, want...)
	b.names(t, want...)
	for range 3 {
		into[remotetools.RefreshReply](t, client(t, a), "refresh_workflow_tools", `{}`)
		into[remotetools.RefreshReply](t, client(t, b), "refresh_workflow_tools", `{}`)
	}
	a.names(t, want...)
	b.names(t, want...)
}

// Of another identity an execution is not there.
func TestExecutionsAreTheirCallersAlone(t *testing.T) {
	t.Parallel()
	s, _ := bareProject(t, "", asSource)
	file, given := tokens(t, "ada", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	ada, bob := dial(t, h, stateful, given[0]), dial(t, h, stateful, given[1])
	started := into[source.StartedReply](t, ada, "workflows-execute-tool", `{"workflow_id":"trip/dream","input":{"goal":"g"}}`)
	about := `{"workflow_id":"trip/dream","execution_id":"` + started.ExecutionID + `"}`
	for _, tool := range []string{"workflows-status-tool", "workflows-cancel-tool"} {
		testkit.Contains(t, refusedWith(t, bob, tool, about, "StateError"), "not found")
	}
	if got := into[map[string]any](t, ada, "workflows-status-tool", about); (*got)["status"] != "running" {
		t.Errorf("got %v", *got)
	}
}

// asSource makes a server offer its workflows to others.
func asSource(o *Options) { o.Toolsets = []string{"workflows", "remote", "source"} }

// The tools for other servers are offered only if the flag or the config asks for them; otherwise a
// call says so, and so does a server that has this one as its source.
func TestToolsForOtherServersAreOfferedOnRequest(t *testing.T) {
	t.Parallel()
	s, root := bareProject(t, "", nil)
	changed := make(chan struct{}, 10)
	cs := clientWith(t, s, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
	names := []string{"workflows-list-tool", "workflows-execute-tool", "workflows-status-tool", "workflows-cancel-tool"}
	offered := func() (all []string) {
		for name := range listed(t, cs) {
			if strings.HasPrefix(name, "workflows-") {
				all = append(all, name)
			}
		}
		return all
	}
	if all := offered(); all != nil {
		t.Errorf("listed without being asked for: %v", all)
	}
	for _, name := range names {
		if got := refusedWith(t, cs, name, `{}`, "ToolError"); !strings.Contains(got, "--toolsets workflows,remote,board,source") || !strings.Contains(got, "expose_jobs: true") {
			t.Errorf("%s: %s", name, got)
		}
	}
	h := overHTTP(t, s, web.Options{})
	outer, _ := bareProject(t, fmt.Sprintf("workflow_tools: {sources: [{name: inner, url: %q}]}\n", h.URL()), nil)
	until(t, outer, "the source to be refused", func(l *remotetools.Listing) bool {
		return len(l.From.Sources) == 1 && l.From.Sources[0].Err != nil && strings.Contains(l.From.Sources[0].Err.Error(), "--toolsets workflows,source")
	})

	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools: {expose_jobs: true}\n"})
	<-changed
	if all := offered(); len(all) != len(names) {
		t.Errorf("listed %v once jobs are exposed", all)
	}
	into[source.StartedReply](t, cs, "workflows-execute-tool", `{"workflow_id":"trip/dream","input":{"goal":"g"}}`)

	testkit.Fails(t, testkit.Get(NewServer(Options{ProjectRoot: root, Toolsets: []string{"remote", "source"}})).Err(), "needs the toolset workflows", "source without workflows")
}

// This project's workflows as tools of their own (expose_jobs).
func TestExposedJobs(t *testing.T) {
	t.Parallel()
	s, root := bareProject(t, "workflow_tools: {expose_jobs: true}\n", nil)
	s.names(t, "trip-dream", "trip-plan")
	conforms(t, s)
	cs := client(t, s)
	got := into[machine.StartReply](t, cs, "trip-dream", `{"goal":"g","instance_id":"x"}`)
	testkit.True(t, got.BeginStep != nil && got.BeginStep.StepID == "idea" && len(got.Stack) == 1 && strings.HasSuffix(got.BeginStep.BranchName, "-x"), "got %+v", got)
	if said := refusedWith(t, cs, "trip-dream", `{"aim":"g"}`, "ToolError"); !strings.Contains(said, `"goal"`) || !strings.Contains(said, `"aim"`) {
		t.Error(said)
	}
	// An agent that writes a job and asks at once sees it.
	write(t, root, map[string]string{
		".deepwork/jobs/two/job.yml": strings.Replace(tripJob, "name: trip", "name: two", 1), ".deepwork/jobs/two/idea.md": "Think.",
	})
	if all := listed(t, cs); all["two-plan"] == nil || all["two-plan"].Meta[remotetools.WorkflowMeta].(map[string]any)["id"] != "two/plan" {
		t.Error("the new job is not listed")
	}
	into[machine.StartReply](t, cs, "two-plan", `{"goal":"g"}`)
	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools: {expose_jobs: false}\n"})
	if all := listed(t, cs); all["two-plan"] != nil {
		t.Error("jobs are listed still")
	}
}
