package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// stopped is a job with a workflow for each way in which a run stops. Agents do what their orders say.
func stopped() string {
	workflows, steps := "", ""
	step := func(id, more string) {
		steps += fmt.Sprintf("  - {id: %s, name: Write the text, description: d, instructions_file: s.md, outputs: "+
			"{text: {type: file, description: t}}, %s}\n", id, more)
	}
	for name, more := range map[string]string{
		"check":     `reviews: [], checks: [{name: tidy, run: [sh, -c, "echo two files are not tidy; exit 3"]}]`,
		"review":    `reviews: [{run_each: text, quality_criteria: {short: "Is it short?"}}]`,
		"crash":     `reviews: [{run_each: text, quality_criteria: {crash: "Does it crash?"}}]`,
		"sign":      `reviews: [{run_each: text, by: human, quality_criteria: {sound: "Would you sign it?"}}]`,
		"budget":    "reviews: []",
		"limit":     "reviews: []",
		"untrusted": "reviews: []",
	} {
		entries := name
		if name == "budget" {
			entries = "budget, limit"
		}
		workflows += fmt.Sprintf("  - {name: %s, summary: S, steps: [%s]}\n", name, entries)
		step(name, more)
	}
	workflows += "  - {name: rounds, summary: S, steps: [{repeat: {steps: [rounds], " +
		"until: {run: [grep, -q, mountains, idea.txt]}, at_most: 1}}]}\n"
	step("rounds", "reviews: []")
	return "name: ten\nversion: 1.0.0\nsummary: S\ncommon_job_info_provided_to_all_steps_at_runtime: none\n" +
		"workflows:\n" + workflows + "steps:\n" + steps
}

const failing = `case $(cat) in
*"Does it crash?"*) echo "no such model" >&2; exit 3 ;;
*) echo '{"passed": false, "feedback": "Too long.", "criteria_results": [{"criterion": "short", "passed": false, ` +
	`"feedback": "It has 900 words."}]}' ;;
esac
`

// top is an expression: the text of a page above what was done.
const top = `[...document.getElementById('main').children].slice(0, [...document.getElementById('main').children]` +
	`.findIndex(e => e.matches('.tabs, .work'))).map(e => e.innerText).join('\n')`

