//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
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
	{
		name:    "Claude Code",
		api:     anthropic,
		waits:   "timed out",
		command: "/mcp__deepwork__%s",
		read: move{
			tool: "ReadMcpResourceTool",
			own:  true,
			args: map[string]any{"server": "deepwork", "uri": "deepwork://jobs/care"},
		},
		setup: setUpClaudeCode,
	},
	{
		name:  "Codex CLI", // it has no prompts of servers
		api:   openAI,
		waits: "timed out",
		read: move{
			tool: "read_mcp_resource",
			own:  true,
			args: map[string]any{"server": "deepwork", "uri": "deepwork://jobs/care"},
		},
		setup: setUpCodex,
	},
	{
		name:    "Gemini CLI", // with -p it sends a command to the model as it is
		api:     google,
		waits:   "timed out",
		mention: "What is @deepwork:deepwork://jobs/care",
		setup:   setUpGemini,
	},
}

func setUpClaudeCode(t *testing.T, home, model string, s server) ([]string, []string) {
	entry := map[string]any{"type": "http", "url": s.url}
	if s.url == "" {
		entry = map[string]any{"command": s.command[0], "args": s.command[1:]}
	}
	testkit.Write(t, filepath.Join(home, "mcp.json"),
		encoded(map[string]any{"mcpServers": map[string]any{"deepwork": entry}}))
	return []string{
			node(t), filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code",
				"cli-wrapper.cjs"),
			"--mcp-config", filepath.Join(home, "mcp.json"), "--strict-mcp-config", "--allowedTools",
			"mcp__deepwork", "-p",
		}, []string{
			"ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_API_KEY=scripted",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
			fmt.Sprintf("MCP_TOOL_TIMEOUT=%d", callLimit.Milliseconds()),
		}
}

func setUpCodex(t *testing.T, home, model string, s server) ([]string, []string) {
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
}

func setUpGemini(t *testing.T, home, model string, s server) ([]string, []string) {
	entry := map[string]any{"httpUrl": s.url, "timeout": callLimit.Milliseconds(), "trust": true}
	if s.url == "" {
		delete(entry, "httpUrl")
		entry["command"], entry["args"] = s.command[0], s.command[1:]
	}

	testkit.Write(t, filepath.Join(home, ".gemini", "settings.json"), encoded(map[string]any{
		"security": map[string]any{
			"auth":        map[string]any{"selectedType": "gemini-api-key"},
			"folderTrust": map[string]any{"enabled": false},
		},
		"general":    map[string]any{"disableAutoUpdate": true, "disableUpdateNag": true},
		"privacy":    map[string]any{"usageStatisticsEnabled": false},
		"mcpServers": map[string]any{"deepwork": entry},
	}))
	return []string{
		node(t), filepath.Join(agentPackages(t), "node_modules", "@google", "gemini-cli", "bundle",
			"gemini.js"), "-y", "-m", "gemini-2.5-pro", "-p",
	}, []string{"GEMINI_API_KEY=scripted", "GOOGLE_GEMINI_BASE_URL=" + model}
}

// openCodeAgent is not one of codingAgents: deepwork configures it as the agent of a run only. The package of its
// program has one for each platform, of which the lock file has one.
var openCodeAgent = agent{name: "OpenCode", api: openCode, setup: setUpOpenCode}

func setUpOpenCode(t *testing.T, home, model string, _ server) ([]string, []string) {
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		t.Skip("the lock file has OpenCode for linux/amd64 only")
	}
	config := filepath.Join(home, "opencode.json")
	testkit.Write(t, config, encoded(map[string]any{
		"model": "anthropic/claude-sonnet-4-5", "small_model": "anthropic/claude-sonnet-4-5", "share": "disabled",
		"provider": map[string]any{"anthropic": map[string]any{"options": map[string]any{
			"baseURL": model + "/v1",
			"apiKey":  "scripted",
		}}},
	}))
	return []string{filepath.Join(agentPackages(t), "node_modules", "opencode-linux-x64", "bin", "opencode")},
		[]string{"OPENCODE_CONFIG=" + config, "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
}

// care is a job with a step that anybody can finish and one whose review takes longer than an agent waits.
const care = `name: care
version: "1.0.0"
summary: Take care
common_job_info_provided_to_all_steps_at_runtime: Be careful.
steps:
  - {id: write, name: Write, description: Write it, instructions_file: write.md, outputs: {report: {type: file, ` +
	`description: The report}}, reviews: []}
  - {id: judge, name: Judge, description: Judge it, instructions_file: judge.md, outputs: {verdict: {type: file, ` +
	`description: The verdict}},
    reviews: [{run_each: step, quality_criteria: {good: "Is it good?"}}]}
workflows: [{name: main, summary: All of it, steps: [write, judge]}]
`

