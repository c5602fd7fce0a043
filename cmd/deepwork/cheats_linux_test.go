package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// A ground is a job on which agents cheat, in a folder of its own below the project, which NAME stands for.
type ground struct {
	steps  string   // of the workflow
	each   []string // step, with more of its keys
	files  map[string]string
	at     string           // the step that no cheat may get past
	honest func(a *cheater) // does the work from there on, and gets past it
}

const badly, well = "bad\n", "good\n"

// checkKeys are those of a check that needs a good src.txt, and protects the tests.
const checkKeys = `run: [sh, check.sh], name: tests, in: NAME, protect: ["NAME/tests/**"]`

func checkedStep(check, reviews string) string {
	return "one checks: [{" + check + "}], outputs: {report: {type: file, description: R}}, reviews: " + reviews
}

var (
	checkedFiles = map[string]string{"check.sh": "cat src.txt; grep -q good src.txt", "src.txt": badly, "tests/t": "t", "report.md": "x", ".gitignore": "*.cache\n"}
	oneReport    = map[string]any{"report": "NAME/report.md"}
	grounds      = map[string]ground{
		"checked": {"one, two", []string{checkedStep(checkKeys, "[]"), "two outputs: {}"}, checkedFiles, "one", func(a *cheater) {
			a.write("src.txt", well)
			a.passes("one", oneReport)
		}},
		// Its checks pass, and its reviews, which the agent does itself, leave time for edits.
		"reviewed": {"one, two", []string{checkedStep(checkKeys, `[{run_each: step, quality_criteria: {good: Is it good}}]`), "two outputs: {}"}, checkedFiles, "one", func(a *cheater) {
			a.write("src.txt", well)
			a.finish("one", oneReport)
			a.passes("one", oneReport, "quality_review_override_reason", "seen")
		}},
		"output": {"one, two", []string{"one outputs: {report: {type: file, description: R}, papers: {type: files, description: P, required: false}, said: {type: string, description: S, required: false}}", "two outputs: {}"},
			map[string]string{"report.md": "x"}, "one", func(a *cheater) { a.passes("one", oneReport) }},
		"schema": {"one, two", []string{"one outputs: {report: {type: file, description: R, schema: s.json}}", "two outputs: {}"}, map[string]string{"report.md": `{"ok": false}`}, "one", func(a *cheater) {
			a.write("report.md", `{"ok": true}`)
			a.passes("one", oneReport)
		}},
		"list": {"list, {for_each: todo, steps: [port, verify], at_once: 2, max_items: 5}, two", []string{"list outputs: {todo: {type: file, description: T}}", "port outputs: {}", "verify outputs: {}", "two outputs: {}"},
			map[string]string{"todo.json": `["a","b","c"]`}, "list", func(a *cheater) { a.passes("list", map[string]any{"todo": "NAME/todo.json"}) }},
		"items": {"list, {for_each: todo, steps: [port, verify], at_once: 2}, two", []string{"list outputs: {todo: {type: string, description: T}}", "port outputs: {}", "verify outputs: {}", "two outputs: {}"}, nil, "port[0]", func(a *cheater) {
			for _, step := range []string{"port[0]", "verify[0]", "port[1]", "verify[1]", "port[2]", "verify[2]"} {
				a.passes(step, map[string]any{})
			}
			a.passes("two", map[string]any{})
		}},
		"when": {`ask, {when: {output: said, is: "yes"}, steps: [docs]}, two`, []string{"ask outputs: {said: {type: string, description: S}}", "docs outputs: {}", "two outputs: {}"}, nil, "docs", func(a *cheater) { a.passes("docs", map[string]any{}) }},
		"repeat": {"{repeat: {steps: [fix, look], until: {output: said, is: done}, at_most: 2}}, two", []string{"fix outputs: {said: {type: string, description: S}}", "look outputs: {said: {type: string, description: S}}", "two outputs: {}"}, nil, "fix", func(a *cheater) {
			a.passes("fix", map[string]any{"said": "fixed"})
			a.passes("look", map[string]any{"said": "done"})
			a.passes("two", map[string]any{})
		}},
		"until": {"{repeat: {steps: [fix], until: {run: [sh, NAME/check.sh]}, at_most: 9}}, two", []string{"fix outputs: {}", "two outputs: {}"}, map[string]string{"check.sh": "grep -q good NAME/src.txt", "src.txt": badly}, "fix", func(a *cheater) {
			a.write("src.txt", well)
			a.passes("fix", map[string]any{})
			a.passes("two", map[string]any{})
		}},
		"person": {"one, two", []string{"one outputs: {report: {type: file, description: R}}, reviews: [{run_each: report, by: human, quality_criteria: {good: Is it good}}]", "two outputs: {}"}, map[string]string{"report.md": "x"}, "one", func(a *cheater) {
			a.finish("one", oneReport)
			_, _, err := typing(a.t, "pass", "deepwork", "sessions", "review", a.id, "one", "--path", a.root)
			must(a.t, err)
			a.passes("one", oneReport)
		}},
	}
)

// job is the job.yml of a ground, with another check or none if one is given.
func (g ground) job(name string, change ...string) string {
	return strings.ReplaceAll(strings.NewReplacer(change...).Replace(runJob(name, g.steps, g.each...)), "NAME", name)
}

// rawOutputs is JSON that is sent as it is.
type rawOutputs string

func (r rawOutputs) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// A cheater is an agent with a session of its own.
type cheater struct {
	t        *testing.T
	client   *mcp.ClientSession
	root     string
	ground   ground
	name, id string
	text     string // the last reply
	accepted bool   // as it says
	honest   func(*cheater)
}

