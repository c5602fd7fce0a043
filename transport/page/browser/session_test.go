package browser

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt/executors"
	"deepwork/transport/page/pagetest"
)

// report is a job with reviews and a group, and its reviewer: texts that are bad do not pass.
var report = map[string]string{
	".deepwork/config.yml": "quality_gate: {override: human, agent_review_command: [sh, .deepwork/review.sh]}\n",
	".deepwork/review.sh": `case $(cat) in
*"this one is bad"*) echo '{"passed": false, "feedback": "Write more of it.", "criteria_results": [{"criterion": ` +
		`"good", "passed": false, "feedback": "too short"}]}' ;;
*) echo '{"passed": true, "feedback": "Well done.", "criteria_results": [{"criterion": "good", "passed": true, ` +
		`"feedback": null}]}' ;;
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
  - {id: draft, name: Draft, description: A first version, instructions_file: do.md, outputs: {out: {type: file, ` +
		`description: The draft, required: true}}, reviews: [{run_each: out, quality_criteria: {good: "Is it good?"}}]}
  - {id: spelling, name: Spelling, description: Check words, instructions_file: do.md, outputs: {}, reviews: []}
  - {id: facts, name: Facts, description: Check facts, instructions_file: do.md, outputs: {}, reviews: []}
  - {id: publish, name: Publish, description: Send it, instructions_file: do.md, outputs: {}, reviews: []}
`,
	".deepwork/jobs/report/do.md": "Do it.\n",
	"bad.txt":                     "this one is bad\n",
	"good.txt":                    "this one is good\n",
}

type args = pagetest.Args

// inStep is an expression: the part of the page that is about a step shows texts.
func inStep(name string, texts ...string) string {
	all := "true"
	for _, text := range texts {
		all += " && " + step(name) + "?.textContent.includes(`" + text + "`)"
	}
	return all
}

// step is a selector of the part of the page that is about a step, by its name.
func step(name string) string {
	return `[...document.querySelectorAll('.step')].find(e => e.querySelector('h3').innerText.includes('` + name + `'))`
}

// A person at deepwork ui follows a session of another server, and acts on it.
func TestSession(t *testing.T) {
	s, call, agent := open(t, report)
	b := person(t, s.root)
	id := call.Start(args{"goal": "Write about the sea", "job_name": "report", "workflow_name": "write"})
	why := "why-" + id + "-draft"
	draft := func(file string) {
		call("finished_step", args{"session_id": id, "step_id": "draft", "outputs": args{"out": file}}, nil)
	}
	draft("bad.txt")
	// Who is not known as a person cannot override.
	agent.open("/sessions/" + id).until(inStep("Draft", "Actions"))
	testkit.True(t, !agent.is(`document.querySelector('form[action$="/override"]')`),
		"an override is offered to a caller without the right")

	b.open("/sessions/" + id).until(
		inStep("Draft", "Try 1", "failed", "too short", "Write more of it.", "Is it good?", "bad.txt ("))
	b.check("review-failed")
	b.open("/sessions/" + id)

	// Why is required, by the form and by the server.
	b.click("Actions").click("Override the reviews")
	testkit.True(t, eval[bool](b,
		`document.activeElement.id === '`+why+`' && !document.activeElement.validity.valid`),
		"the reason is not required")

	b.use("#"+why, "", `e.required = false`).click("Override the reviews")
	b.until(refused("Say why") +
		` && document.activeElement.id === '` + why + `' && ` +
		`document.activeElement.matches('[aria-invalid=true][aria-describedby=wrong]') && ` +
		`document.getElementById('wrong').innerText.includes('Say why')`)

	// What the person was shown stays what they override, and they are told that there is something newer.
	given := `document.getElementById('` + why + `').form.elements.given.value`
	before := eval[string](b, given)
	testkit.WriteAll(t, s.root, map[string]string{"bad.txt": "this one is bad, too\n"})

	draft("bad.txt")
	b.until(inStep("Draft", "Try 2"))
	testkit.Equal(t, eval[string](b, given), before, "what is overridden")
	b.click("Show it").until(given + ` !== '` + before + `'`)
	b.click("Actions").fill("#"+why, "I have read it").until(`!document.querySelector('[aria-invalid], #wrong')`)
	b.click("Override the reviews").until(inStep("Draft", "lets it go on without its reviews", "I have read it"))
	draft("bad.txt")
	b.until(inStep("Draft", "finished"),
		`/Overridden by local over [a-z ]+ .*: I have read it/.test(`+step("Draft")+`.innerText)`)

	// The members of a group are side by side.
	b.until(inStep("Spelling", "current"), inStep("Facts", "current"))
	testkit.True(t, eval[bool](b,
		`(() => { const a = `+step("Spelling")+`.getBoundingClientRect(), b = `+step("Facts")+
			`.getBoundingClientRect(); return a.top === b.top && a.right <= b.left; })()`),
		"the steps of the group are not side by side")

	// What was delivered can be opened.
	b.clickOn(`.step details[id^=outputs-] summary`, "").click("bad.txt").
		until(at("/sessions/"+id+"/output") + " && " + has("this one is bad"))
	b.click("session " + id).until(at("/sessions/" + id))

	// A nested workflow, which is aborted, and a step that is done again.
	child := call.Start(args{
		"goal":              "How deep it is",
		"job_name":          "report",
		"workflow_name":     "look_up",
		"parent_session_id": id,
	})
	b.click("How deep it is").until(at("/sessions/"+child), in(".crumb", "Write about the sea"))
	b.click("Abort the session").click("Abort")
	testkit.True(t, eval[bool](b, `document.activeElement.id === 'reason'`), "the reason of an abort is not required")

	b.fill("#reason", "Nobody knows").click("Abort").until(state("aborted") + " && " + has("Nobody knows"))
	b.click("Write about the sea").until(at("/sessions/"+id) + " && " + has("How deep it is"))
	b.use(".step:not(.current) summary", "Actions", `e.click()`).click("Go back to this step")
	b.until(inStep("Draft", "current"), has("went back from"))
	draft("good.txt")
	b.until(inStep("Draft", "Well done.", "passed", "good.txt"), inStep("Spelling", "current"))
	b.check("session-acted-on")
	b.open("/").until(in("[aria-labelledby=working]", "Write about the sea"), `!`+has("How deep it is"))
}

