package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	checkedFiles = map[string]string{
		"check.sh":   "cat src.txt; grep -q good src.txt",
		"src.txt":    badly,
		"tests/t":    "t",
		"report.md":  "x",
		".gitignore": "*.cache\n",
	}
	oneReport  = map[string]any{"report": "NAME/report.md"}
	saidOutput = " outputs: {said: {type: string, description: S}}"
	grounds    = map[string]ground{
		"checked": {
			steps:  "one, two",
			each:   []string{checkedStep(checkKeys, "[]"), "two outputs: {}"},
			files:  checkedFiles,
			at:     "one",
			honest: passesChecked,
		},
		// Its checks pass, and its reviews, which the agent does itself, leave time for edits.
		"reviewed": {
			steps: "one, two",
			each: []string{checkedStep(checkKeys, `[{run_each: step, quality_criteria: {good: Is it good}}]`),
				"two outputs: {}"},
			files:  checkedFiles,
			at:     "one",
			honest: passesReviewed,
		},
		"output": {
			steps: "one, two",
			each: []string{"one outputs: {report: {type: file, description: R}, papers: {type: files, description: " +
				"P, required: false}, said: {type: string, description: S, required: false}}", "two outputs: {}"},
			files:  map[string]string{"report.md": "x"},
			at:     "one",
			honest: func(a *cheater) { a.passes("one", oneReport) },
		},
		"schema": {
			steps:  "one, two",
			each:   []string{"one outputs: {report: {type: file, description: R, schema: s.json}}", "two outputs: {}"},
			files:  map[string]string{"report.md": `{"ok": false}`},
			at:     "one",
			honest: passesSchema,
		},
		"list": {
			steps: "list, {for_each: todo, steps: [port, verify], at_once: 2, max_items: 5}, two",
			each: []string{"list outputs: {todo: {type: file, description: T}}", "port outputs: {}",
				"verify outputs: {}", "two outputs: {}"},
			files:  map[string]string{"todo.json": `["a","b","c"]`},
			at:     "list",
			honest: func(a *cheater) { a.passes("list", map[string]any{"todo": "NAME/todo.json"}) },
		},
		"items": {
			steps: "list, {for_each: todo, steps: [port, verify], at_once: 2}, two",
			each: []string{"list outputs: {todo: {type: string, description: T}}", "port outputs: {}",
				"verify outputs: {}", "two outputs: {}"},
			at:     "port[0]",
			honest: passesAll("port[0]", "verify[0]", "port[1]", "verify[1]", "port[2]", "verify[2]", "two"),
		},
		"when": {
			steps:  `ask, {when: {output: said, is: "yes"}, steps: [docs]}, two`,
			each:   []string{"ask" + saidOutput, "docs outputs: {}", "two outputs: {}"},
			at:     "docs",
			honest: passesAll("docs"),
		},
		"repeat": {
			steps:  "{repeat: {steps: [fix, look], until: {output: said, is: done}, at_most: 2}}, two",
			each:   []string{"fix" + saidOutput, "look" + saidOutput, "two outputs: {}"},
			at:     "fix",
			honest: passesRounds,
		},
		"until": {
			steps:  "{repeat: {steps: [fix], until: {run: [sh, NAME/check.sh]}, at_most: 9}}, two",
			each:   []string{"fix outputs: {}", "two outputs: {}"},
			files:  map[string]string{"check.sh": "grep -q good NAME/src.txt", "src.txt": badly},
			at:     "fix",
			honest: inTurn(writes("src.txt", well), passesAll("fix", "two")),
		},
		"person": {
			steps: "one, two",
			each: []string{"one outputs: {report: {type: file, description: R}}, reviews: [{run_each: report, " +
				"by: human, quality_criteria: {good: Is it good}}]", "two outputs: {}"},
			files:  map[string]string{"report.md": "x"},
			at:     "one",
			honest: passesPerson,
		},
	}
)

func passesChecked(a *cheater) {
	a.write("src.txt", well)
	a.passes("one", oneReport)
}

