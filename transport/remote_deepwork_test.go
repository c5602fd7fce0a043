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

// One deepwork as the source of another: what is called at the outer one is an
// execution at the inner one, which an agent there moves on.
func TestADeepworkIsTheSourceOfAnother(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"stdio", "http"} {
		t.Run(over, func(t *testing.T) {
			inner, root := bareProject(t, "", asSource)
			url := ""
			source := ""
			if over == "stdio" {
				source = fmt.Sprintf("{name: inner, command: [%q], env: {%s: \"1\", %s: %q}}", testkit.Get(os.Executable()).Must(t), sourceEnv, rootEnv, root)
			} else {
				url = overHTTP(t, inner, web.Options{}).URL()
				source = fmt.Sprintf("{name: inner, url: %q}", url)
			}
			outer, _ := withConfig(t, "workflow_tools:\n"+fast+"  sources:\n    - "+source+"\n", nil)
			if over == "stdio" {
				url = string(testkit.Get(os.ReadFile(filepath.Join(root, "url"))).Must(t))
			}
			outer.names(t, "trip-dream", "trip-plan")
			conforms(t, outer)
			cs := client(t, outer)
			tool := listed(t, cs)["trip-plan"]
			testkit.True(t, strings.HasPrefix(tool.Description, "[From the source inner; an agent must perform the steps there] From idea to booking") && tool.Meta[remotetools.WorkflowMeta].(map[string]any)["id"] == "trip/plan", "got %+v", tool)
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
				testkit.Works(t, err)
				ended <- res
			}()
			for m := range progress {
				if strings.Contains(m, "0 of 4, at step 'idea'") {
					break
				}
			}
			agent := dialAt(t, url, stateful, httpClient(t, ""))
			id := keptBy(t, agent)
			for _, step := range []string{`"step_id":"idea","outputs":{"idea":"idea.txt"}`, `"step_id":"train","outputs":{}`,
				`"step_id":"hotel","outputs":{"hotels":["h1.txt"]}`, `"step_id":"booking","outputs":{}`} {
				into[machine.FinishReply](t, agent, "finished_step", `{"session_id":"`+id+`",`+step+`}`)
			}
			res := <-ended
			var got remote.Run
			must(t, json.Unmarshal([]byte(text(res)), &got))
			testkit.True(t, got.State == remote.Completed && string(got.Result) == `{"idea":"idea.txt","hotels":["h1.txt"]}` && *got.SourceExecutionID == id, "got %+v, result %s", got, got.Result)

			// Cancelled there is cancelled here.
			_, done := inBackground(t, cs, "trip-dream", `{"goal":"g"}`)
			into[machine.AbortReply](t, agent, "abort_workflow", `{"explanation":"no money","session_id":"`+keptBy(t, agent)+`"}`)
			res = <-done
			testkit.True(t, res != nil && res.IsError && errorMetaOf(t, res)["code"] == "workflow_cancelled" && strings.Contains(text(res), "no money"), "got %+v", res)
		})
	}
}

// keptBy waits until a server keeps a session that this agent could move on, and returns its id.
func keptBy(t *testing.T, agent *mcp.ClientSession) (id string) {
	t.Helper()
	waitFor(t, "a session has begun at the source", func() bool {
		_, kept, _ := strings.Cut(refusedWith(t, agent, "get_step", `{}`, "StateError"), "\n- ")
		id, _, _ = strings.Cut(kept, ":")
		return id != ""
	})
	return id
}

// Two that are each other's sources do not pass on what they got for ever.
func TestTwoDeepworksThatAreEachOthersSources(t *testing.T) {
	t.Parallel()
	a, root := bareProject(t, "", asSource)
	of := func(name string, s *Server) string {
		return fmt.Sprintf("workflow_tools:\n  refresh_interval: 100ms\n  sources:\n    - {name: %s, url: %q}\n", name, overHTTP(t, s, web.Options{}).URL())
	}
	b, _ := withConfig(t, of("a", a), asSource)
	write(t, root, map[string]string{".deepwork/config.yml": of("b", b)})
	for range 4 {
		for _, s := range []*Server{a, b} {
			s.names(t, "trip-dream", "trip-plan")
			into[remotetools.RefreshReply](t, client(t, s), "refresh_workflow_tools", `{}`)
		}
	}
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
	testkit.Contains(t, accepted(t, ada, "workflows-status-tool", about), `"status":"running"`)
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
	testkit.Same(t, offered(), nil, "listed without being asked for")
	for _, name := range names {
		testkit.ContainsAll(t, refusedWith(t, cs, name, `{}`, "ToolError"), []string{"--toolsets workflows,remote,board,source", "expose_jobs: true"}, "%s", name)
	}
	h := overHTTP(t, s, web.Options{})
	outer, _ := bareProject(t, fmt.Sprintf("workflow_tools: {sources: [{name: inner, url: %q}]}\n", h.URL()), nil)
	until(t, outer, "the source to be refused", func(l *remotetools.Listing) bool {
		return len(l.From.Sources) == 1 && l.From.Sources[0].Err != nil && strings.Contains(l.From.Sources[0].Err.Error(), "--toolsets workflows,source")
	})

	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools: {expose_jobs: true}\n"})
	<-changed
	testkit.Equal(t, len(offered()), len(names), "are listed once jobs are exposed")
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
	testkit.ContainsAll(t, refusedWith(t, cs, "trip-dream", `{"aim":"g"}`, "ToolError"), []string{`"goal"`, `"aim"`})
	// An agent that writes a job and asks at once sees it.
	write(t, root, map[string]string{".deepwork/jobs/two/job.yml": strings.Replace(tripJob, "name: trip", "name: two", 1), ".deepwork/jobs/two/idea.md": "Think."})
	testkit.Need(t, listed(t, cs)["two-plan"] != nil, "the new job is not listed")
	into[machine.StartReply](t, cs, "two-plan", `{"goal":"g"}`)
	write(t, root, map[string]string{".deepwork/config.yml": "workflow_tools: {expose_jobs: false}\n"})
	testkit.True(t, listed(t, cs)["two-plan"] == nil, "jobs are listed still")
}
