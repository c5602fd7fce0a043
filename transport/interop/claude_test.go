//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// newClaude makes a user of Claude Code in a project, which has its server over stdio or http. options are
// added to the server's entry, and arguments to the command.
func newClaude(t *testing.T, p project, over string, options map[string]any, arguments string) claudeUser {
	t.Helper()
	claudeItself(t) // installs it, before the time of the server begins
	entry := map[string]any{"type": "http"}
	if over == "http" {
		entry["url"] = p.serve(t, "http")
	} else {
		command := p.command(t)
		entry = map[string]any{"command": command[0], "args": command[1:]}
	}
	for key, value := range options {
		entry[key] = value
	}

	config := filepath.Join(t.TempDir(), "mcp.json")
	testkit.Write(t, config, encoded(map[string]any{"mcpServers": map[string]any{"deepwork": entry}}))
	return newClaudeUser(t, p.root,
		fmt.Sprintf("--mcp-config '%s' --strict-mcp-config --allowedTools mcp__deepwork %s -p", config, arguments))
}

// A model that has the server's instructions and ToolSearch gets from the first sentence to a finished step, and to
// the other tools, without a failed call: it has the tools of workflows at once (anthropic/alwaysLoad), or, if its
// user has Claude Code search for all, finds them, as the others, by the words of the instructions.
func TestClaudeCodeSearchesForTools(t *testing.T) {
	t.Parallel()
	search := func(query string) move {
		return move{tool: "ToolSearch", own: true, args: map[string]any{"query": query}}
	}
	walk := []move{startsCare, finishes("write", "report", "report.md")}
	for name, c := range map[string]struct {
		over    string
		options map[string]any
		script  []move
	}{
		"the tools of workflows are there": {"http", nil, slices.Concat(walk, []move{
			search("agents do a whole workflow unattended"), search("task board projects"),
			search("what needs attention"),
			{tool: "list_projects", args: map[string]any{}}, {tool: "needs_attention", args: map[string]any{}},
		})},
		"all tools are searched": {"stdio", map[string]any{"alwaysLoad": false},
			slices.Concat([]move{search("start_workflow finished_step")}, walk)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startModel(t, anthropic, append(c.script, move{text: "It is done."})...)
			newClaude(t, careProject(t), c.over, c.options, "").types(m, `claude "Take care of the report"`)
			testkit.Need(t, len(m.turns) == len(c.script)+1, "the model was asked %d times", len(m.turns))

			atOnce := workflowTools
			if c.options != nil {
				atOnce = nil
			}
			testkit.Equal(t, strings.Join(names(m.turns[0].tools), " "), strings.Join(atOnce, " "), "the tools at once")
			testkit.Contains(t, m.turns[0].told, "Task board: list_projects",
				"the model is told the server's instructions")

			for i, next := range c.script {
				testkit.True(t, next.own || m.turns[i].tools[next.tool] != "",
					"the model does not have %s at move %d, but %v", next.tool, i, names(m.turns[i].tools))
				after := m.turns[i+1]
				testkit.True(t, !after.failed && !strings.Contains(after.result, "Error"), "%s fails: %s", next.tool,
					after.result)
			}
		})
	}
}

// Claude Code shows its user the question about a step that a person reviews, and brings the answer: by
// making the call again in the newest version of MCP, and as the answer to a request in the one before. Where
// nobody can be shown it, nothing is approved.
func TestClaudeCodeAsksItsUser(t *testing.T) {
	t.Parallel()
	const person = `'{"hookSpecificOutput":{"hookEventName":"Elicitation","action":"accept",` +
		`"content":{"decision":"pass","feedback":"Well walked"}}}'`
	for name, c := range map[string]struct {
		over, version string
		answers       bool
		want          string
	}{
		"http":                     {"http", "auto", true, "workflow_complete"},
		"http, the version before": {"http", "legacy", true, "workflow_complete"},
		"stdio":                    {"stdio", "auto", true, "workflow_complete"},
		"nobody is there":          {"http", "auto", false, "Waiting: a person must pass"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := personProject(t)
			settings := filepath.Join(t.TempDir(), "settings.json")
			hooks := map[string]any{}
			if c.answers {
				hooks["Elicitation"] = []any{map[string]any{"hooks": []any{map[string]any{
					"type":    "command",
					"command": "echo " + person,
				}}}}
			}
			testkit.Write(t, settings, encoded(map[string]any{"hooks": hooks}))
			m := startModel(t, anthropic, startsCare, finishes("write", "report", "report.md"), judges,
				move{text: "It is done."})
			newClaude(t, p, c.over, nil, "--settings '"+settings+"'").types(m,
				"MCP_PROTOCOL_NEGOTIATION="+c.version+` claude "Take care"`)
			m.saw(t, 3, c.want)
		})
	}
}

