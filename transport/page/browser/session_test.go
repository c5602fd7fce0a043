package browser

import (
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// report is a job with reviews and a group, and its reviewer: texts that are bad do not pass.
var report = map[string]string{
	".deepwork/config.yml": `quality_gate:
  override: human
  agent_review_command: [sh, .deepwork/review.sh]
`,
	".deepwork/review.sh": `case $(cat) in
*"this one is bad"*) echo '{"passed": false, "feedback": "Write more of it.", "criteria_results": [{"criterion": "good", "passed": false, "feedback": "too short"}]}' ;;
*) echo '{"passed": true, "feedback": "Well done.", "criteria_results": [{"criterion": "good", "passed": true, "feedback": null}]}' ;;
esac
`,
	".deepwork/jobs/report/job.yml": `name: report
version: 1.0.0
summary: Writes a report
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows:
  - {name: write, summary: A report, steps: [draft, [spelling, facts], publish]}
  - {name: look_up, summary: One fact, steps: [publish]}
steps:
  - id: draft
    name: Draft
    description: A first version
    instructions_file: do.md
    outputs: {out: {type: file, description: The draft, required: true}}
    reviews: [{run_each: out, quality_criteria: {good: "Is it good?"}}]
  - {id: spelling, name: Spelling, description: Check words, instructions_file: do.md, outputs: {}, reviews: []}
  - {id: facts, name: Facts, description: Check facts, instructions_file: do.md, outputs: {}, reviews: []}
  - {id: publish, name: Publish, description: Send it, instructions_file: do.md, outputs: {}, reviews: []}
`,
	".deepwork/jobs/report/do.md": "Do it.\n",
	"bad.txt":                     "this one is bad\n",
	"good.txt":                    "this one is good\n",
}

type args = pagetest.Args

// step is a selector of the part of the page that is about a step, by its name.
func step(name string) string {
	return `[...document.querySelectorAll('.step')].find(e => e.querySelector('h3').innerText.includes('` + name + `'))`
}

// A person at deepwork ui follows a session of another server, and acts on it.
func TestSession(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, report)
	s, ui := serve(t, root, overHTTP...), serve(t, root, "ui", "--no-open")
	call := pagetest.Connect(t, s.url, "")
	id := call.Start(args{"goal": "Write about the sea", "job_name": "report", "workflow_name": "write"})
	call("finished_step", args{"session_id": id, "step_id": "draft", "outputs": args{"out": "bad.txt"}}, nil)

	// Who is not known as a person cannot override.
	agent := browse(t, s)
	agent.open("/sessions/" + id)
	agent.until(step("Draft") + `.innerText.includes('Actions')`)
	if agent.is(`document.querySelector('form[action$="/override"]')`) {
		t.Error("an override is offered to a caller without the right")
	}

	b := browse(t, ui)
	b.open(ui.login[len(ui.url):])
	b.open("/sessions/" + id)
	b.until(step("Draft") + `.innerText.includes('Review 1: failed')`)
	for _, text := range []string{"too short", "Write more of it.", "Is it good?", "bad.txt ("} {
		b.until(step("Draft") + `.textContent.includes('` + text + `')`)
	}
	b.check("review-failed")
	b.open("/sessions/" + id)

	// Why is required, by the form and by the server.
	b.click("Actions")
	b.click("Override the reviews")
	if !eval[bool](b, `document.activeElement.id === 'why-draft' && !document.activeElement.validity.valid`) {
		t.Error("the reason is not required")
	}
	b.use("#why-draft", "", `e.required = false`)
	b.click("Override the reviews")
	b.until(refused("Say why"))
	b.fill("#why-draft", "I have read it")
	b.click("Override the reviews")
	b.until(step("Draft") + `.innerText.includes('lets it go on without its reviews')`)
	b.until(step("Draft") + `.innerText.includes('I have read it')`)
	call("finished_step", args{"session_id": id, "step_id": "draft", "outputs": args{"out": "bad.txt"}}, nil)
	b.until(step("Draft") + `.innerText.includes('finished') && ` + step("Draft") + `.innerText.includes('Overridden by local')`)
	b.until(`/Overridden by local over [a-z ]+ .*: I have read it/.test(` + step("Draft") + `.innerText)`)

	// The members of a group are side by side.
	b.until(step("Spelling") + `.innerText.includes('current') && ` + step("Facts") + `.innerText.includes('current')`)
	if !eval[bool](b, `(() => { const a = `+step("Spelling")+`.getBoundingClientRect(), b = `+step("Facts")+`.getBoundingClientRect(); return a.top === b.top && a.right <= b.left; })()`) {
		t.Error("the steps of the group are not side by side")
	}
	// What was delivered can be opened.
	b.use(".step summary", "Outputs (1)", `e.click()`)
	b.click("bad.txt")
	b.until(at("/sessions/"+id+"/output") + " && " + has("this one is bad"))
	b.click("session " + id)
	b.until(at("/sessions/" + id))

	// A nested workflow, which is aborted, and a step that is done again.
	child := call.Start(args{"goal": "How deep it is", "job_name": "report", "workflow_name": "look_up", "parent_session_id": id})
	b.click("How deep it is")
	b.until(at("/sessions/"+child) + ` && document.querySelector('.crumb').innerText.includes('Write about the sea')`)
	b.click("Abort the session")
	b.click("Abort")
	if !eval[bool](b, `document.activeElement.id === 'reason'`) {
		t.Error("the reason of an abort is not required")
	}
	b.fill("#reason", "Nobody knows")
	b.click("Abort")
	b.until(state("aborted") + " && " + has("Nobody knows"))
	b.click("Write about the sea")
	b.until(at("/sessions/"+id) + " && " + has("How deep it is"))
	b.use(".step:not(.current) summary", "Actions", `e.click()`)
	b.click("Go back to this step")
	b.until(step("Draft") + `.innerText.includes('current') && ` + has("went back from"))
	call("finished_step", args{"session_id": id, "step_id": "draft", "outputs": args{"out": "good.txt"}}, nil)
	b.until(step("Draft") + `.textContent.includes('Well done.') && ` + step("Draft") + `.innerText.includes('Review 1: passed')`)
	b.until(step("Draft") + `.textContent.includes('good.txt') && ` + step("Spelling") + `.innerText.includes('current')`)
	b.check("session-acted-on")
	b.open("/")
	b.until(`document.querySelector('[aria-labelledby=working]').innerText.includes('Write about the sea')`)
	b.until(`document.querySelector('[aria-labelledby=recent]').innerText.includes('How deep it is')`)
}

