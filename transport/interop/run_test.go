//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/attempt/runner"
)

// report is a job whose first step is reviewed.
const report = `name: report
version: "1.0.0"
summary: Write and judge
common_job_info_provided_to_all_steps_at_runtime: Be brief.
steps:
  - id: write
    name: Write
    description: Write it
    instructions_file: write.md
    outputs: {text: {type: file, description: The text}}
    reviews: [{run_each: text, quality_criteria: {good: "Is it good?"}}]
  - id: judge
    name: Judge
    description: Judge it
    instructions_file: judge.md
    outputs: {text: {type: file, description: The verdict}}
    reviews: []
workflows:
  - {name: main, summary: All of it, steps: [write, judge]}
`

// A run is led with the known executors: each reaches the server of the run, and no other one of the same
// name in its user's settings; gets the feedback of a review that did not pass; is sent back in its
// conversation when it ends without finishing its step; and, if its provider's limit is reached, goes on
// when that is over.
func TestCodingAgentsAreLedThroughAWorkflow(t *testing.T) {
	for i, executor := range []string{"CLAUDE_CODE", "CODEX", "GEMINI", "OPENCODE"} {
		t.Run(executor, func(t *testing.T) {
			finish := func(file string) move {
				return move{tool: "finished_step", args: map[string]any{"outputs": map[string]any{"text": file}}}
			}
			script := []move{finish("bad.md"), {text: "I stop here."}, finish("good.md"), {text: "It is written."}}
			if executor == "CLAUDE_CODE" {
				script = append(script, move{limit: "This request would exceed your rate limit. Try again in 2 seconds."})
			}
			script = append(script, finish("bad.md"), move{text: "It is judged."})
			a := slices.Concat(codingAgents, []agent{openCodeAgent})[i]
			m := startModel(t, a.api, script...)
			events := lead(t, a, m, executor)
			if end := events[len(events)-1]; end.Event != "run_ended" || end.State != "complete" {
				t.Fatalf("%+v", events)
			}
			for i, want := range []string{"say that it is good", "", `"next_step"`} {
				m.saw(t, i+1, want)
			}
			if told := m.turns[2].told; !strings.Contains(told, "say that it is good") || !strings.Contains(told, "its last review did not pass") || !strings.Contains(told, "I stop here.") {
				t.Errorf("the agent was sent back with %s", told)
			}
			if told := m.turns[4].told; strings.Contains(told, "I stop here.") || !strings.Contains(told, "Judge as a giraffe") || !strings.Contains(told, "Ask zebras") {
				t.Errorf("the second step begins with %s", told)
			}
			if got := strings.Join(names(m.turns[0].tools), " "); got != "finished_step get_step start_workflow" {
				t.Errorf("the model was shown the tools %s", got)
			}
			if m.others > 0 && executor == "OPENCODE" {
				t.Errorf("%d requests to the model have a cost that is not reported", m.others)
			}
			limits := 0
			for _, e := range events {
				if reports := executor == "CLAUDE_CODE" || executor == "OPENCODE"; e.Event == "step_ended" && e.Until == nil && reports != (e.CostUSD != nil) {
					t.Errorf("its cost is known: %v, want %v: %+v", !reports, reports, e)
				}
				if e.Event == "step_ended" && e.Until != nil {
					limits++
				}
			}
			if want := len(script) - 6; limits != want {
				t.Errorf("%d limits, want %d: %+v", limits, want, events)
			}
		})
	}
}

// An event is a line of deepwork run --json.
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
	job := filepath.Join(p.root, ".deepwork", "jobs", "report")
	testkit.Must(t, os.MkdirAll(job, 0o755))
	self, err := os.Executable()
	testkit.Must(t, err)
	p.configure(t, fmt.Sprintf("quality_gate: {agent_review_command: %q}\nrun: {retries: 1}\n", fmt.Sprintf("'%s' review '%s'", self, p.told)))
	for name, text := range map[string]string{
		p.told: "", filepath.Join(job, "job.yml"): report, filepath.Join(job, "write.md"): "Write.\n", filepath.Join(job, "judge.md"): "Judge as a giraffe would.\n",
		filepath.Join(p.root, "bad.md"): "bad\n", filepath.Join(p.root, "good.md"): "this is good\n",
	} {
		write(t, name, text)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(t, p.root, args...)
	}
	m.server = runner.MCPName
	home, programs := t.TempDir(), t.TempDir()
	command := other.command(t)
	argv, env := a.setup(t, home, m.URL, server{command: command})
	program := "'" + argv[0] + "'"
	if executor != "OPENCODE" { // the others are scripts
		program += " '" + argv[1] + "'"
	}
	write(t, filepath.Join(home, ".claude.json"), encoded(map[string]any{"hasCompletedOnboarding": true,
		"mcpServers": map[string]any{"deepwork": map[string]any{"command": command[0], "args": command[1:]}}}))
	settings := filepath.Join(home, ".gemini", "settings.json")
	if data, err := os.ReadFile(settings); err == nil { // what the README has its user add
		var v map[string]any
		testkit.Must(t, json.Unmarshal(data, &v))
		v["mcpServers"].(map[string]any)[runner.MCPName] = map[string]any{"httpUrl": "$DEEPWORK_MCP_URL", "headers": map[string]any{"Authorization": "Bearer $DEEPWORK_MCP_TOKEN"}}
		write(t, settings, encoded(v))
	}
	name := map[string]string{"CLAUDE_CODE": "claude", "CODEX": "codex", "GEMINI": "gemini", "OPENCODE": "opencode"}[executor]
	testkit.Must(t, os.WriteFile(filepath.Join(programs, name), fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\"\n", program), 0o755))

	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), "run", "report/main", "--goal", "Ask zebras", "--executor", executor, "--json", "--path", p.root)
	cmd.Env = append(append(os.Environ(), env...), "HOME="+home, "IS_SANDBOX=1", // which root needs
		"PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cmd.Stderr, cmd.Cancel, cmd.WaitDelay = t.Output(), func() error { return cmd.Process.Signal(os.Interrupt) }, 20*time.Second
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