// A person reads what an agent handed in, comments on lines, which becomes its feedback, sees what has changed, and
// passes it with one click. No hostile file runs anything.
func TestAPersonReviewsOnAPage(t *testing.T) {
	var picture bytes.Buffer
	testkit.Must(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 40, 20))))
	s, call, _ := open(t, map[string]string{
		".deepwork/jobs/report/job.yml": strings.NewReplacer("type: file,", "type: files,", "run_each: out,",
			"run_each: out, by: human,").Replace(report[".deepwork/jobs/report/job.yml"]),
		".deepwork/jobs/report/do.md": "Do it.\n",
		"a.go":                        "package a\n\n// " + pagetest.Hostile + "\nfunc A() int { return 1 }\n",
		"b.md": "# Title\n\n" + pagetest.Hostile +
			"\n\n| a | b |\n|---|---|\n| 1 | [x](javascript:window.hit=1) |\n\n```\ncode\n```\n",
		"c.png":  picture.String(),
		"d.json": `{"a":[1,2]}`,
		"e.svg":  `<svg xmlns="http://www.w3.org/2000/svg" onload="window.hit=1"><script>window.hit=1</script></svg>`,
	})

	b := person(t, s.root)
	id := call.Start(args{"goal": "Write about the sea", "job_name": "report", "workflow_name": "write"})
	var r struct{ Status, Feedback string }
	handIn := func() {
		t.Helper()
		call("finished_step", args{
			"session_id": id,
			"step_id":    "draft",
			"outputs":    args{"out": []string{"a.go", "b.md", "c.png", "d.json", "e.svg"}},
		}, &r)
	}
	handIn()
	b.open("/sessions/" + id)
	b.until(`document.querySelector('.markdown h1')?.innerText === 'Title' && document.querySelector('.handed ` +
		`img').naturalWidth === 40`)
	b.check("review")
	b.open("/sessions/" + id)

	// A comment by a click on a line's number, and another one by keys.
	const field = `document.querySelector('.answer textarea')`
	b.use(".handed[aria-label='a.go'] tr:nth-child(4) .no:nth-child(2)", "4", `e.click()`)
	b.until(`document.activeElement === ` + field + ` && ` + field + `.value === 'a.go:4: '`)
	b.press("return 2")
	b.use(".handed[aria-label='a.go'] tr:nth-child(1)", "1 package a",
		`e.focus(); e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))`)
	b.until(field + `.value === 'a.go:4: return 2\na.go:1: '`)
	b.press("say more").click("Fail: the agent changes it").shows("Now tell the agent to go on")
	handIn()
	testkit.True(t, r.Status == "needs_work" && strings.Contains(r.Feedback, "a.go:4: return 2\na.go:1: say more"),
		"the agent is told %+v", r)
	testkit.WriteAll(t, s.root,
		map[string]string{"a.go": "package a\n\n// " + pagetest.Hostile + "\nfunc A() int { return 2 }\n"})

	handIn()
	b.until(`document.querySelector('.handed tr.add')?.innerText.includes('return 2') && ` +
		`document.querySelector('.handed tr.del').innerText.includes('return 1')`)
	b.check("review-again")
	b.open("/sessions/" + id).click("Pass: the step is finished").shows("Passed by local")
	handIn()
	testkit.Equal(t, r.Status, "next_step", "the agent goes on")
}