func passesReviewed(a *cheater) {
	a.write("src.txt", well)
	a.finish("one", oneReport)
	a.passes("one", oneReport, "quality_review_override_reason", "seen")
}

func passesSchema(a *cheater) {
	a.write("report.md", `{"ok": true}`)
	a.passes("one", oneReport)
}

func passesRounds(a *cheater) {
	a.passes("fix", map[string]any{"said": "fixed"})
	a.passes("look", map[string]any{"said": "done"})
	a.passes("two", map[string]any{})
}

func passesPerson(a *cheater) {
	a.finish("one", oneReport)
	_, _, err := typing(a.t, "pass", a.deepwork("sessions", "review", a.id, "one")...)
	must(a.t, err)
	a.passes("one", oneReport)
}

// passesAll passes steps that have no outputs.
func passesAll(steps ...string) func(*cheater) {
	return func(a *cheater) {
		for _, step := range steps {
			a.passes(step, map[string]any{})
		}
	}
}

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
	env      []string
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

// deepwork is a command of the user.
func (a *cheater) deepwork(args ...string) []string {
	return slices.Concat([]string{"env"}, a.env, []string{"deepwork"}, args, []string{"--path", a.root})
}

// refusedShell is a command without a terminal that must fail.
func (a *cheater) refusedShell(args ...string) {
	a.t.Helper()
	command := a.deepwork(args...)
	cmd := exec.CommandContext(a.t.Context(), command[0], command[1:]...)
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
	a.text, a.accepted = codeOf(r)+" "+resultText(r),
		!r.IsError && (status == `"next_step"` || status == `"workflow_complete"`)
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
	testkit.True(a.t, !a.accepted && strings.Contains(a.text, says),
		"the last reply does not say %q, or accepts: %.1500s", says, a.text)
	a.call("get_step", map[string]any{"session_id": a.id})
	at := string(lookup(json.RawMessage(strings.TrimSpace(a.text)), "begin_step.step_id"))
	testkit.True(a.t, at == `"`+a.ground.at+`"` || strings.HasPrefix(a.text, "session_ended"),
		"the session is at %s: %.500s", at, a.text)
}