func careProject(t *testing.T) project {
	t.Helper()
	p := project{root: t.TempDir()}
	testkit.WriteAll(t, p.root, map[string]string{
		".deepwork/jobs/care/job.yml":  care,
		".deepwork/jobs/care/write.md": "Write the report with the word zebra in it.\n",
		".deepwork/jobs/care/judge.md": "Judge the report as a giraffe would.\n",
		"report.md":                    "zebra\n",
		"verdict.md":                   "tall enough\n",
	})
	return p
}

// personProject has that job with a person in the place of the reviewer.
func personProject(t *testing.T) project {
	t.Helper()
	p := careProject(t)
	testkit.Write(t, filepath.Join(p.root, ".deepwork", "jobs", "care", "job.yml"),
		strings.ReplaceAll(care, "{run_each: step,", "{run_each: step, by: human,"))
	return p
}

// Real coding agents walk a workflow: with a step that is refused, and a review that takes longer than they
// wait for a call.
func TestCodingAgentsWalkAWorkflow(t *testing.T) {
	for _, over := range []string{"stdio", "http"} {
		for _, a := range codingAgents {
			t.Run(a.name+" over "+over, func(t *testing.T) {
				p := careProject(t)
				m := startModel(t, a.api, move{tool: "get_workflows", args: map[string]any{}}, startsCare,
					finishes("write", "report", "nowhere.md"), finishes("write", "report", "report.md"),
					judges, move{tool: "get_step", args: map[string]any{}}, judges, judges, move{text: "It is done."})
				out := p.work(t, a, m, over, "Take care")
				for i, want := range []string{`"care"`, "zebra", "nowhere.md", "giraffe", a.waits} {
					m.saw(t, i+1, want)
				}

				// However long the agent waits in all, a repeated call gets the verdict of the one review.
				testkit.Contains(t, m.turns[len(m.turns)-1].result, "workflow_complete", "at the end the model saw")
				testkit.Equal(t, strings.Count(m.turns[4].result, "as a giraffe would"), 1,
					"the model sees the instructions … times: %s", m.turns[4].result)
				testkit.Contains(t, out, "It is done.", "the agent ended with")
			})
		}
	}
}

func finishes(step, output, file string) move {
	return move{tool: "finished_step", args: map[string]any{"step_id": step, "outputs": map[string]any{output: file}}}
}

var (
	startsCare = move{
		tool: "start_workflow",
		args: map[string]any{"goal": "Walk", "job_name": "care", "workflow_name": "main"},
	}
	judges = finishes("judge", "verdict", "verdict.md")
)

func (m *model) saw(t *testing.T, n int, want string) {
	t.Helper()
	testkit.Need(t, len(m.turns) > n, "the model was asked %d times only", len(m.turns))
	testkit.Contains(t, m.turns[n].result, want, "after move %d the model saw", n)
}

// work has the agent work on a prompt in the project, with a reviewer of 5 s, and returns what it prints.
func (p project) work(t *testing.T, a agent, m *model, over, prompt string) string {
	t.Helper()
	reviewer := []string{"--quality-gate",
		fmt.Sprintf("'%s' review-slowly %s", testkit.Get(os.Executable()).Must(t), callLimit+2*time.Second)}
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

func reviewSlowly(duration string) {
	d, err := time.ParseDuration(duration)
	if err != nil {
		panic(err)
	}
	time.Sleep(d)
	fmt.Println(`{"passed": true, "feedback": "", "criteria_results": [{"criterion": "good", "passed": true, ` +
		`"feedback": null}]}`)
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
				testkit.ContainsAll(t, m.turns[0].told,
					[]string{"Do the workflow care/main", "Walk the dog", "all of it is the goal"},
					"the model was told")
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

// A taskBoard is a client of a server on a project with a git repository.
type taskBoard struct {
	*testing.T
	*mcp.ClientSession
}

// openBoard starts a server whose agents have these programs and variables.
func openBoard(t *testing.T, p project, programs string, env ...string) taskBoard {
	t.Helper()
	command := p.command(t)
	server := exec.CommandContext(t.Context(), command[0], command[1:]...)
	server.Env = append(append(os.Environ(), "PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH")), env...)
	server.Stderr = t.Output()
	return taskBoard{t, connect(t, &mcp.CommandTransport{Command: server}).ClientSession}
}

func ask[Reply any](b taskBoard, tool string, args map[string]any) (r Reply) {
	b.Helper()
	res := testkit.Get(b.CallTool(b.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})).Must(b)
	text := res.Content[0].(*mcp.TextContent).Text
	testkit.Need(b, !res.IsError, "%s %v: %s", tool, args, text)
	testkit.Must(b, json.Unmarshal([]byte(text), &r))
	return r
}

