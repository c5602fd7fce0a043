//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// An agent is a real coding agent that works for a scripted model.
type agent struct {
	name string
	api  api
	// setup writes the agent's settings below home, with the server and callLimit, and returns the
	// command that has the agent work on a prompt, and its variables.
	setup   func(t *testing.T, home, model string, server server) (command, env []string)
	command string // how its user calls a prompt without a terminal; "" if that is impossible
	mention string // how its user mentions the job's resource, or
	read    move   // how its model reads it
	waits   string // a part of what the agent tells its model when a call takes too long
}

// A server is what an agent connects to: a command, or a URL.
type server struct {
	command []string
	url     string
}

// callLimit is how long the agents wait for a call; the reviews take longer.
const callLimit = 3 * time.Second

var codingAgents = []agent{
	{name: "Claude Code", api: anthropic, waits: "timed out",
		command: "/mcp__deepwork__%s", read: move{tool: "ReadMcpResourceTool", own: true, args: map[string]any{"server": "deepwork", "uri": "deepwork://jobs/care"}},
		setup: func(t *testing.T, home, model string, s server) ([]string, []string) {
			entry := map[string]any{"type": "http", "url": s.url}
			if s.url == "" {
				entry = map[string]any{"command": s.command[0], "args": s.command[1:]}
			}
			testkit.Write(t, filepath.Join(home, "mcp.json"), encoded(map[string]any{"mcpServers": map[string]any{"deepwork": entry}}))
			return []string{
					node(t), filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs"),
					"--mcp-config", filepath.Join(home, "mcp.json"), "--strict-mcp-config", "--allowedTools", "mcp__deepwork", "-p",
				}, []string{
					"ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_API_KEY=scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
					fmt.Sprintf("MCP_TOOL_TIMEOUT=%d", callLimit.Milliseconds()),
				}
		}},
	{name: "Codex CLI", api: openAI, waits: "timed out", // it has no prompts of servers
		read: move{tool: "read_mcp_resource", own: true, args: map[string]any{"server": "deepwork", "uri": "deepwork://jobs/care"}},
		setup: func(t *testing.T, home, model string, s server) ([]string, []string) {
			entry := fmt.Sprintf("url = %q\n", s.url)
			if s.url == "" {
				entry = fmt.Sprintf("command = %q\nargs = %s\n", s.command[0], encoded(s.command[1:]))
			}
			testkit.Write(t, filepath.Join(home, "config.toml"), fmt.Sprintf(`model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "%s/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[mcp_servers.deepwork]
tool_timeout_sec = %d
%s`, model, int(callLimit.Seconds()), entry))
			return []string{
				node(t), filepath.Join(agentPackages(t), "node_modules", "@openai", "codex", "bin", "codex.js"),
				"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
			}, []string{"CODEX_HOME=" + home, "SCRIPTED_KEY=scripted"}
		}},
	{name: "Gemini CLI", api: google, waits: "timed out", // with -p it sends a command to the model as it is
		mention: "What is @deepwork:deepwork://jobs/care",
		setup: func(t *testing.T, home, model string, s server) ([]string, []string) {
			entry := map[string]any{"httpUrl": s.url, "timeout": callLimit.Milliseconds(), "trust": true}
			if s.url == "" {
				delete(entry, "httpUrl")
				entry["command"], entry["args"] = s.command[0], s.command[1:]
			}
			testkit.Write(t, filepath.Join(home, ".gemini", "settings.json"), encoded(map[string]any{
				"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}, "folderTrust": map[string]any{"enabled": false}},
				"general":    map[string]any{"disableAutoUpdate": true, "disableUpdateNag": true},
				"privacy":    map[string]any{"usageStatisticsEnabled": false},
				"mcpServers": map[string]any{"deepwork": entry},
			}))
			return []string{
				node(t), filepath.Join(agentPackages(t), "node_modules", "@google", "gemini-cli", "bundle", "gemini.js"), "-y", "-m", "gemini-2.5-pro", "-p",
			}, []string{"GEMINI_API_KEY=scripted", "GOOGLE_GEMINI_BASE_URL=" + model}
		}},
}

// openCodeAgent is not one of codingAgents: deepwork configures it as the agent of a run only. The package of its
// program has one for each platform, of which the lock file has one.
var openCodeAgent = agent{name: "OpenCode", api: openCode,
	setup: func(t *testing.T, home, model string, _ server) ([]string, []string) {
		if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
			t.Skip("the lock file has OpenCode for linux/amd64 only")
		}
		config := filepath.Join(home, "opencode.json")
		testkit.Write(t, config, encoded(map[string]any{
			"model": "anthropic/claude-sonnet-4-5", "small_model": "anthropic/claude-sonnet-4-5", "share": "disabled",
			"provider": map[string]any{"anthropic": map[string]any{"options": map[string]any{"baseURL": model + "/v1", "apiKey": "scripted"}}},
		}))
		return []string{filepath.Join(agentPackages(t), "node_modules", "opencode-linux-x64", "bin", "opencode")},
			[]string{"OPENCODE_CONFIG=" + config, "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
	}}

// care is a job with a step that anybody can finish and one whose review takes longer than an agent waits.
const care = `name: care
version: "1.0.0"
summary: Take care
common_job_info_provided_to_all_steps_at_runtime: Be careful.
steps:
  - {id: write, name: Write, description: Write it, instructions_file: write.md, outputs: {report: {type: file, description: The report}}, reviews: []}
  - {id: judge, name: Judge, description: Judge it, instructions_file: judge.md, outputs: {verdict: {type: file, description: The verdict}},
    reviews: [{run_each: step, quality_criteria: {good: "Is it good?"}}]}
workflows: [{name: main, summary: All of it, steps: [write, judge]}]
`