// The page of a job says every fault with its line, and shows each step as an agent reads it.
func TestJobs(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, report)
	s := serve(t, root, overHTTP...)
	b := browse(t, s)
	b.open("/jobs")
	b.until(`document.querySelector('main').innerText.includes('broken cannot be loaded') && /line 2/.test(document.querySelector('main').innerText)`)
	b.click("report")
	b.until(at("/jobs/report"))
	b.click("draft: Draft")
	b.until(has("Do it.") + " && " + has("Be brief."))
	// The links of the graph lead to the steps; members of a group are above each other between its neighbours.
	b.clickOn(`.graph a[href="#step-publish"]`, "")
	b.until(`location.hash === '#step-publish' && document.getElementById('step-publish').checkVisibility()`)
	if !eval[bool](b, `(() => { const box = n => document.querySelector('.graph a[href="#step-' + n + '"]').getBoundingClientRect();
		const d = box('draft'), s = box('spelling'), f = box('facts'), p = box('publish');
		return d.right < s.left && d.right < f.left && s.right < p.left && f.right < p.left && (s.bottom <= f.top || f.bottom <= s.top); })()`) {
		t.Error("the graph is not one")
	}
	b.shoot("graph")
	// An edit is on the open page, that of instructions on the next one.
	testkit.Write(t, filepath.Join(root, ".deepwork/jobs/report/job.yml"), strings.Replace(report[".deepwork/jobs/report/job.yml"], "Be brief.", "Be short.", 1))
	b.until(has("Be short."))
	testkit.Write(t, filepath.Join(root, ".deepwork/jobs/report/do.md"), "Do it well.\n")
	b.open("/jobs/report?again#step-draft") // a URL of another fragment alone is the same page
	b.until(has("Do it well."))
}
