//go:build interop

package interop

import (
	"fmt"
	"path/filepath"
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
	return newClaudeUser(t, p.root, fmt.Sprintf("--mcp-config '%s' --strict-mcp-config --allowedTools mcp__deepwork %s -p", config, arguments))
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
			search("agents do a whole workflow unattended"), search("task board projects"), search("what needs attention"),
			{tool: "list_projects", args: map[string]any{}}, {tool: "needs_attention", args: map[string]any{}},
		})},
		"all tools are searched": {"stdio", map[string]any{"alwaysLoad": false}, slices.Concat([]move{search("start_workflow finished_step")}, walk)},
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
			testkit.Contains(t, m.turns[0].told, "Task board: list_projects", "the model is told the server's instructions")
			for i, next := range c.script {
				testkit.True(t, next.own || m.turns[i].tools[next.tool] != "", "the model does not have %s at move %d, but %v", next.tool, i, names(m.turns[i].tools))
				after := m.turns[i+1]
				testkit.True(t, !after.failed && !strings.Contains(after.result, "Error"), "%s fails: %s", next.tool, after.result)
			}
		})
	}
}

// Claude Code shows its user the question about a step that a person reviews, and brings the answer: by making the
// call again in the newest version of MCP, and as the answer to a request in the one before. Where nobody can be
// shown it, nothing is approved.
func TestClaudeCodeAsksItsUser(t *testing.T) {
	t.Parallel()
	const person = `'{"hookSpecificOutput":{"hookEventName":"Elicitation","action":"accept","content":{"decision":"pass","feedback":"Well walked"}}}'`
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
				hooks["Elicitation"] = []any{map[string]any{"hooks": []any{map[string]any{"type": "command", "command": "echo " + person}}}}
			}
			testkit.Write(t, settings, encoded(map[string]any{"hooks": hooks}))
			m := startModel(t, anthropic, startsCare, finishes("write", "report", "report.md"), judges, move{text: "It is done."})
			newClaude(t, p, c.over, nil, "--settings '"+settings+"'").types(m, "MCP_PROTOCOL_NEGOTIATION="+c.version+` claude "Take care"`)
			m.saw(t, 3, c.want)
		})
	}
}
