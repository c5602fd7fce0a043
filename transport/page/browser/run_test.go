package browser

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
	"deepwork/transport/page/pagetest"
)

// places is a job for runs: a group of two after a plan, and a report that a person passes.
const places = `name: places
version: 1.0.0
summary: Reports about places
common_job_info_provided_to_all_steps_at_runtime: none
workflows:
  - {name: write, summary: "A plan, two texts at the same time, and a report", steps: [plan, [sea, woods], report]}
  - {name: short, summary: One text, steps: [plan]}
steps:
  - {id: plan, name: Plan it, description: d, instructions_file: s.md, outputs: {text: {type: file, description: t}}, reviews: []}
  - {id: sea, name: The sea, description: d, instructions_file: s.md, outputs: {text: {type: file, description: t}}, reviews: []}
  - {id: woods, name: The woods, description: d, instructions_file: s.md, outputs: {text: {type: file, description: t}}, reviews: []}
  - {id: report, name: The report, description: d, instructions_file: s.md, outputs: {text: {type: file, description: t}}, reviews: [{run_each: text, by: human, quality_criteria: {sound: "Would you sign it?"}}]}
`

// A runs is a project with that job, whose agents do what files in the folder orders say.
type runs struct{ root, orders string }

func openRuns(t *testing.T, slots int) (*runs, *tab) {
	t.Helper()
	t.Parallel()
	r := &runs{pagetest.Project(t), testkit.Dir(t)}
	testkit.WriteAll(t, r.root, map[string]string{
		".deepwork/config.yml":          fmt.Sprintf("executors:\n  WRITER: {command: [%q, '-test.run=^TestStepper$', %q]}\nrun: {executor: WRITER, retries: 0}\nattempts: {max_concurrent: %d}\n", testkit.Get(os.Executable()).Must(t), r.orders, slots),
		".deepwork/jobs/places/job.yml": places,
		".deepwork/jobs/places/s.md":    "Write it.",
	})
	testkit.Git(t, r.root, "add", "-A")
	testkit.Git(t, r.root, "commit", "-qm", "places")
	return r, person(t, r.root)
}

// order has the agent of a step do something. Agents read it only when it is complete.
func (r *runs) order(t *testing.T, step, what string) {
	t.Helper()
	whole := filepath.Join(r.orders, step+".new")
	testkit.Write(t, whole, what)
	testkit.Must(t, os.Rename(whole, filepath.Join(r.orders, step)))
}

// stepIs is an expression: a step of a run is in a state.
func stepIs(name, state string) string {
	return fmt.Sprintf("%s?.querySelector('.status').textContent === %q", step(name), state)
}

// startRun starts a run on the page of its job.
func (b *tab) startRun(workflow, goal, agents string) (path string) {
	b.t.Helper()
	b.open("/jobs").clickOn(fmt.Sprintf(`a[aria-label="Run places/%s"]`, workflow), "")
	b.until(at("/jobs/places") + ` && document.getElementById('run').open && document.getElementById('workflow').value === 'places/` + workflow + `'`)
	b.fill("#goal", goal).click("More").fill("#max_unknown", agents).click("Start the run").until(at("/attempts/"))
	return eval[string](b, `location.pathname`)
}

// A person starts a run on the page of a job and follows it without a reload: a group in one slot, a limit of
// the provider, and a step that they fail and pass.
func TestRun(t *testing.T) {
	p, b := openRuns(t, 1)
	path := b.startRun("write", pagetest.Hostile, "")
	b.until(stepIs("Plan it", "running") + ` && document.querySelector('.step .last')?.innerText.includes('I work on plan')`)
	b.open("/").until(in("[aria-labelledby=working]", "run · WRITER, step plan"))
	b.open(path)
	p.order(t, "plan", "finish")
	b.until(stepIs("Plan it", "completed") + ` && [...document.querySelectorAll('.ask')].some(e => e.innerText.includes('waits for a slot'))`)
	b.until(`document.querySelector('.lane rect.bar-completed')?.width.baseVal.value > 0`)
	b.check("run")
	for _, s := range []string{"sea", "woods"} { // in whatever order they run
		p.order(t, s, "limit 4")
	}
	b.until(`[...document.querySelectorAll('.status')].some(e => e.textContent === 'waiting for a limit') && ` + has("it goes on at"))
	b.until(stepIs("The sea", "running") + ` || ` + stepIs("The woods", "running"))
	p.order(t, "sea", "finish")
	p.order(t, "woods", "finish")
	b.until(stepIs("The sea", "completed") + " && " + stepIs("The woods", "completed"))
	p.order(t, "report", "finish")
	b.until(stepIs("The report", "waiting for you") + ` && !!document.querySelector('form.answer')`)
	b.check("run-asks")
	b.fill(`form.answer textarea`, "Say more").click("Fail").until(stepIs("The report", "running") + ` && ` + has("2 tries"))
	p.order(t, "report", "finish")
	b.until(stepIs("The report", "waiting for you") + ` && !!document.querySelector('form.answer')`)
	b.clickOn(".tabs a:last-child", "").until(`document.querySelectorAll('[aria-label="report.md"] tr.add').length === 2`)
	b.click("Answer").until(`!!document.querySelector('form.answer')`)
	b.click("Pass").until(state("completed") + " && " + stepIs("The report", "completed"))
	b.check("run-complete")
	b.clickOn("h3 a", "The report").until(has("a person must pass these outputs") + ` && document.querySelector('h1').innerText.includes('report')`)
	b.check("run-agent")
	b.open(path).clickOn(".facts a", "").until(at("/sessions/") + " && " + has("Passed by a person"))
	b.open("/")
	b.click("Merge…") // what the agents have written is in no commit
	b.until(at(path) + " && location.search === '?tab=changes'")
	b.click("Merge").until(said("merged into main"))
}