const signJob = `name: sign
version: 1.0.0
summary: Writes and signs
common_job_info_provided_to_all_steps_at_runtime: x
workflows: [{name: full, summary: All, steps: [text, send]}]
steps:
  - {id: text, name: Text, description: Write it, instructions_file: do.md, outputs: {text: {type: file, ` +
	`description: The text, required: true}}, reviews: [{run_each: text, by: human, quality_criteria: {sign: ` +
	`"Would you sign it?"}}]}
  - {id: send, name: Send, description: Send it, instructions_file: do.md, outputs: {}, reviews: []}
`

// headings is an expression: those of what needs a person.
const headings = `[...document.querySelectorAll('.needs h3')].map(e => e.innerText).join(', ')`

// What needs a person is in the order of what it holds up, each with what can be done about it. The history has all
// of it, filtered by the URL, and is up to date.
func TestNowAndHistory(t *testing.T) {
	s, call, _ := open(t, map[string]string{
		".deepwork/jobs/sign/job.yml": signJob,
		".deepwork/jobs/sign/do.md":   "# Do it\n\nBe **brief**.\n",
	})
	b := person(t, s.root)

	for path, first := range map[string]string{
		"/board":   "Add a task, and start an agent on it.",
		"/sources": "workflow_tools.sources",
	} {
		b.open(path).shows(first)
	}

	b.open("/").until(`document.querySelectorAll('.first > li code.command').length === 3`,
		has("add a task to the board"))
	b.check("now-empty")
	_, done := call.Script("Add a line", "! echo more >> idea.txt\n! git commit -qam work\n")
	_, failed := call.Script("Break it", "! false\n")
	call.Await(t, done, "completed")
	call.Await(t, failed, "failed")
	id := call.Start(args{"goal": "A letter", "job_name": "sign", "workflow_name": "full"})
	b.until(headings + ` === 'Stopped, To review' && ` + in(".working", "sign/full · step text, 1 of 2"))
	call("finished_step", args{"session_id": id, "step_id": "text", "outputs": args{"text": "idea.txt"}}, nil)
	b.until(headings +
		` === 'An agent waits for your answer, Stopped, To review' && ` +
		`!document.querySelector('.working').innerText.includes('A letter')`)
	b.until(`document.querySelector('.needs').innerText.includes('+1 −1 in 1 file')`) // git has counted it
	b.check("now-needs")
	b.click("Pass…").until(at("/sessions/"+id) + ` && location.hash === '#decide-` + id + `-text'`)
	b.open("/").click("Review").until(at("/attempts/" + done))
	rows := `[...document.querySelectorAll('.history tbody .title > a')].map(e => e.innerText).join(', ')`
	b.press("g", "h").until(at("/history") + ` && ` + rows + ` === 'A letter, Break it, Add a line'`)
	b.use("#state", "", `e.value = 'stopped'; e.dispatchEvent(new Event('input', {bubbles: true}))`)
	b.until(rows + ` === 'Break it' && location.search === '?state=stopped'`)
	b.open("/history").clickOn(".history td a",
		"sign/full").until(rows + ` === 'A letter' && location.search === '?workflow=sign%2Ffull'`)
	b.until(`!!document.body._htmx?.sse`)
	call.Start(args{"goal": "Another letter", "job_name": "sign", "workflow_name": "full"})
	call.Plan("A trip")
	b.until(rows + ` === 'Another letter, A letter'`)
	b.until(`[...document.querySelectorAll('.history tbody tr')].every(r => [...r.cells].every(c => ` +
		`c.getBoundingClientRect().bottom === r.getBoundingClientRect().bottom))`) // the lines between rows are whole
	b.check("history-filtered").fits("history-filtered", 320)
	b.do(chromedp.EmulateViewport(1200, 900))
	b.use("#since", "", `e.value = '2100-01-01'; e.dispatchEvent(new Event('input', {bubbles: true}))`)
	b.until(has("Nothing here matches the filter.") + ` && location.search.includes('since=2100-01-01')`)
	b.use("#workflow", "", `e.value = ''; e.dispatchEvent(new Event('input', {bubbles: true}))`)
	b.until(`location.search === '?since=2100-01-01' && document.querySelector('#since').value === '2100-01-01'`)

	// The job says how it has gone, marks what a person passes, and shows its instructions as Markdown.
	b.open("/jobs/sign").until(has("2 under way") +
		` && document.querySelector('.graph a[href="#step-text"] .person').innerText === 'a person'`)
	b.click("send: Send").
		until(`[...document.querySelectorAll('#step-send h1, #step-send strong')].map(e => e.innerText).join() === ` +
			`'Do it,brief'`)
	b.clickOn("#step-send a", "As an agent reads it")
	b.until(`location.search === '?step=send' && document.querySelector('#step-send pre').innerText.includes('--- ` +
		`step_instructions ---')`)
	testkit.Contains(t, eval[string](b, `document.querySelector('#step-send pre').innerText`), "Be **brief**.",
		"an agent reads")
}