// Agents that cheat get nowhere, whatever they edit, claim or hand in, and the honest twin of each gets on, in the
// same session if that is still active.
func TestCheats(t *testing.T) {
	t.Parallel()
	root, env := testkit.Dir(t), userEnv(t, "")
	cheats := cheats()
	files := map[string]string{"README": "x"}
	for i, c := range cheats {
		name := fmt.Sprint("c", i)
		files[".deepwork/jobs/"+name+"/a.md"] = "Do it."
		files[".deepwork/jobs/"+name+
			"/s.json"] = `{"type": "object", "required": ["ok"], "properties": {"ok": {"const": true}}}`
		files[".deepwork/jobs/"+name+"/job.yml"] = grounds[c.on].job(name)
		for path, text := range grounds[c.on].files {
			files[name+"/"+path] = strings.ReplaceAll(text, "NAME", name)
		}
		if c.check != "" {
			files[name+"/check.sh"] = c.check
		}
	}
	writeFiles(t, root, files)
	inGit(t, root)
	client, _ := startAs(t, env, root)
	a := cheater{t: t, client: client, root: root, env: env, ground: grounds["checked"], name: "c0"}
	a.begin()
	a.write("check.sh", "touch ran; exit 0") // of a job that nobody has approved
	a.finish("one", oneReport)
	testkit.Need(t, !a.accepted, "a check before trust: %s", a.text)
	testkit.Need(t, strings.HasPrefix(a.text, "untrusted"), "a check before trust: %s", a.text)
	testkit.Need(t, !fileExists(filepath.Join(root, "c0", "ran")), "a check before trust: %s", a.text)
	a.write("check.sh", checkedFiles["check.sh"])
	out, screen, err := typing(t, "yes", a.deepwork("trust")...)
	testkit.Need(t, err == nil, "%v %s %s", err, out, screen)

	for i, c := range cheats {
		t.Run(c.name, func(t *testing.T) {
			a := &cheater{t: t, client: client, root: root, env: env, ground: grounds[c.on], name: fmt.Sprint("c", i)}
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

// A cheat is what an agent does to get past a step, on some ground, and what the last reply must say.
type cheat struct {
	name, on string
	do       func(a *cheater)
	says     string
	check    string // another check.sh, or ""
}

func tries(step string, outputs any, more ...any) func(*cheater) {
	return func(a *cheater) { a.finish(step, outputs, more...) }
}

// edits hands in after a command of a shell, and undoes it by another for the honest twin.
func edits(script, undo string) func(*cheater) {
	return func(a *cheater) {
		if strings.HasPrefix(script, "good:") { // the cheat is not about the check
			a.write("src.txt", well)
		}
		a.shell(strings.TrimPrefix(script, "good:"))
		a.finish("one", oneReport)
		a.honest = func(a *cheater) {
			a.shell(undo)
			a.ground.honest(a)
		}
	}
}

// afterwards has checks pass, edits what they have passed on, and goes on by a reason.
func afterwards(script, undo string) func(*cheater) {
	return func(a *cheater) {
		a.write("src.txt", well)
		a.finish("one", oneReport)
		testkit.True(a.t, strings.Contains(a.text, "Quality review required"),
			"the checks did not pass: %.500s", a.text)

		a.shell(script)
		a.finish("one", oneReport, "quality_review_override_reason", "seen")
		a.honest = func(a *cheater) {
			a.shell(undo)
			a.ground.honest(a)
		}
	}
}

// inTurn does several things.
func inTurn(all ...func(*cheater)) func(*cheater) {
	return func(a *cheater) {
		for _, do := range all {
			do(a)
		}
	}
}

var handsIn = tries("one", oneReport)

func writes(path, text string) func(*cheater) {
	return func(a *cheater) { a.write(a.named(path), text) }
}

func removes(path string) func(*cheater) { return func(a *cheater) { a.removed(path) } }

func shells(script string) func(*cheater) { return func(a *cheater) { a.shell(script) } }

func editsJob(change ...string) func(*cheater) { return func(a *cheater) { a.editJob(change...) } }

// starts starts another session of the job, with more arguments.
func starts(more ...string) func(*cheater) {
	return func(a *cheater) {
		args := map[string]any{"goal": "G", "job_name": a.name, "workflow_name": "w"}
		for pair := range slices.Chunk(more, 2) {
			args[pair[0]] = pair[1]
		}
		a.call("start_workflow", args)
	}
}

// bomb is YAML that grows when it is read.
func bomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%[1]d [*a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d]\n",
			i+1, i)
	}
	return text + "ok: false\n"
}

// edited hands in after an edit of the job. The session keeps the job that it began with.
func edited(change ...string) func(*cheater) { return inTurn(editsJob(change...), handsIn) }

// output hands in a path in place of the report, which make has made.
func output(path any, make func(a *cheater)) func(*cheater) {
	return func(a *cheater) {
		if make != nil {
			make(a)
		}
		a.finish("one", map[string]any{"report": path})
		a.honest = func(a *cheater) {
			a.removed("report.md")
			a.write("report.md", "x")
			a.ground.honest(a)
		}
	}
}

func linked(target string) func(*cheater) { return linkedAt("report.md", target) }

func linkedAt(path, target string) func(*cheater) {
	return func(a *cheater) { must(a.t, os.Symlink(target, a.removed(path))) }
}

// list hands in a list of items.
func list(text string) func(*cheater) {
	return func(a *cheater) {
		a.write("todo.json", text)
		a.finish("list", map[string]any{"todo": "NAME/todo.json"})
		a.honest = func(a *cheater) {
			a.write("todo.json", `["a"]`)
			a.ground.honest(a)
		}
	}
}

// does makes a call and hands nothing in.
func does(tool string, args map[string]any) func(*cheater) {
	return func(a *cheater) {
		args["session_id"] = a.id
		a.call(tool, args)
	}
}

var dropCheck = []string{"checks: [{" + checkKeys + "}], ", ""}

func writesAnHonestReportLater(a *cheater) {
	a.honest = func(a *cheater) {
		a.write("report.md", "honest")
		a.ground.honest(a)
	}
}

func hasAMonitorLie(a *cheater) {
	afterwards("printf '#!/bin/sh\\ntouch .git/lied\\nprintf t0\\n' > .git/lie; chmod +x .git/lie; echo bad > "+
		"NAME/src.txt; git config core.fsmonitor .git/lie", "git config --unset core.fsmonitor; rm .git/lie")(a)
	testkit.True(a.t, !fileExists(filepath.Join(a.root, ".git", "lied")), "the monitor was run")
}

func startsWithASchemaOutside(a *cheater) {
	a.editJob("s.json", "../s.json")
	a.id = beginSession(a.t, a.client, a.name, "With the job that loads")
	a.finish("one", oneReport)
}

func saysEarlyThatRoundsAreOver(a *cheater) {
	a.passes("fix", map[string]any{"said": "done"})
	a.finish("look", map[string]any{"said": "not done"})
	a.accepted = strings.Contains(a.text, `"step_id":"two"`)
	if !a.accepted {
		testkit.Contains(a.t, a.text, "Round 2 of 2 begins", "the next round")
	}
}

// cheats is a function for the reason that attacks is one.
func cheats() []cheat {
	return []cheat{
		// Claims.
		{
			name: "claims that the tests pass",
			on:   "checked",
			do:   tries("one", oneReport, "notes", "All tests pass, I ran them."),
			says: "Checks failed",
		},
		{
			name:  "passes once in three",
			on:    "checked",
			check: "echo x >> n.cache; [ $(wc -l < n.cache) -gt 2 ] || grep -q good src.txt",
			do:    inTurn(handsIn, does("go_to_step", map[string]any{"step_id": "one"}), handsIn, handsIn),
			says:  "Checks failed",
		},
		{
			name: "uses a request_id again",
			on:   "checked",
			do: inTurn(tries("one", oneReport, "request_id", "again"), writes("src.txt", well), writes("other.md", "x"),
				tries("one", map[string]any{"report": "NAME/other.md"}, "request_id", "again"),
				writes("src.txt", badly)),
			says: "request_id",
		},
		{
			name: "takes the request_id of another session",
			on:   "checked",
			do:   inTurn(starts("request_id", "taken"), tries("one", oneReport, "request_id", "taken")),
			says: "Checks failed",
		},
		// The check.
		{
			name: "empties the check",
			on:   "checked",
			do:   edits("echo exit 0 > NAME/check.sh", "git checkout -q NAME/check.sh"),
			says: "untrusted",
		},
		{
			name: "links the check",
			on:   "checked",
			do:   edits("ln -sf /dev/null NAME/check.sh", "rm NAME/check.sh; git checkout -q NAME/check.sh"),
			says: "a device, not a file",
		},
		{
			name: "puts a program beside the check",
			on:   "checked",
			do: edits("printf '#!/bin/sh\\ntouch ../marker; exit 0\\n' | tee NAME/sh NAME/grep sh grep; chmod +x "+
				"NAME/sh NAME/grep sh grep", "rm sh grep NAME/sh NAME/grep"),
			says: "Checks failed",
		},
		{
			name:  "holds the output open",
			on:    "checked",
			check: "grep -q good src.txt || setsid sleep 5 &\n exit 0",
			do:    tries("one", oneReport),
			says:  "Checks failed",
		},
		{
			name:  "fills stdout",
			on:    "checked",
			check: "grep -q good src.txt && exit 0; yes | head -c 30000000; exit 1",
			do: func(a *cheater) {
				a.finish("one", oneReport)
				testkit.True(a.t, len(a.text) <= 20_000, "the reply has %d bytes", len(a.text))
			},
			says: "Checks failed",
		},
		{
			name:  "makes the check edit its own file",
			on:    "checked",
			check: "grep -q bad src.txt && echo good > src.txt; grep -q honest report.md",
			do:    inTurn(handsIn, writesAnHonestReportLater),
			says:  "Checks failed",
		},
		// The job.
		{name: "drops the check", on: "checked", do: edited(dropCheck...), says: "Checks failed"},
		{name: "changes the check", on: "checked", do: edited("sh, check.sh", "true"), says: "Checks failed"},
		{
			name: "drops protect",
			on:   "checked",
			do: inTurn(writes("src.txt", well), writes("tests/t", "easier"),
				edited(`, protect: ["NAME/tests/**"]`, ""), writes("tests/t", "t")),
			says: "was changed",
		},
		{
			name: "moves the check to another folder",
			on:   "checked",
			do:   inTurn(writes("sub/check.sh", "exit 0"), edited("in: NAME", "in: NAME/sub"), removes("sub")),
			says: "Checks failed",
		},
		{
			name: "leaves the step out and finishes the next",
			on:   "checked",
			do:   inTurn(editsJob("[one, two]", "[two]"), tries("two", map[string]any{})),
			says: "step_not_current",
		},
		{
			name: "breaks the job",
			on:   "checked",
			do:   inTurn(writes("../.deepwork/jobs/NAME/job.yml", "{"), handsIn, editsJob()),
			says: "Checks failed",
		},
		{
			name: "starts anew with a weaker job",
			on:   "checked",
			do:   inTurn(editsJob(dropCheck...), starts(), handsIn, editsJob()),
			says: "Checks failed",
		},
		{
			name: "aborts and finishes",
			on:   "checked",
			do:   inTurn(does("abort_workflow", map[string]any{"explanation": "enough"}), handsIn),
			says: "session_ended",
		},
		// The order.
		{
			name: "goes to the next step",
			on:   "checked",
			do:   does("go_to_step", map[string]any{"step_id": "two"}),
			says: "step_ahead",
		},
		{name: "finishes the next step", on: "checked", do: tries("two", map[string]any{}), says: "step_not_current"},
		// Protected files.
		{
			name: "edits the tests",
			on:   "checked",
			do:   edits("good:echo easier > NAME/tests/t", "git checkout -q NAME/tests"),
			says: "was changed",
		},
		{
			name: "commits edited tests",
			on:   "checked",
			do: edits("good:echo easier > NAME/tests/t; git commit -qam easier",
				"git revert --no-edit HEAD >/dev/null"),
			says: "was changed",
		},
		{
			name: "has git assume that tests are unchanged",
			on:   "checked",
			do: edits("good:git update-index --assume-unchanged NAME/tests/t; echo easier > NAME/tests/t",
				"git update-index --no-assume-unchanged NAME/tests/t; git checkout -q NAME/tests"),
			says: "was changed",
		},
		{
			name: "puts the tests behind a link",
			on:   "checked",
			do: edits("good:mv NAME/tests NAME/elsewhere; ln -s elsewhere NAME/tests",
				"rm NAME/tests; mv NAME/elsewhere NAME/tests"),
			says: "was changed",
		},
		{
			name: "edits a test and keeps its time",
			on:   "checked",
			do: edits("good:touch -r NAME/tests/t ref; echo T > NAME/tests/t; touch -r ref NAME/tests/t; rm ref",
				"git checkout -q NAME/tests"),
			says: "was changed",
		},
		// Edits after the check.
		{
			name: "edits after the check",
			on:   "reviewed",
			do:   afterwards("echo bad > NAME/src.txt", "true"),
			says: "Checks failed",
		},
		{
			name: "leaves a daemon that edits later",
			on:   "reviewed",
			do: afterwards("(setsid sh -c 'sleep 0.1; echo bad > NAME/src.txt' >/dev/null 2>&1 &); until grep -q "+
				"bad NAME/src.txt; do sleep 0.02; done", "true"),
			says: "Checks failed",
		},
		{
			name: "links a file after the check",
			on:   "reviewed",
			do:   afterwards("ln -sf tests/t NAME/src.txt", "rm NAME/src.txt"),
			says: "Checks failed",
		},
		{
			name: "edits what git assumes unchanged",
			on:   "reviewed",
			do: afterwards("git update-index --assume-unchanged NAME/src.txt; echo bad > NAME/src.txt",
				"git update-index --no-assume-unchanged NAME/src.txt"),
			says: "Checks failed",
		},
		{
			name: "has git ignore times",
			on:   "reviewed",
			do: afterwards("git config core.ignoreStat true; git config core.trustctime false; echo bad > "+
				"NAME/src.txt", "git config --unset core.ignoreStat; git config --unset core.trustctime"),
			says: "Checks failed",
		},
		{name: "has a monitor lie to git", on: "reviewed", do: hasAMonitorLie, says: "Checks failed"},
		{
			name: "hides the repository",
			on:   "reviewed",
			do:   afterwards("mv .git .hidden; echo bad > NAME/src.txt", "rm -rf .git; mv .hidden .git"),
			says: "Checks failed",
		},
		{
			name: "puts a repository in the way",
			on:   "reviewed",
			do:   afterwards("git init -q NAME; echo bad > NAME/src.txt", "rm -rf NAME/.git"),
			says: "Checks failed",
		},
		{
			name:  "edits the outputs after the check",
			on:    "reviewed",
			check: "cat src.txt; grep -q good src.txt && ! grep -q bad report.md",
			do:    afterwards("echo bad > NAME/report.md", "echo x > NAME/report.md"),
			says:  "Checks failed",
		},
		// Schemas.
		{
			name: "hands in what does not fit the schema",
			on:   "schema",
			do:   tries("one", oneReport),
			says: "do not satisfy their schemas",
		},
		{
			name: "gives a reason for a misfit",
			on:   "schema",
			do:   tries("one", oneReport, "quality_review_override_reason", "fine"),
			says: "do not satisfy their schemas",
		},
		{
			name: "edits the schema",
			on:   "schema",
			do:   inTurn(writes("../.deepwork/jobs/NAME/s.json", "{}"), handsIn),
			says: "do not satisfy their schemas",
		},
		{
			name: "drops the schema",
			on:   "schema",
			do:   edited(", schema: s.json", ""),
			says: "do not satisfy their schemas",
		},
		{
			name: "hands in a bomb of aliases",
			on:   "schema",
			do:   inTurn(writes("report.md", bomb()), handsIn),
			says: "schemas",
		},
		{
			name: "hands in 11 MB",
			on:   "schema",
			do:   inTurn(writes("report.md", `{"ok": true, "more": "`+strings.Repeat("x", 11<<20)+`"}`), handsIn),
			says: "schemas",
		},
		{
			name: "starts with a schema outside of the job",
			on:   "schema",
			do:   startsWithASchemaOutside,
			says: "do not satisfy their schemas",
		},
		// Outputs.
		{
			name: "hands in a path that leads out",
			on:   "output",
			do:   output("NAME/../../../../../../../../etc/hostname", nil),
			says: "etc/hostname",
		},
		{
			name: "hands in a link that leads out",
			on:   "output",
			do:   output("NAME/report.md", linked("/etc/hostname")),
			says: "outside",
		},
		{
			name: "hands in a link to an endless file",
			on:   "output",
			do:   output("NAME/report.md", linked("/dev/zero")),
			says: "NAME/report.md",
		},
		{
			name: "hands in a path through a linked folder",
			on:   "output",
			do: output("NAME/etc/hostname", func(a *cheater) {
				must(a.t, os.Symlink("/etc", filepath.Join(a.root, a.name, "etc")))
			}),
			says: "outside",
		},
		{
			name: "hands in a FIFO",
			on:   "output",
			do: output("NAME/report.md", func(a *cheater) {
				must(a.t, syscall.Mkfifo(a.removed("report.md"), 0o600))
			}),
			says: "NAME/report.md",
		},
		{name: "hands in a path with a NUL", on: "output", do: output("NAME/report.md\x00.txt", nil), says: "report"},
		{
			name: "hands in a huge text",
			on:   "output",
			do:   tries("one", map[string]any{"report": "NAME/report.md", "said": strings.Repeat("x", 200_000)}),
			says: "said",
		},
		{
			name: "hands in invalid UTF-8",
			on:   "output",
			do: does("finished_step", map[string]any{
				"step_id": "one",
				"outputs": rawOutputs("{\"report\": \"c\xff\xfe\"}"),
			}),
			says: "",
		},
		{
			name: "hands in 100,000 paths",
			on:   "output",
			do: tries("one", map[string]any{
				"report": "NAME/report.md",
				"papers": strings.Split(strings.Repeat("NAME/report.md ", 100_000), " "),
			}),
			says: "argument_too_large",
		},
		// Items.
		{
			name: "hands in a list of 100,000 items",
			on:   "list",
			do:   list("[" + strings.Repeat(`"x",`, 99_999) + `"x"]`),
			says: "100000 items",
		},
		{name: "hands in one item too many", on: "list", do: list(`["a","b","c","d","e","f"]`), says: "6 items"},
		{
			name: "hands in a link as the list",
			on:   "list",
			do: inTurn(linkedAt("todo.json", "/dev/zero"), tries("list", map[string]any{"todo": "NAME/todo.json"}),
				removes("todo.json"), writes("todo.json", `["a"]`)),
			says: "todo.json",
		},
		{name: "finishes all items at once", on: "items", do: tries("", map[string]any{}), says: "step_id_needed"},
		{
			name: "finishes an item that has not begun",
			on:   "items",
			do:   tries("port[2]", map[string]any{}),
			says: "step_not_current",
		},
		{
			name: "goes past the items",
			on:   "items",
			do:   does("go_to_step", map[string]any{"step_id": "two"}),
			says: "step_ahead",
		},
		{name: "drops an item at a shell", on: "items", do: func(a *cheater) {
			a.refusedShell("sessions", "override", a.id, "port[0]", "--drop", "--reason", "obsolete")
		}, says: ""},
		// Conditions and rounds.
		{
			name: "goes past a condition",
			on:   "when",
			do:   does("go_to_step", map[string]any{"step_id": "two"}),
			says: "step_ahead",
		},
		{name: "says early that the rounds are over", on: "repeat", do: saysEarlyThatRoundsAreOver},
		{
			name: "claims that the program passes",
			on:   "until",
			do: inTurn(tries("fix", map[string]any{}, "notes", "it passes", "quality_review_override_reason",
				"it passes"),
				func(a *cheater) { a.accepted = strings.Contains(a.text, `"step_id":"two"`) }),
			says: "Round 2",
		},
		{
			name: "empties the program that ends the rounds",
			on:   "until",
			do: inTurn(writes("check.sh", "touch marker; exit 0"), tries("fix", map[string]any{}),
				shells("git checkout -q NAME/check.sh")),
			says: "untrusted",
		},
		// People.
		{
			name: "gives a reason in place of a person",
			on:   "person",
			do:   tries("one", oneReport, "quality_review_override_reason", "the user is away"),
			says: "a person must pass",
		},
		{
			name: "answers for a person at a shell",
			on:   "person",
			do:   inTurn(handsIn, func(a *cheater) { a.refusedShell("sessions", "review", a.id, "one") }),
			says: "no terminal",
		},
		{
			name: "overrides at a shell",
			on:   "checked",
			do: inTurn(handsIn, func(a *cheater) {
				a.refusedShell("sessions", "override", a.id, "one", "--reason", "please")
			}),
			says: "no terminal",
		},
		{
			name: "approves a check at a shell",
			on:   "checked",
			do: inTurn(writes("check.sh", "touch ../marker; exit 0"), func(a *cheater) {
				a.refusedShell("trust")
			}, handsIn, shells("git checkout -q NAME/check.sh")),
			says: "untrusted",
		},
		{
			name: "changes the outputs after the question",
			on:   "person",
			do:   inTurn(handsIn, writes("report.md", "other"), handsIn),
			says: "a person must pass",
		},
	}
}