// Whoever opens the page of work that has stopped reads at its top why, and what they can do.
func TestWhyWorkStopped(t *testing.T) {
	t.Parallel()
	p := &runs{pagetest.Project(t), testkit.Dir(t)}
	testkit.WriteAll(t, p.root, map[string]string{
		".deepwork/config.yml": fmt.Sprintf("executors:\n  WRITER: {command: [%q, '-test.run=^TestStepper$', %q]}\n"+
			"  SCRIPT: {command: [sh, -c, 'sed -n \"s/^! //p\" | sh -e']}\n"+
			"run: {executor: WRITER, retries: 0}\nattempts: {max_concurrent: 20}\n"+
			"quality_gate: {agent_review_command: [sh, .deepwork/review.sh]}\n",
			testkit.Get(os.Executable()).Must(t), p.orders),
		".deepwork/jobs/ten/job.yml": stopped(),
		".deepwork/jobs/ten/s.md":    "Write it.",
		".deepwork/jobs/places/s.md": "Write it.",
		".deepwork/review.sh":        failing,
	})
	testkit.Git(t, p.root, "add", "-A")
	testkit.Git(t, p.root, "commit", "-qm", "ten")
	s := serve(t, p.root, overHTTP...)
	call := pagetest.Connect(t, s.url, "")

	// A worktree with a conflict, and an agent whose machine went down.
	conflict := works(t, call, "Another idea", "echo mountains > idea.txt; git add -A; git commit -qm mountains")
	testkit.Write(t, filepath.Join(p.root, "idea.txt"), "woods\n")
	testkit.Git(t, p.root, "commit", "-aqm", "woods")
	call("merge_attempt", args{"attempt_id": conflict}, nil)
	pids := filepath.Join(testkit.Dir(t), "pids")
	_, dead := call.Script("Work for long", "! grep PPid /proc/$PPID/status | cut -f2 > "+pids+".new\n! echo $$ >> "+
		pids+".new; mv "+pids+".new "+pids+"; exec sleep 600\n")
	var shim, agent int
	testkit.Until(t, "the agent works", func() bool {
		said, _ := os.ReadFile(pids)
		n, _ := fmt.Sscan(string(said), &shim, &agent)
		return n == 2
	})
	testkit.Must(t, syscall.Kill(shim, syscall.SIGKILL))
	testkit.Must(t, syscall.Kill(agent, syscall.SIGKILL))
	call.Await(t, dead, "interrupted", "failed")

	pages := map[string]string{"conflict": "/attempts/" + conflict, "dead": "/attempts/" + dead}
	begin := func(name string, more args) (id string) {
		var r struct {
			ID string `json:"run_id"`
		}
		with := args{"job_name": "ten", "workflow_name": name, "goal": "Try " + name, "executor": "WRITER"}
		for key, value := range more {
			with[key] = value
		}
		call("run_workflow", with, &r)
		pages[name] = "/attempts/" + r.ID
		return r.ID
	}
	ui := serve(t, p.root, "ui", "--no-open")
	b := browse(t, ui)
	b.open(ui.login[len(ui.url):])
	for _, name := range []string{"check", "review", "crash", "sign", "rounds"} {
		begin(name, nil)
		p.order(t, name, "finish")
	}
	begin("budget", args{"max_unknown": 1})
	p.order(t, "budget", "finish")
	b.open(pages["budget"]).until(state("paused"))
	begin("limit", nil)
	p.order(t, "limit", "limit 3600")
	b.open(pages["sign"]).until(`!!document.querySelector('form.answer')`).fill("form.answer textarea", "Say more").
		click("Fail: the agent changes it")
	p.order(t, "sign", "leave")

	untrusted := begin("untrusted", nil)
	p.order(t, "untrusted", "limit 200")
	b.open("/attempts/" + untrusted).until(state("waiting for a limit"))
	look := func(name string, wants ...string) {
		t.Helper()
		b.open(pages[name])
		for _, want := range wants {
			b.until(fmt.Sprintf(`(%s).includes(%q)`, top, want))
		}
		b.picture("why-" + name)
		b.check("why-" + name)
	}
	for name, wants := range map[string][]string{
		"check": {"Step check: check `sh -c", "failed with exit code 3: two files are not tidy.",
			"Give its agents advice here, or pass over what failed", "Resume the run"},
		"review": {`Step review: its review failed, on "Is it short?": It has 900 words.`,
			"Give its agents advice here, or pass over what failed", "Resume the run"},
		"crash": {"Step crash: its reviewer gave no verdict", "no such model", "Repair the reviewer first.",
			"Resume the run"},
		"sign": {"Step sign: a person (local) did not pass its outputs", "Say more", "Say in the advice", "Resume"},
		"rounds": {"Step rounds: its rounds are used up", "Have one more round", "Go on as it is",
			"Stop the workflow"},
		"budget":   {"A budget has paused it", "at most 1 may", "Raise the budget here.", "Max agents of unknown cost"},
		"limit":    {"waiting for a limit", "waits until its provider’s limit is over", "You need to do nothing"},
		"conflict": {"Both have changed these files", "idea.txt", "Undo the merge"},
		"dead":     {"Send a follow-up", "start another attempt"},
	} {
		look(name, wants...)
	}
	b.open("/").until(in("[aria-labelledby=needs]", "Its merge has conflicts: idea.txt."))
	b.clickOn(".needs a.button", "Decide…").
		until(`document.getElementById(location.hash.slice(1))?.matches('.decision')`)

	s.kill() // the server of a user who trusts nothing here leads on
	ui.kill()
	ui.env = []string{"XDG_CONFIG_HOME=" + testkit.Dir(t)}
	ui.start("--port", "0")
	b = browse(t, ui)
	b.open(ui.login[len(ui.url):])
	b.open(pages["untrusted"]).until(state("failed"))
	look("untrusted", "is not approved", "deepwork trust", "Resume the run")
}