// A claudeUser has Claude Code, in this folder, and deepwork, each as a command in PATH.
type claudeUser struct {
	t         *testing.T
	home, dir string
}

// newClaudeUser makes a user whose claude asks nothing: it has these arguments in front of its user's.
func newClaudeUser(t *testing.T, dir, arguments string) claudeUser {
	u := claudeUser{t: t, home: t.TempDir(), dir: dir}
	bin := filepath.Join(u.home, "bin")
	testkit.Must(t, os.Mkdir(bin, 0o755))
	testkit.Must(t, os.Symlink(binary(t), filepath.Join(bin, "deepwork")))
	testkit.Must(t, os.WriteFile(filepath.Join(bin, "claude"),
		[]byte("#!/bin/sh\nexec "+claudeItself(t)+" "+arguments+" \"$@\"\n"), 0o755))
	return u
}

// types has the user type a command, while this model is Claude Code's, and returns what is printed.
func (u claudeUser) types(m *model, line string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), "sh", "-c", line)
	cmd.Dir = u.dir
	cmd.Env = append(os.Environ(), "HOME="+u.home, "PATH="+filepath.Join(u.home, "bin")+":"+os.Getenv("PATH"),
		// on a busy machine 5 s are too short for the tools
		"MCP_CONNECTION_NONBLOCKING=0", "MCP_CONNECT_TIMEOUT_MS=60000",
		"ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	out, err := cmd.CombinedOutput()
	testkit.Need(u.t, err == nil, "%s: %v\n%s", line, err, out)
	return string(out)
}

// The plugin is one of Claude Code's; it brings the server and its skills, and after a compaction the model
// is told which session it is in, and at which step.
func TestClaudeCodeHasThePlugin(t *testing.T) {
	top := testkit.Get(filepath.Abs(filepath.Join("..", ".."))).Must(t)
	u := newClaudeUser(t, careProject(t).root, "--plugin-dir '"+filepath.Join(top, "cmd", "deepwork", "plugin")+
		"' --allowedTools mcp__plugin_deepwork_deepwork -p")
	m := startModel(t, anthropic, startsCare, move{text: "It is started."}, move{text: "I am at it."},
		move{text: "<summary>Nothing to tell.</summary>"})
	m.server = "plugin_deepwork_deepwork"
	said := u.types(m, `claude "/deepwork:start care/main, with a walk as the goal"`)
	testkit.Need(t, len(m.turns) >= 2, "the model had no tools of the plugin's server, or did not use them: %s", said)
	testkit.ContainsAll(t, m.turns[0].told,
		[]string{"- deepwork:start: ", "- deepwork:new-job: ", "- deepwork:record: ",
			"care/main, with a walk as the goal"}, "the model was told")

	session := regexp.MustCompile(`"session_id":"([0-9a-f]{8})"`).FindStringSubmatch(m.turns[1].result)
	testkit.Need(t, session != nil, "the workflow was not started: %s", m.turns[1].result)
	u.types(m, `claude -c "Go on"`)
	u.types(m, `claude -c "/compact"`)
	before := len(m.turns)
	u.types(m, `claude -c "What is next?"`)
	told := m.turns[before].told
	testkit.Contains(t, told, "- session "+session[1]+" of care/main is at step write; its goal: ",
		"after the compaction the model was told")
	testkit.True(t, !strings.Contains(told, "It is started."), "nothing was compacted: %s", told)

	// The marketplace of the repository offers it, and Claude Code says then that it is on, which init reads.
	testkit.Contains(t, u.types(m, claudeItself(t)+" plugin validate '"+top+"'"), "Validation passed",
		"the marketplace")
	u.types(m, claudeItself(t)+" plugin marketplace add '"+top+"' && "+claudeItself(t)+
		" plugin install deepwork@deepwork")
	testkit.Contains(t, u.types(m, "deepwork init --claude-code"), "you have the plugin for Claude Code", "init")
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(u.dir, ".claude"))).Err(), os.ErrNotExist,
		"what the plugin has")
}

