//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

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
	testkit.Must(t, os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\nexec "+claudeItself(t)+" "+arguments+" \"$@\"\n"), 0o755))
	return u
}

// types has the user type a command, while this model is Claude Code's, and returns what is printed.
func (u claudeUser) types(m *model, line string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), "sh", "-c", line)
	cmd.Dir = u.dir
	cmd.Env = append(os.Environ(), "HOME="+u.home, "PATH="+filepath.Join(u.home, "bin")+":"+os.Getenv("PATH"),
		"MCP_CONNECTION_NONBLOCKING=0", "MCP_CONNECT_TIMEOUT_MS=60000", // on a busy machine 5 s are too short for the tools
		"ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	out, err := cmd.CombinedOutput()
	testkit.Need(u.t, err == nil, "%s: %v\n%s", line, err, out)
	return string(out)
}

// The plugin is one of Claude Code's; it brings the server and its skills, and after a compaction the model is told which
// session it is in, and at which step.
func TestClaudeCodeHasThePlugin(t *testing.T) {
	top := testkit.Get(filepath.Abs(filepath.Join("..", ".."))).Must(t)
	u := newClaudeUser(t, careProject(t).root, "--plugin-dir '"+filepath.Join(top, "cmd", "deepwork", "plugin")+"' --allowedTools mcp__plugin_deepwork_deepwork -p")
	m := startModel(t, anthropic, startsCare, move{text: "It is started."}, move{text: "I am at it."}, move{text: "<summary>Nothing to tell.</summary>"})
	m.server = "plugin_deepwork_deepwork"
	said := u.types(m, `claude "/deepwork:start care/main, with a walk as the goal"`)
	testkit.Need(t, len(m.turns) >= 2, "the model had no tools of the plugin's server, or did not use them: %s", said)
	testkit.ContainsAll(t, m.turns[0].told, []string{"- deepwork:start: ", "- deepwork:new-job: ", "- deepwork:record: ", "care/main, with a walk as the goal"}, "the model was told")
	session := regexp.MustCompile(`"session_id":"([0-9a-f]{8})"`).FindStringSubmatch(m.turns[1].result)
	testkit.Need(t, session != nil, "the workflow was not started: %s", m.turns[1].result)
	u.types(m, `claude -c "Go on"`)
	u.types(m, `claude -c "/compact"`)
	before := len(m.turns)
	u.types(m, `claude -c "What is next?"`)
	told := m.turns[before].told
	testkit.Contains(t, told, "- session "+session[1]+" of care/main is at step write; its goal: ", "after the compaction the model was told")
	testkit.True(t, !strings.Contains(told, "It is started."), "nothing was compacted: %s", told)

	// The marketplace of the repository offers it, and Claude Code says then that it is on, which init reads.
	validated := u.types(m, claudeItself(t)+" plugin validate '"+top+"'")
	testkit.Contains(t, validated, "Validation passed", "the marketplace")
	u.types(m, claudeItself(t)+" plugin marketplace add '"+top+"' && "+claudeItself(t)+" plugin install deepwork@deepwork")
	testkit.Contains(t, u.types(m, "deepwork init --claude-code"), "you have the plugin for Claude Code", "init")
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(u.dir, ".claude"))).Err(), os.ErrNotExist, "what the plugin has")
}

// claudeItself is the command of Claude Code.
func claudeItself(t *testing.T) string {
	return fmt.Sprintf("'%s' '%s'", node(t), filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs"))
}

// ownJob is the first job of somebody's own, in the files that an agent writes for it.
const ownJob = `name: greeting
version: "1.0.0"
summary: "Write the greeting of the week"
common_job_info_provided_to_all_steps_at_runtime: "Greetings are for customers."
workflows: [{name: write, summary: "One greeting", steps: [write_greeting]}]
steps:
  - id: write_greeting
    name: "Write the greeting"
    description: "One line"
    instructions_file: steps/write_greeting.md
    outputs: {greeting: {type: file, description: "greeting.md: one friendly line"}}
    reviews: [{run_each: step, quality_criteria: {friendly: "Is it friendly?"}}]
`

// From the installed program to the first workflow of one's own done in Claude Code, each command is printed by the one
// before, and there are no more than five.
func TestFirstMinute(t *testing.T) {
	u := newClaudeUser(t, t.TempDir(), "--allowedTools 'mcp__deepwork Write' -p")
	writes := func(name, text string) move {
		return move{tool: "Write", own: true, args: map[string]any{"file_path": filepath.Join(u.dir, name), "content": text}}
	}
	finishes := func(step string, outputs map[string]any) move {
		return move{tool: "finished_step", args: map[string]any{"step_id": step, "outputs": outputs, "quality_review_override_reason": "A subagent says that every criterion is met."}}
	}
	const job, report, changes = ".deepwork/jobs/greeting/", ".deepwork/reports/greeting_test_2026-11-26.md", ".deepwork/jobs/greeting/CHANGELOG.md"
	models := []*model{nil, startModel(t, anthropic), // deepwork --help, deepwork init
		startModel(t, anthropic,
			move{tool: "start_workflow", args: map[string]any{"goal": "Greet customers", "job_name": "deepwork_jobs", "workflow_name": "new_job"}},
			writes(job+"job.yml", ownJob), finishes("define", map[string]any{"job_definition": job + "job.yml"}),
			writes(job+"steps/write_greeting.md", "Write one friendly line.\n"), finishes("implement", map[string]any{"instruction_files": []string{job + "steps/write_greeting.md"}}),
			writes(report, "It works.\n"), finishes("test", map[string]any{"test_report": report}),
			writes(changes, "1.0.0: new.\n"), finishes("iterate", map[string]any{"change_log": changes}),
			move{text: "It is ready. Start it by:\n\n  claude \"Start the workflow write of greeting.\""}),
		startModel(t, anthropic,
			move{tool: "start_workflow", args: map[string]any{"goal": "This week's", "job_name": "greeting", "workflow_name": "write"}},
			writes("greeting.md", "Good morning!\n"), finishes("write_greeting", map[string]any{"greeting": "greeting.md"}),
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
	testkit.Contains(t, made[len(made)-1].result, `claude \"Start the workflow <workflow> of <job>.\"`, "at the end of new_job the model is told")
	testkit.Contains(t, walked[len(walked)-1].result, "workflow_complete", "at the end of its workflow the model sees")
}