const manyJob = `name: many
version: 1.0.0
summary: Many items
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows:
  - {name: tidy, summary: Tidies up, steps: [tidied]}
  - {name: all, summary: All forms, steps: [list, {for_each: todo, steps: [port, {workflow: tidy}], at_once: 2}, ` +
	`{when: {output: said, is: "yes"}, steps: [docs]},
      {repeat: {steps: [fix], until: {output: said, is: done}, at_most: 3}}, {workflow: report/look_up}]}
steps:
  - {id: list, name: List, description: D, instructions_file: do.md, reviews: [], outputs: {todo: {type: file, ` +
	`description: D}, said: {type: string, description: D}}}
  - {id: port, name: Port, description: D, instructions_file: do.md, reviews: [], outputs: {}}
  - {id: tidied, name: Tidied, description: D, instructions_file: do.md, reviews: [], outputs: {}}
  - {id: docs, name: Docs, description: D, instructions_file: do.md, reviews: [], outputs: {}}
  - {id: fix, name: Fix, description: D, instructions_file: do.md, reviews: [], outputs: {said: {type: string, ` +
	`description: D}}}
`

// The page of a job says every fault with its line, and shows each step as an agent reads it.
func TestJobs(t *testing.T) {
	s, _, b := open(t, report)
	root := s.root
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/many/do.md":   "Do it.\n",
		".deepwork/jobs/many/job.yml": manyJob,
	})

	b.open("/jobs").shows("broken cannot be loaded", "line 2")
	b.click("report").until(at("/jobs/report"))
	b.click("draft: Draft").until(has("Do it.") + " && " + has("Be brief."))

	// The links of the graph lead to the steps; members of a group are above each other between its neighbours.
	b.clickOn(`.graph a[href="#step-publish"]`, "")
	b.until(`location.hash === '#step-publish' && document.getElementById('step-publish').checkVisibility()`)
	testkit.True(t, eval[bool](b,
		`(() => { const box = n => document.querySelector('.graph a[href="#step-' + n + '"]').getBoundingClientRect();
		const d = box('draft'), s = box('spelling'), f = box('facts'), p = box('publish');
		return d.right < s.left && d.right < f.left && s.right < p.left && f.right < p.left && (s.bottom <= f.top `+
			`|| f.bottom <= s.top); })()`), "the graph is not one")

	// An edit is on the open page, that of instructions on the next one.
	testkit.Write(t, filepath.Join(root, ".deepwork/jobs/report/job.yml"),
		strings.Replace(report[".deepwork/jobs/report/job.yml"], "Be brief.", "Be short.", 1))
	b.until(has("Be short."))
	testkit.Write(t, filepath.Join(root, ".deepwork/jobs/report/do.md"), "Do it well.\n")
	b.open("/jobs/report?again#step-draft") // a URL of another fragment alone is the same page
	b.until(has("Do it well."))

	// Forms are boxes with their steps in them, and workflows that are steps lead to those.
	b.open("/jobs/many").
		until(`document.querySelector('.graph .form:nth-child(2)').innerText.includes('for each of todo, 2 at once')`)
	testkit.Equal(t, eval[string](b,
		`[...document.querySelectorAll('[aria-label="Steps of all"] > li')].map(li => `+
			`[...li.querySelectorAll('a')].map(a => a.getAttribute('href')).join(' ')).join(', ')`),
		"#step-list, #step-port #workflow-tidy, #step-docs, #step-fix, /jobs/report#workflow-look_up",
		"the graph of forms")

	b.check("forms")
	testkit.Must(t, os.RemoveAll(filepath.Join(root, ".deepwork/jobs")))
	b.open("/jobs") // which says what to do first
	b.shows("deepwork init")
}