func (b taskBoard) ends(id string, state board.State) (r attempt.AttemptReply) {
	b.Helper()
	testkit.Until(b, "ended", func() bool {
		r = ask[attempt.AttemptReply](b, "get_attempt", map[string]any{"attempt_id": id})
		return r.State != board.Queued && r.State != board.Running
	})
	if r.State != state {
		b.Fatalf("the attempt is %s, expected %s: %+v\n%+v", r.State, state, r,
			ask[attempt.TailReply](b, "tail_attempt", map[string]any{"attempt_id": id}).Messages)
	}
	return r
}

// Claude Code works on a task of the board, continues its conversation in a follow-up, and is stopped
// with its children in the middle of a third. What it used is counted; what is not known of the last is
// not 0. Its user's settings name a server of another project, whose workflow does not count as that of the attempt.
func TestClaudeCodeWorksOnATask(t *testing.T) {
	p, other := careProject(t), careProject(t)
	committed(t, p.root)
	bash := func(format string, args ...any) move {
		return move{
			tool: "Bash",
			own:  true,
			args: map[string]any{"command": fmt.Sprintf(format, args...), "description": "Work"},
		}
	}

	pids := filepath.Join(t.TempDir(), "pids")
	m := startModel(t, anthropic,
		move{
			tool: "start_workflow",
			args: map[string]any{"goal": "Elsewhere", "job_name": "care", "workflow_name": "main"},
		},
		bash("echo hello > a.txt && git add a.txt && git commit -q -m hello"), move{text: "I have said hello."},
		move{text: "I have thought of it again."},
		bash("echo $$ >'%[1]s.new'; sleep 600 & echo $! >>'%[1]s.new'; mv '%[1]s.new' '%[1]s'; wait", pids))
	home, programs := t.TempDir(), t.TempDir()
	_, env := codingAgents[0].setup(t, home, m.URL, server{url: "unused"})
	claude := fmt.Sprintf("#!/bin/sh\nexec '%s' '%s' \"$@\"\n", node(t),
		filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs"))
	testkit.Must(t, os.WriteFile(filepath.Join(programs, "claude"), []byte(claude), 0o755))
	command := other.command(t)
	testkit.Write(t, filepath.Join(home, ".claude.json"), encoded(map[string]any{"hasCompletedOnboarding": true,
		"mcpServers": map[string]any{"deepwork": map[string]any{"command": command[0], "args": command[1:]}}}))
	b := openBoard(t, p, programs, append(env, "HOME="+home, "IS_SANDBOX=1")...) // which root needs

	projectID := ask[board.ProjectsReply](b, "list_projects", nil).Projects[0].ProjectID
	repo := ask[board.ReposReply](b, "list_repos", map[string]any{"project_id": projectID}).Repos[0].RepoID
	task := ask[board.Task](b, "create_task",
		map[string]any{"project_id": projectID, "title": "Say hello", "description": "Use the word gazelle."})
	id := ask[attempt.AttemptReply](b, "start_task_attempt", map[string]any{
		"task_id":  task.TaskID,
		"executor": "CLAUDE_CODE",
		"repos":    []any{map[string]any{"repo_id": repo, "target_branch": "main"}},
	}).AttemptID
	first := b.ends(id, "completed")
	testkit.Equal(t, first.Repos[0].Ahead, 1)
	testkit.Need(t, first.FinalMessage != nil, "%+v", first)
	testkit.Equal(t, *first.FinalMessage, "I have said hello.")
	checkCost(t, first.Cost, 1, 0, 3)

	ask[attempt.FollowUpReply](b, "follow_up",
		map[string]any{"attempt_id": id, "action": "send", "prompt": "Think of an elephant."})
	checkCost(t, b.ends(id, "completed").Cost, 2, 0, 4)
	testkit.ContainsAll(t, m.turns[len(m.turns)-1].told, []string{"gazelle", "I have said hello.", "elephant"},
		"the model was told")

	ask[attempt.FollowUpReply](b, "follow_up", map[string]any{"attempt_id": id, "action": "send", "prompt": "Wait."})
	testkit.Until(t, "the agent waits", func() bool {
		_, err := os.Stat(pids)
		return err == nil
	})

	running := strings.Fields(string(testkit.Get(os.ReadFile(pids)).Must(t)))
	testkit.Equal(t, len(running), 2, "processes")
	ask[attempt.AttemptReply](b, "stop_attempt", map[string]any{"attempt_id": id})
	stopped := b.ends(id, "stopped")
	checkCost(t, stopped.Cost, 3, 1, 4)
	for _, pid := range running {
		n := testkit.Get(strconv.Atoi(pid)).Must(t)
		testkit.FailsWith(t, syscall.Kill(n, 0), syscall.ESRCH, "process %d goes on", n)
	}
	testkit.Equal(t, encoded(ask[board.TaskReply](b, "get_task", map[string]any{"task_id": task.TaskID}).Cost),
		encoded(stopped.Cost), "the task and its attempt cost")

	m.saw(t, 1, "zebra") // the workflow was begun there
	testkit.True(t, stopped.WorkflowSession == nil, "the attempt has a workflow")
	var said []string
	for _, msg := range ask[attempt.TailReply](b, "tail_attempt",
		map[string]any{"attempt_id": id, "limit": 100}).Messages {
		said = append(said, fmt.Sprint(msg))
	}
	testkit.ContainsAll(t, strings.Join(said, "\n"), []string{"echo hello", "I have said hello."}, "the messages are\n")
}

// checkCost checks what executions used. The model reports at least a token per turn.
func checkCost(t *testing.T, c *board.Cost, executions, unknown int, output int64) {
	t.Helper()
	testkit.Need(t, c != nil, "the cost is %s", encoded(c))
	testkit.Equal(t, c.Executions, executions, "the cost is %s", encoded(c))
	testkit.Equal(t, c.Unknown, unknown, "the cost is %s", encoded(c))
	testkit.Need(t, c.Output != nil, "the cost is %s", encoded(c))
	testkit.True(t, *c.Output >= output, "the cost is %s", encoded(c))
	testkit.Need(t, c.Turns != nil, "the cost is %s", encoded(c))
	testkit.True(t, c.USD != nil, "the cost is %s", encoded(c))
}

// report is a job whose first step is reviewed.
const report = `name: report
version: "1.0.0"
summary: Write and judge
common_job_info_provided_to_all_steps_at_runtime: Be brief.
steps:
  - id: write
    name: Write
    description: Write it
    instructions: Write.
    outputs: {text: {type: file, description: The text}}
    reviews: [{run_each: text, quality_criteria: {good: "Is it good?"}}]
  - {id: judge, name: Judge, description: Judge it, instructions: Judge as a giraffe would., outputs: {text: ` +
	`{type: file, description: The verdict}}, reviews: []}
workflows:
  - {name: main, summary: All of it, steps: [write, judge]}
`

// committed makes a folder a git repository of its user.
func committed(t *testing.T, root string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"config", "user.name", "Una User"},
		{"config", "user.email", "una@example.com"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(t, root, args...)
	}
}

