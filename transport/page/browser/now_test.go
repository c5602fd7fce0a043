package browser

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// signJob has a step that a person must pass.
const signJob = `name: sign
version: 1.0.0
summary: Writes and signs
common_job_info_provided_to_all_steps_at_runtime: x
workflows:
  - {name: full, summary: All, steps: [text, send]}
steps:
  - id: text
    name: Text
    description: Write it
    instructions_file: do.md
    outputs: {text: {type: file, description: The text, required: true}}
    reviews: [{run_each: text, by: human, quality_criteria: {sign: "Would you sign it?"}}]
  - {id: send, name: Send, description: Send it, instructions_file: do.md, outputs: {}, reviews: []}
`

// headings is an expression: those of what needs a person.
const headings = `[...document.querySelectorAll('.needs h3')].map(e => e.innerText).join(', ')`

// What needs a person is in the order of what it holds up, each with what can be done about it. The history has all
// of it, filtered by the URL, and is up to date.
func TestNowAndHistory(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/sign/job.yml": signJob, ".deepwork/jobs/sign/do.md": "# Do it\n\nBe **brief**.\n"})
	s := serve(t, root, overHTTP...)
	call := pagetest.Connect(t, s.url, "")
	b := person(t, root)
	b.open("/")
	b.until(`document.querySelectorAll('.first > li code.command').length === 3`)
	b.check("now-empty")

	_, done := call.Script("Add a line", "! echo more >> idea.txt\n! git commit -qam work\n")
	_, failed := call.Script("Break it", "! false\n")
	call.Await(t, done, "completed")
	call.Await(t, failed, "failed")
	id := call.Start(args{"goal": "A letter", "job_name": "sign", "workflow_name": "full"})
	b.until(headings + ` === 'Stopped, To review' && document.querySelector('.working').innerText.includes('sign/full, step text, 1 of 2')`)
	call("finished_step", args{"session_id": id, "step_id": "text", "outputs": args{"text": "idea.txt"}}, nil)
	b.until(headings + ` === 'An agent waits for your answer, Stopped, To review' && !document.querySelector('.working').innerText.includes('A letter')`)
	b.until(`document.querySelector('.needs').innerText.includes('+1 −1 in 1 file')`) // git has counted it
	b.check("now-needs")
	b.click("Pass…")
	b.until(at("/sessions/"+id) + ` && location.hash === '#step-text'`)
	b.open("/")
	b.click("Review")
	b.until(at("/attempts/" + done))

	rows := `[...document.querySelectorAll('.history tbody .title > a')].map(e => e.innerText).join(', ')`
	b.press("g", "h")
	b.until(at("/history") + ` && ` + rows + ` === 'A letter, Break it, Add a line'`)
	b.use("#state", "", `e.value = 'stopped'; e.dispatchEvent(new Event('input', {bubbles: true}))`)
	b.until(rows + ` === 'Break it' && location.search === '?state=stopped'`)
	b.open("/history")
	b.clickOn(".history td a", "sign/full")
	b.until(rows + ` === 'A letter' && location.search === '?workflow=sign%2Ffull'`)
	b.until(`!!document.body._htmx?.sse`)
	call.Start(args{"goal": "Another letter", "job_name": "sign", "workflow_name": "full"})
	call.Plan("A trip")
	b.until(rows + ` === 'Another letter, A letter'`)
	b.check("history-filtered")

	// The job says how it has gone, marks what a person passes, and shows its instructions as Markdown.
	b.open("/jobs/sign")
	b.until(has("2 under way") + ` && document.querySelector('.graph a[href="#step-text"] .person').innerText === 'a person'`)
	b.click("send: Send")
	b.until(`[...document.querySelectorAll('#step-send h1, #step-send strong')].map(e => e.innerText).join() === 'Do it,brief'`)
	b.clickOn("#step-send a", "As an agent reads it")
	b.until(`location.search === '?step=send' && document.querySelector('#step-send pre').innerText.includes('--- step_instructions ---')`)
	if text := eval[string](b, `document.querySelector('#step-send pre').innerText`); !strings.Contains(text, "Be **brief**.") {
		t.Errorf("an agent reads %s", text)
	}
}