func (a *cheater) named(text string) string { return strings.ReplaceAll(text, "NAME", a.name) }

func (a *cheater) write(path, text string) {
	a.t.Helper()
	testkit.Write(a.t, filepath.Join(a.root, a.name, path), text)
}

func (a *cheater) editJob(change ...string) {
	a.t.Helper()
	testkit.Write(a.t, filepath.Join(a.root, ".deepwork/jobs", a.name, "job.yml"), a.ground.job(a.name, change...))
}

func (a *cheater) shell(script string) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "sh", "-ec", a.named(script))
	cmd.Dir = a.root
	out, err := cmd.CombinedOutput()
	testkit.Need(a.t, err == nil, "%s: %v %s", script, err, out)
}

// refusedShell is a command without a terminal that must fail.
func (a *cheater) refusedShell(args ...string) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "deepwork", append(args, "--path", a.root)...)
	cmd.Stdin, cmd.SysProcAttr = strings.NewReader("yes\n"), &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if a.text, a.accepted = string(out), err == nil; a.accepted {
		a.t.Errorf("%v was carried out: %s", args, out)
	}
}

func (a *cheater) call(tool string, args map[string]any) {
	a.t.Helper()
	r, err := a.client.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		a.text, a.accepted = err.Error(), false
		return
	}
	status := string(lookup(json.RawMessage(resultText(r)), "status"))
	a.text, a.accepted = codeOf(r)+" "+resultText(r), !r.IsError && (status == `"next_step"` || status == `"workflow_complete"`)
}

// finish hands in a step, with more arguments.
func (a *cheater) finish(step string, outputs any, more ...any) {
	a.t.Helper()
	text := testkit.Get(json.Marshal(outputs)).Must(a.t)
	args := map[string]any{"session_id": a.id, "outputs": json.RawMessage(a.named(string(text)))}
	if step != "" {
		args["step_id"] = step
	}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	a.call("finished_step", args)
}

func (a *cheater) passes(step string, outputs any, more ...any) {
	a.t.Helper()
	a.finish(step, outputs, more...)
	testkit.True(a.t, a.accepted, "honest work at %s was refused: %.1500s", step, a.text)
}

// begin starts a session at the step that cheats are about.
func (a *cheater) begin() {
	a.t.Helper()
	a.id = beginSession(a.t, a.client, a.name, "Get past it")
	switch a.ground.at {
	case "port[0]":
		a.passes("list", map[string]any{"todo": `["a","b","c"]`})
	case "docs":
		a.passes("ask", map[string]any{"said": "yes"})
	}
}

// stands checks that the session is still at its step, or over without it.
func (a *cheater) stands(says string) {
	a.t.Helper()
	testkit.True(a.t, !a.accepted && strings.Contains(a.text, says), "the last reply does not say %q, or accepts: %.1500s", says, a.text)
	a.call("get_step", map[string]any{"session_id": a.id})
	at := string(lookup(json.RawMessage(strings.TrimSpace(a.text)), "begin_step.step_id"))
	testkit.True(a.t, at == `"`+a.ground.at+`"` || strings.HasPrefix(a.text, "session_ended"), "the session is at %s: %.500s", at, a.text)
}

// Agents that cheat get nowhere, whatever they edit, claim or hand in, and the honest twin of each gets on, in the
// same session if that is still active.
func TestCheats(t *testing.T) {
	root := testkit.Dir(t)
	ownUser(t, "")
	cheats := cheats()
	files := map[string]string{"README": "x"}
	for i, c := range cheats {
		name := fmt.Sprint("c", i)
		files[".deepwork/jobs/"+name+"/a.md"] = "Do it."
		files[".deepwork/jobs/"+name+"/s.json"] = `{"type": "object", "required": ["ok"], "properties": {"ok": {"const": true}}}`
		files[".deepwork/jobs/"+name+"/job.yml"] = grounds[c.on].job(name, c.job...)
		for path, text := range grounds[c.on].files {
			files[name+"/"+path] = strings.ReplaceAll(text, "NAME", name)
		}
		if c.check != "" {
			files[name+"/check.sh"] = c.check
		}
	}
	writeFiles(t, root, files)
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(t, root, args...)
	}
	client, _ := startClient(t, root)
	a := cheater{t: t, client: client, root: root, ground: grounds["checked"], name: "c0"}
	a.begin()
	a.write("check.sh", "touch ran; exit 0") // of a job that nobody has approved
	if a.finish("one", oneReport); a.accepted || !strings.HasPrefix(a.text, "untrusted") || fileExists(filepath.Join(root, "c0", "ran")) {
		t.Fatalf("a check before trust: %s", a.text)
	}
	a.write("check.sh", checkedFiles["check.sh"])
	out, screen, err := typing(t, "yes", "deepwork", "trust", "--path", root)
	testkit.Need(t, err == nil, "%v %s %s", err, out, screen)
	for i, c := range cheats {
		t.Run(c.name, func(t *testing.T) {
			a := &cheater{t: t, client: client, root: root, ground: grounds[c.on], name: fmt.Sprint("c", i)}
			a.honest = a.ground.honest
			a.begin()
			c.do(a)
			a.stands(a.named(c.says))
			if a.honest == nil {
				return
			}
			if strings.HasPrefix(a.text, "session_ended") {
				a.begin()
			}
			a.honest(a)
		})
	}
	testkit.True(t, !fileExists(filepath.Join(root, "marker")), "a program of an agent was run")
}

// removed is a file that a cheat replaces.
func (a *cheater) removed(path string) string {
	a.t.Helper()
	path = filepath.Join(a.root, a.name, path)
	must(a.t, os.RemoveAll(path))
	return path
}