// A run is led with the known executors: each reaches the server of the run, and no other one of the same name in its
// user's settings; gets the feedback of a review that did not pass; is sent back in its conversation when it ends
// without finishing its step; and, if its provider's limit is reached, goes on when that is over.
func TestCodingAgentsAreLedThroughAWorkflow(t *testing.T) {
	for i, executor := range []string{"CLAUDE_CODE", "CODEX", "GEMINI", "OPENCODE"} {
		t.Run(executor, func(t *testing.T) {
			finish := func(file string) move {
				return move{tool: "finished_step", args: map[string]any{"outputs": map[string]any{"text": file}}}
			}
			script := []move{finish("bad.md"), {text: "I stop here."}, finish("good.md"), {text: "It is written."}}
			if executor == "CLAUDE_CODE" {
				script = append(script,
					move{limit: "This request would exceed your rate limit. Try again in 2 seconds."})
			}
			script = append(script, finish("bad.md"), move{text: "It is judged."})
			a := slices.Concat(codingAgents, []agent{openCodeAgent})[i]
			m := startModel(t, a.api, script...)
			events := lead(t, a, m, executor)
			end := events[len(events)-1]
			testkit.Need(t, end.Event == "run_ended" && end.State == "completed", "%+v", events)

			for i, want := range []string{"say that it is good", "", `"next_step"`} {
				m.saw(t, i+1, want)
			}
			testkit.ContainsAll(t, m.turns[2].told,
				[]string{"say that it is good", "its last review did not pass", "I stop here."},
				"the agent was sent back with")
			testkit.ContainsAll(t, m.turns[4].told, []string{"Judge as a giraffe", "Ask zebras"},
				"the second step begins with")
			testkit.True(t, !strings.Contains(m.turns[4].told, "I stop here."), "the second step begins with %s",
				m.turns[4].told)
			testkit.Equal(t, strings.Join(names(m.turns[0].tools), " "), "finished_step get_step start_workflow",
				"the model was shown the tools")
			testkit.True(t, m.others <= 0 || executor != "OPENCODE",
				"%d requests to the model have a cost that is not reported", m.others)

			limits := 0
			for _, e := range events {
				if e.Event == "step_ended" && e.Until != nil {
					limits++
				} else if e.Event == "step_ended" {
					testkit.Equal(t, e.CostUSD != nil, executor == "CLAUDE_CODE" || executor == "OPENCODE",
						"its cost is known: %+v", e)
				}
			}
			testkit.Equal(t, limits, len(script)-6, "limits: %+v", events)
		})
	}
}