// Comments on lines are made with the mouse and with keys, removed, and sent as one follow-up; the diff is
// unified or split, and has a tree.
func TestComments(t *testing.T) {
	_, call, b := open(t, map[string]string{".deepwork/config.yml": "executors:\n  SCRIPT:\n    command: [sh, -c, " +
		"'sed -n \"s/^! //p\" | sh -e']\n    resume: [cat]\n"})
	id := works(t, call, "Three lines",
		`mkdir -p src/deep; printf 'a\nb\nc\n' > src/deep/three.txt; echo x > top.txt; git add -A; git commit -qm work`)
	b.open("/attempts/" + id + "?tab=changes")

	comment := func(text string) {
		t.Helper()
		b.until(`document.getElementById('comment').open`)
		b.fill("#comment-text", text).click("Add the comment")
		b.until(`!document.getElementById('comment').open && [...document.querySelectorAll('.diff ` +
			`.remark')].some(e => e.innerText.includes('` + text + `'))`)
	}

	// With the mouse, at a number.
	b.clickOn(`[data-file="src/deep/three.txt"] tr:nth-child(3) .no:nth-child(2)`, "")
	b.until(`document.querySelector('#comment [data-where]').textContent === 'src/deep/three.txt:2' && ` +
		`document.querySelector('#comment [data-quote]').textContent === 'b'`)
	b.check("commenting")
	comment("why b")
	b.until(`document.querySelector('.tree').innerText.includes('1 comment') && document.querySelector('.tree ` +
		`ul summary').innerText === 'src/deep'`)

	// The list of files is open where there is room, and closed on a phone until it is asked for.
	listed := `document.querySelector('.tree a').checkVisibility()`
	b.run(`document.getElementById('changed-files').open = false`) // the check has opened it
	b.until(listed).fits("changes", 390)
	b.until(`!` + listed).click("2 changed files").until(listed)
	b.do(chromedp.EmulateViewport(1200, 900))

	// With keys: the arrows walk the lines.
	b.use(`.scroll:has([data-file="top.txt"])`, "", ``).press(kb.ArrowDown, kb.ArrowDown, kb.Enter)
	b.until(`document.querySelector('#comment [data-where]').textContent === 'top.txt:1'`)
	comment("why x")
	b.clickOn(`.diff tr:nth-child(2) .no:nth-child(2)`, "")
	comment("never mind")
	testkit.Equal(t, eval[string](b, `document.getElementById('comment-text').value`), "", "the dialog")
	b.clickOn(`.comments li:has(p.text) button[aria-label*="three.txt:1"]`, "Remove")
	b.until(`document.querySelectorAll('.comments li').length === 2 && !(` + has("never mind") + `)`)

	// Split, and back; the address is a link.
	b.click("split").
		until(`location.search.includes('diff=split') && document.querySelectorAll('.diff.split .remark').length === 2`)
	b.check("comments-split")
	b.click("Send 2 comments to the agent").
		until(said("goes on with the comments") + ` && !document.querySelector('.comments')`)
	b.click("Conversation").until(`document.querySelectorAll('#runs li').length === 2`)

	// the agent prints what it is sent
	for _, part := range []string{"src/deep/three.txt", "why b", "top.txt", "why x"} {
		b.until(in(".messages", part))
	}

	// One file alone, from a fresh address.
	b.open("/attempts/" + id + "?path=top.txt").
		until(`document.querySelectorAll('.file').length === 1 && ` + has("all files"))
}