// A run that stops at a step, and one that a budget pauses, need a person, who resumes them.
func TestRunNeedsAPerson(t *testing.T) {
	p, b := openRuns(t, 4)
	path := b.startRun("short", "One text", "7")
	p.order(t, "plan", "leave")
	b.until(state("failed") + " && " + has("ended without finishing it"))
	b.check("run-stopped")
	b.open("/").until(in("[aria-labelledby=needs]", "Step plan: 1 agent ended without finishing it."))
	b.click("Resume") // with the budgets that it has
	b.until(at(path) + " && " + said("goes on where it was") + " && " + stepIs("Plan it", "running") + " && " + has("at most 7 agents of unknown cost"))
	p.order(t, "plan", "leave")
	b.until(state("failed"))
	b.fill("#advice", "Hand it in").click("Resume the run").until(said("goes on where it was") + " && " + stepIs("Plan it", "running"))
	p.order(t, "plan", "finish unchanged")
	b.until(state("completed"))
	b.open("/").until(headings + ` === 'Done, to merge'`)
	b.click("Done").until(`!document.querySelector('.needs .entry') && document.querySelector('.recent').innerText.includes('One text')`)
	b.startRun("write", "Two texts", "1")
	p.order(t, "plan", "finish")
	b.until(state("paused") + " && " + has("A budget has paused it"))
	b.fill("#max_unknown", "9").click("Resume the run").until(stepIs("The sea", "running") + " && " + stepIs("The woods", "running"))
	b.click("Stop the run").until(state("stopped") + " && " + has("It was stopped."))
	b.open("/").until(in("[aria-labelledby=recent]", "Two texts") + ` && !` + in("[aria-labelledby=needs]", "Two texts"))
	// A task that the server leads.
	b.open("/board").click("New task").fill("#title", "A text from the board").pick("#workflow", "places/short")
	b.pick("#lead", "the server, with an agent for each step").click("Add the task")
	b.until(at("/tasks/") + " && " + has("with an agent for each step"))
	b.click("Start").until(at("/attempts/"))
	b.until(stepIs("Plan it", "running"))
	p.order(t, "plan", "finish commit")
	b.until(state("completed"))
	b.open("/").until(in(".needs", "A text from the board"))
	b.click("Merge").until(said("merged into main") + ` && location.pathname === "/" && !document.querySelector('.needs .entry')`)
}

// TestStepper is an agent of a run: BINARY -test.run=^TestStepper$ ORDERS. It says what it works on, and does what the file named
// for its step in that folder says once that is there: "finish" hands in STEP.md with a line more than before, "finish commit" also
// commits it, "finish unchanged" hands in a file as it is, and "limit SECONDS" and "leave" end without. It removes the file.
func TestStepper(t *testing.T) {
	name := os.Getenv(config.StepEnv)
	if name == "" || flag.NArg() == 0 {
		t.Skip("it is for runs")
	}
	testkit.Get(io.ReadAll(os.Stdin)).Must(t)
	fmt.Println("I work on " + name)
	order := filepath.Join(flag.Arg(0), name)
	for _, err := os.Stat(order); os.IsNotExist(err); _, err = os.Stat(order) {
		time.Sleep(20 * time.Millisecond) // the test makes it
	}
	what, more, _ := strings.Cut(string(testkit.Get(os.ReadFile(order)).Must(t)), " ")
	testkit.Must(t, os.Remove(order))
	switch what {
	case "limit":
		fmt.Fprintf(os.Stderr, "rate limit reached, try again in %s seconds\n", more)
		os.Exit(1)
	case "leave":
		return
	}
	file := ".deepwork/jobs/places/s.md"
	if more != "unchanged" {
		file = name + ".md"
		before, _ := os.ReadFile(file) // which may not be there
		testkit.Must(t, os.WriteFile(file, append(before, "A line of "+name+"\n"...), 0o644))
	}
	call := pagetest.Connect(t, strings.TrimSuffix(os.Getenv(config.MCPURLEnv), "/mcp"), os.Getenv(runner.TokenEnv))
	var reply json.RawMessage
	call("finished_step", args{"step_id": name, "outputs": args{"text": file}}, &reply)
	fmt.Println(string(reply))
	if more == "commit" {
		testkit.Git(t, ".", "add", "-f", file)
		testkit.Git(t, ".", "commit", "-qm", "Write it")
	}
}