type event struct {
	Event, State    string
	Reason, Message *string
	Until           *string
	CostUSD         *float64 `json:"cost_usd"`
}

// lead has a run led with an agent, in whose settings there is a server of another project.
func lead(t *testing.T, a agent, m *model, executor string) (events []event) {
	t.Helper()
	p, other := newProject(t), careProject(t)
	self := testkit.Get(os.Executable()).Must(t)
	p.configure(t, fmt.Sprintf("quality_gate: {agent_review_command: %q}\nrun: {retries: 1}\n",
		fmt.Sprintf("'%s' review '%s'", self, p.told)))
	testkit.Write(t, p.told, "")
	testkit.WriteAll(t, p.root, map[string]string{
		".deepwork/jobs/report/job.yml": report,
		"bad.md":                        "bad\n",
		"good.md":                       "this is good\n",
	})
	committed(t, p.root)
	m.server = executors.MCPName
	home, programs := t.TempDir(), t.TempDir()
	command := other.command(t)
	argv, env := a.setup(t, home, m.URL, server{command: command})
	program := "'" + argv[0] + "'"
	if executor != "OPENCODE" { // the others are scripts
		program += " '" + argv[1] + "'"
	}
	testkit.Write(t, filepath.Join(home, ".claude.json"), encoded(map[string]any{"hasCompletedOnboarding": true,
		"mcpServers": map[string]any{"deepwork": map[string]any{"command": command[0], "args": command[1:]}}}))
	settings := filepath.Join(home, ".gemini", "settings.json")
	if data, err := os.ReadFile(settings); err == nil { // what the README has its user add
		var v map[string]any
		testkit.Must(t, json.Unmarshal(data, &v))
		v["mcpServers"].(map[string]any)[executors.MCPName] = map[string]any{
			"httpUrl": "$DEEPWORK_MCP_URL",
			"headers": map[string]any{"Authorization": "Bearer $DEEPWORK_MCP_TOKEN"},
		}
		testkit.Write(t, settings, encoded(v))
	}

	name := map[string]string{
		"CLAUDE_CODE": "claude",
		"CODEX":       "codex",
		"GEMINI":      "gemini",
		"OPENCODE":    "opencode",
	}[executor]
	testkit.Must(t, os.WriteFile(filepath.Join(programs, name),
		fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\"\n", program), 0o755))

	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), "run", "report/main", "--goal", "Ask zebras", "--executor", executor,
		"--json", "--path", p.root)
	cmd.Env = append(append(os.Environ(), env...), "HOME="+home, "IS_SANDBOX=1", // which root needs
		"PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cmd.Stderr = t.Output()
	cmd.Cancel = func() error {
		return cmd.Process.Signal(os.Interrupt)
	}
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		var e event
		testkit.Must(t, json.Unmarshal([]byte(line), &e))
		events = append(events, e)
		t.Log(strings.TrimSpace(line))
	}
	if err != nil {
		for i, turn := range m.turns {
			t.Logf("%d: %.1500s", i, turn.result)
		}
		t.Fatal(err)
	}
	return events
}