// places is a job for runs: a group of two after a plan, and a report that a person passes.
const places = `name: places
version: 1.0.0
summary: Reports about places
common_job_info_provided_to_all_steps_at_runtime: none
workflows:
  - {name: write, summary: "A plan, two texts at the same time, and a report", steps: [plan, [sea, woods], report]}
  - {name: short, summary: One text, steps: [plan]}
  - {name: each, summary: A text for each place, steps: [plan, {for_each: text, steps: [visit, sign], at_once: 4}]}
steps:
  - {id: visit, name: Visit it, description: d, instructions_file: s.md, outputs: {}, reviews: []}
  - {id: sign, name: Sign it, description: d, instructions_file: s.md, outputs: {said: {type: string, description: ` +
	`t}}, reviews: [{run_each: said, by: human, quality_criteria: {sound: "Would you sign it?"}}]}
  - {id: plan, name: Plan it, description: d, instructions_file: s.md, outputs: {text: {type: file, description: ` +
	`t}}, reviews: []}
  - {id: sea, name: The sea, description: d, instructions_file: s.md, outputs: {text: {type: file, description: ` +
	`t}}, reviews: []}
  - {id: woods, name: The woods, description: d, instructions_file: s.md, outputs: {text: {type: file, ` +
	`description: t}}, reviews: []}
  - {id: report, name: The report, description: d, instructions_file: s.md, outputs: {text: {type: file, ` +
	`description: t}}, reviews: [{run_each: text, by: human, quality_criteria: {sound: "Would you sign it?"}}]}
`

// A runs is a project with that job, whose agents do what files in the folder orders say.
type runs struct{ root, orders string }