// Claude Code accepts the plugin of a release, and its server answers.
func TestClaudeCodeConnectsToThePlugin(t *testing.T) {
	release := os.Getenv("DEEPWORK_TEST_RELEASE")
	if release == "" {
		t.Skip("DEEPWORK_TEST_RELEASE does not name the folder of a release")
	}
	u := newClaudeUser(t, t.TempDir(), "")
	m := startModel(t, anthropic)
	plugin := filepath.Join(release, "plugin")
	u.types(m, claudeItself(t)+" plugin validate '"+plugin+"'")
	testkit.ContainsAll(t, u.types(m, claudeItself(t)+" --plugin-dir '"+plugin+"' mcp list"),
		[]string{"deepwork serve --path . - ", "Connected"})
}

func claudeItself(t *testing.T) string {
	return fmt.Sprintf("'%s' '%s'", node(t),
		filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs"))
}

// ownJob is the first job of somebody's own, in the files that an agent writes for it.
const ownJob = `name: greeting
version: "1.0.0"
summary: "Write the greeting of the week"
common_job_info_provided_to_all_steps_at_runtime: "Greetings are for customers."
workflows: [{name: write, summary: "One greeting", steps: [write_greeting]}]
steps:
  - {id: write_greeting, name: "Write the greeting", description: "One line", instructions_file: ` +
	`steps/write_greeting.md,
    outputs: {greeting: {type: file, description: "greeting.md: one friendly line"}}, reviews: [{run_each: step, ` +
	`quality_criteria: {friendly: "Is it friendly?"}}]}
`

// From the installed program to the first workflow of one's own done in Claude Code, each command is printed by the one
// before, and there are no more than five.
func TestFirstMinute(t *testing.T) {
	u := newClaudeUser(t, t.TempDir(), "--allowedTools 'mcp__deepwork Write' -p")
	writes := func(name, text string) move {
		return move{
			tool: "Write",
			own:  true,
			args: map[string]any{"file_path": filepath.Join(u.dir, name), "content": text},
		}
	}

	finishes := func(step string, outputs map[string]any) move {
		return move{
			tool: "finished_step",
			args: map[string]any{
				"step_id":                        step,
				"outputs":                        outputs,
				"quality_review_override_reason": "A subagent says that every criterion is met.",
			},
		}
	}

	const job, report, changes = ".deepwork/jobs/greeting/", ".deepwork/reports/greeting_test_2026-11-26.md",
		".deepwork/jobs/greeting/CHANGELOG.md"
	models := []*model{nil, startModel(t, anthropic), // deepwork --help, deepwork init
		startModel(t, anthropic,
			move{
				tool: "start_workflow",
				args: map[string]any{
					"goal":          "Greet customers",
					"job_name":      "deepwork_jobs",
					"workflow_name": "new_job",
				},
			},
			writes(job+"job.yml", ownJob), finishes("define", map[string]any{"job_definition": job + "job.yml"}),
			writes(job+"steps/write_greeting.md", "Write one friendly line.\n"),
			finishes("implement", map[string]any{"instruction_files": []string{job + "steps/write_greeting.md"}}),
			writes(report, "It works.\n"), finishes("test", map[string]any{"test_report": report}),
			writes(changes, "1.0.0: new.\n"), finishes("iterate", map[string]any{"change_log": changes}),
			move{text: "It is ready. Start it by:\n\n  claude \"Start the workflow write of greeting.\""}),
		startModel(t, anthropic,
			move{
				tool: "start_workflow",
				args: map[string]any{"goal": "This week's", "job_name": "greeting", "workflow_name": "write"},
			},
			writes("greeting.md", "Good morning!\n"),
			finishes("write_greeting", map[string]any{"greeting": "greeting.md"}),
			move{text: "greeting.md is written."}),
	}
	models[0] = models[1]
	next := "deepwork --help"
	for i, printed := range []string{`"(deepwork init)"`, `(?m)^  (claude ".*")$`, `(?m)^  (claude ".*")$`, ""} {
		out := u.types(models[i], next)
		t.Logf("$ %s\n%s", next, out)
		found := regexp.MustCompile(printed).FindStringSubmatch(out)
		testkit.Need(t, found != nil, "%s does not print the next command:\n%s", next, out)
		if printed != "" {
			next = found[1]
		}
	}
	made, walked := models[2].turns, models[3].turns
	testkit.Contains(t, made[len(made)-1].result, `claude \"Start the workflow <workflow> of <job>.\"`,
		"at the end of new_job the model is told")
	testkit.Contains(t, walked[len(walked)-1].result, "workflow_complete", "at the end of its workflow the model sees")
}