func careProject(t *testing.T) project {
	t.Helper()
	p := project{root: t.TempDir()}
	testkit.WriteAll(t, p.root, map[string]string{
		".deepwork/jobs/care/job.yml": care, ".deepwork/jobs/care/write.md": "Write the report with the word zebra in it.\n",
		".deepwork/jobs/care/judge.md": "Judge the report as a giraffe would.\n", "report.md": "zebra\n", "verdict.md": "tall enough\n",
	})
	return p
}

// personProject has that job with a person in the place of the reviewer.
func personProject(t *testing.T) project {
	t.Helper()
	p := careProject(t)
	testkit.Write(t, filepath.Join(p.root, ".deepwork", "jobs", "care", "job.yml"), strings.ReplaceAll(care, "{run_each: step,", "{run_each: step, by: human,"))
	return p
}

// Real coding agents walk a workflow: with a step that is refused, and a review that takes longer
// than they wait for a call.
func TestCodingAgentsWalkAWorkflow(t *testing.T) {
	for _, over := range []string{"stdio", "http"} {
		for _, a := range codingAgents {
			t.Run(a.name+" over "+over, func(t *testing.T) {
				p := careProject(t)
				m := startModel(t, a.api, move{tool: "get_workflows", args: map[string]any{}}, startsCare, finishes("write", "report", "nowhere.md"), finishes("write", "report", "report.md"),
					judges, move{tool: "get_step", args: map[string]any{}}, judges, judges, move{text: "It is done."})
				out := p.work(t, a, m, over, "Take care")
				for i, want := range []string{`"care"`, "zebra", "nowhere.md", "giraffe", a.waits} {
					m.saw(t, i+1, want)
				}
				// However long the agent waits in all, a repeated call gets the verdict of the one review.
				testkit.Contains(t, m.turns[len(m.turns)-1].result, "workflow_complete", "at the end the model saw")
				testkit.Equal(t, strings.Count(m.turns[4].result, "as a giraffe would"), 1, "the model sees the instructions … times: %s", m.turns[4].result)
				testkit.Contains(t, out, "It is done.", "the agent ended with")
				if testing.Verbose() {
					for i, turn := range m.turns {
						t.Logf("%d: %.1500s", i, turn.result)
					}
				}
			})
		}
	}
}

func finishes(step, output, file string) move {
	return move{tool: "finished_step", args: map[string]any{"step_id": step, "outputs": map[string]any{output: file}}}
}

var (
	startsCare = move{tool: "start_workflow", args: map[string]any{"goal": "Walk", "job_name": "care", "workflow_name": "main"}}
	judges     = finishes("judge", "verdict", "verdict.md")
)

func (m *model) saw(t *testing.T, n int, want string) {
	t.Helper()
	testkit.Need(t, len(m.turns) > n, "the model was asked %d times only", len(m.turns))
	testkit.Contains(t, m.turns[n].result, want, "after move %d the model saw", n)
}

// work has the agent work on a prompt in the project, with a reviewer of 5 s, and returns what it prints.
func (p project) work(t *testing.T, a agent, m *model, over, prompt string) string {
	t.Helper()
	reviewer := []string{"--quality-gate", fmt.Sprintf("'%s' review-slowly %s", testkit.Get(os.Executable()).Must(t), callLimit+2*time.Second)}
	var s server
	if over == "http" {
		s.url = p.serve(t, "http", reviewer...)
	} else {
		s.command = p.command(t, reviewer...)
	}
	home := t.TempDir()
	argv, env := a.setup(t, home, m.URL, s)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], prompt)...)
	cmd.Dir, cmd.WaitDelay = p.root, time.Second
	cmd.Env = append(os.Environ(), append(env, "HOME="+home)...)
	out, err := cmd.CombinedOutput()
	testkit.Need(t, err == nil, "%v: %v\n%s", argv, err, out)
	return string(out)
}

// reviewSlowly is the reviewer of the tests with agents.
func reviewSlowly(duration string) {
	d, err := time.ParseDuration(duration)
	if err != nil {
		panic(err)
	}
	time.Sleep(d)
	fmt.Println(`{"passed": true, "feedback": "", "criteria_results": [{"criterion": "good", "passed": true, "feedback": null}]}`)
}

// The command of a user becomes the prompt of a workflow, where an agent has commands without a terminal, and a job is
// read as a resource: by a tool of the agent's own or because the user mentions it.
func TestCodingAgentsUsePromptsAndResources(t *testing.T) {
	for _, a := range codingAgents {
		t.Run(a.name, func(t *testing.T) {
			p := careProject(t)
			if a.command != "" {
				m := startModel(t, a.api, move{text: "I will."})
				p.work(t, a, m, "stdio", fmt.Sprintf(a.command, "deepwork:care:main")+" Walk the dog")
				testkit.ContainsAll(t, m.turns[0].told, []string{"Do the workflow care/main", "Walk the dog", "all of it is the goal"}, "the model was told")
			}
			script, prompt := []move{{text: "I have read it."}}, a.mention
			if a.mention == "" {
				script, prompt = append([]move{a.read}, script...), "Read"
			}
			m := startModel(t, a.api, script...)
			p.work(t, a, m, "stdio", prompt)
			testkit.Contains(t, m.turns[len(m.turns)-1].told, "=== care/judge: Judge ===", "the model was told")
		})
	}
}