func openRuns(t *testing.T, slots int) (*runs, *tab) {
	t.Helper()
	t.Parallel()
	r := &runs{pagetest.Project(t), testkit.Dir(t)}
	testkit.WriteAll(t, r.root, map[string]string{
		".deepwork/config.yml": fmt.Sprintf("executors:\n  WRITER: {command: [%q, "+
			"'-test.run=^TestStepper$', %q]}\nrun: {executor: WRITER, retries: 0}\nattempts: {max_concurrent: %d}\n",
			testkit.Get(os.Executable()).Must(t), r.orders, slots),
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
	b.until(at("/jobs/places") +
		` && document.getElementById('run').open && document.getElementById('workflow').value === 'places/` +
		workflow + `'`)
	b.fill("#goal", goal).click("More").fill("#max_unknown", agents).click("Start the run").until(at("/attempts/"))
	return eval[string](b, `location.pathname`)
}

// A person starts a run on the page of a job and follows it without a reload: a group in one slot, a limit of
// the provider, and a step that they fail and pass.
func TestRun(t *testing.T) {
	p, b := openRuns(t, 1)
	path := b.startRun("write", pagetest.Hostile, "")
	b.until(stepIs("Plan it", "running") +
		` && document.querySelector('.step .last')?.innerText.includes('I work on plan')`)
	b.open("/").until(in("[aria-labelledby=working]", "run · WRITER · step plan"))
	b.open(path)
	p.order(t, "plan", "finish")
	b.until(stepIs("Plan it", "completed") +
		` && [...document.querySelectorAll('.ask')].some(e => e.innerText.includes('waits for a slot'))`)
	b.until(`document.querySelector('.lane rect.bar-completed')?.width.baseVal.value > 0`)
	b.check("run")
	for _, s := range []string{"sea", "woods"} { // in whatever order they run
		p.order(t, s, "limit 4")
	}
	b.until(`[...document.querySelectorAll('.status')].some(e => e.textContent === 'waiting for a limit') && ` +
		has("it goes on at"))
	b.until(stepIs("The sea", "running") + ` || ` + stepIs("The woods", "running"))
	p.order(t, "sea", "finish")
	p.order(t, "woods", "finish")
	b.until(stepIs("The sea", "completed") + " && " + stepIs("The woods", "completed"))
	p.order(t, "report", "finish")
	b.until(stepIs("The report", "waiting for you") + ` && !!document.querySelector('form.answer')`)
	b.check("run-asks")
	b.fill(`form.answer textarea`,
		"Say more").click("Fail: the agent changes it").
		until(stepIs("The report", "running") + ` && ` + has("2 agents"))
	p.order(t, "report", "finish")
	b.until(stepIs("The report", "waiting for you") + ` && !!document.querySelector('form.answer')`)
	b.clickOn(".tabs a:last-child",
		"").until(`document.querySelectorAll('[aria-label="report.md"] tr.add').length === 2`)
	b.click("Decide").until(`!!document.querySelector('form.answer')`)
	b.click("Pass: the step is finished").until(state("completed") + " && " + stepIs("The report", "completed"))
	b.check("run-complete")
	b.clickOn(`[id$="-report"] .about a`, "messages").
		until(has("a person must decide about these outputs") +
			` && document.querySelector('#main h2').innerText.includes('report')`)
	b.check("run-agent")
	b.open(path).shows("Passed by a person")
	b.open("/")
	b.click("Merge…") // what the agents have written is in no commit
	b.until(at(path) + " && location.search === '?tab=changes'")
	b.click("Merge").until(said("merged into main"))
}

// A run over items has a row for each, with its steps; they are found by their text, number or state, and those that
// wait for a person can be decided there. The page of the job shows the states of the steps.
func TestItems(t *testing.T) {
	p, b := openRuns(t, 8)
	path := b.startRun("each", "Many places", "")
	p.order(t, "plan", `finish ["Rome","Oslo","`+strings.Repeat("Very long ", 40)+
		`","Bern","Paris","Lima","Quito","Cairo","Delhi","Tunis","Minsk","Kyoto","Nara"]`)
	row := func(name string) string {
		return `[...document.querySelectorAll('.item')].find(e => e.innerText.includes('` + name + `'))`
	}
	rowIs := func(name string, texts ...string) string {
		all := "true"
		for _, text := range texts {
			all += " && " + row(name) + "?.innerText.includes('" + text + "')"
		}
		return all
	}
	for i := range 3 {
		p.order(t, fmt.Sprintf("visit[%d]", i), "say")
	}
	p.order(t, "visit[3]", "leave")
	p.order(t, "sign[0]", "say I was there")
	b.until(stepIs("Plan it", "completed"))
	b.until(`!!document.querySelector('.item .segment.completed')`)
	b.until(`[...document.querySelectorAll('.item .status')].some(e => e.textContent === 'failed')`)
	b.until(rowIs("Rome", "visit", "sign", "waiting for you", "It waits for you"),
		in(".decision", "Would you sign it?"),
		rowIs("Bern", "failed"), rowIs("Nara", "not begun"), rowIs("Paris", "running"),
		`[...document.querySelectorAll('.each .about')].some(e => e.innerText.includes('13 items, 4 at once: '))`)
	testkit.True(t, eval[bool](b, `document.querySelector('.each .item').innerText.startsWith('1 Rome')`),
		"the item that waits for a person is not the first")
	b.check("run-items")
	b.open(path).pick(".each select", "failed").click("Show")
	b.until(`document.querySelectorAll('.item').length === 1 && `+rowIs("Bern", "failed"),
		`location.search.includes('items=failed')`)
	b.click("All items").until(`document.querySelector('.each select').value === ''`)
	b.fill(".each [type=search]", "13").click("Show").until(
		`document.querySelectorAll('.item').length === 1 && ` + rowIs("Nara", "not begun"))
	b.open(path + "?q=nowhere").shows("No item is like that.")
	b.open(path).clickOn(".item .segment.completed", "").until(`location.search.includes('execution=') && ` +
		has("I work on visit[0]"))

	// It is decided on its card, and the wait stays in the chart.
	b.open(path).clickOn(".decision form.answer button[value=pass]", "")
	b.until(`document.querySelector('details[id$="-done"] summary')?.innerText === '1 completed'`,
		`!document.querySelector('.decision form.answer')`)
	b.open("/jobs/places").until(
		`document.querySelector('#workflow-each ~ .graph a[href="#step-plan"] .status').innerText === 'completed'`,
		`document.querySelector('#workflow-each ~ .graph a[href="#step-visit"] .status').innerText === 'failed'`)
	b.check("job-states")
	session := eval[string](b, `document.querySelector('#workflow-each ~ .about a[href^="/attempts/"]').pathname`)
	testkit.Equal(t, session, path, "the page of the last run")
}

// A run that stops at a step, and one that a budget pauses, need a person, who resumes them.
func TestRunNeedsAPerson(t *testing.T) {
	p, b := openRuns(t, 4)
	path := b.startRun("short", "One text", "7")
	p.order(t, "plan", "leave")
	b.until(state("failed") + " && " + has("ended without finishing it"))
	b.check("run-stopped")
	b.open("/").until(in("[aria-labelledby=needs]", "Step plan: its agent ended without finishing it: PASS"))
	b.click("Resume") // with the budgets that it has
	b.until(at(path) + " && " + said("goes on where it was") + " && " + stepIs("Plan it", "running") + " && " +
		has("at most 7 agents of unknown cost"))
	p.order(t, "plan", "leave")
	b.until(state("failed"))
	b.fill("#advice", "Hand it in").click("Resume the run").
		until(said("goes on where it was") + " && " + stepIs("Plan it", "running"))
	p.order(t, "plan", "finish unchanged")
	b.until(state("completed"))
	b.open("/").until(headings + ` === 'Done, to merge'`)
	b.click("Done").until(
		`!document.querySelector('.needs .entry') && document.querySelector('.recent').innerText.includes('One text')`)
	b.startRun("write", "Two texts", "1")
	p.order(t, "plan", "finish")
	b.until(state("paused") + " && " + has("A budget has paused it"))
	b.fill("#max_unknown", "9").click("Resume the run").
		until(stepIs("The sea", "running") + " && " + stepIs("The woods", "running"))
	b.click("Stop the run").until(state("stopped") + " && " + has("It was stopped."))
	b.open("/").until(in("[aria-labelledby=recent]", "Two texts") + ` && !` +
		in("[aria-labelledby=needs]", "Two texts"))

	// A task that the server leads.
	b.open("/board").click("New task").fill("#title", "A text from the board").pick("#workflow", "places/short")
	b.pick("#lead", "the server, with an agent for each step").click("Add the task")
	b.until(at("/tasks/") + " && " + has("with an agent for each step"))
	b.click("Start").until(at("/attempts/"))
	b.until(stepIs("Plan it", "running"))
	p.order(t, "plan", "finish commit")
	b.until(state("completed"))
	b.open("/").until(in(".needs", "A text from the board"))
	b.click("Merge").until(said("merged into main") +
		` && location.pathname === "/" && !document.querySelector('.needs .entry')`)
}

// TestStepper is an agent of a run: BINARY -test.run=^TestStepper$ ORDERS. It says what it works on, and does
// what the file named for its step in that folder says once that is there: "finish" hands in STEP.md with a
// line more than before, "finish commit" also commits it, "finish [...]" hands in that list, "finish unchanged" hands
// in a file as it is, "say" hands in a text, or nothing, and
// "limit SECONDS" and "leave" end without. It removes the file.
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
		text := append(before, "A line of "+name+"\n"...)
		if strings.HasPrefix(more, "[") {
			text = []byte(more)
		}
		testkit.Must(t, os.WriteFile(file, text, 0o644))
	}
	outputs := args{"text": file}
	if what == "say" {
		outputs = args{}
		if more != "" {
			outputs["said"] = more
		}
	}

	call := pagetest.Connect(t, strings.TrimSuffix(os.Getenv(config.MCPURLEnv), "/mcp"), os.Getenv(executors.TokenEnv))
	var reply json.RawMessage
	call("finished_step", args{"step_id": name, "outputs": outputs}, &reply)
	fmt.Println(string(reply))
	if more == "commit" {
		testkit.Git(t, ".", "add", "-f", file)
		testkit.Git(t, ".", "commit", "-qm", "Write it")
	}
}
