package browser

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
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
	t.Parallel()
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
	testkit.True(t, !agent.is(`document.querySelector('form[action$="/override"]')`), "an override is offered to a caller without the right")

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
	testkit.True(t, eval[bool](b, `document.activeElement.id === 'why-draft' && !document.activeElement.validity.valid`), "the reason is not required")
	b.use("#why-draft", "", `e.required = false`)
	b.click("Override the reviews")
	b.until(refused("Say why") + ` && document.activeElement.id === 'why-draft' && document.activeElement.matches('[aria-invalid=true][aria-describedby=wrong]') && document.getElementById('wrong').innerText.includes('Say why')`)
	// What the person was shown stays what they override, and they are told that there is something newer.
	given := `document.getElementById('why-draft').form.elements.given.value`
	before := eval[string](b, given)
	testkit.WriteAll(t, root, map[string]string{"bad.txt": "this one is bad, too\n"})
	call("finished_step", args{"session_id": id, "step_id": "draft", "outputs": args{"out": "bad.txt"}}, nil)
	b.until(step("Draft") + `.innerText.includes('Review 2: failed')`)
	testkit.Equal(t, eval[string](b, given), before, "what is overridden")
	b.click("Show it")
	b.until(given + ` !== '` + before + `'`)
	b.click("Actions")
	b.fill("#why-draft", "I have read it")
	b.until(`!document.querySelector('[aria-invalid], #wrong')`)
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
	testkit.True(t, eval[bool](b, `document.activeElement.id === 'reason'`), "the reason of an abort is not required")
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

const manyJob = `name: many
version: 1.0.0
summary: Many items
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows:
  - {name: tidy, summary: Tidies up, steps: [tidied]}
  - name: all
    summary: All forms
    steps:
      - list
      - {for_each: todo, steps: [port, {workflow: tidy}], at_once: 2}
      - {when: {output: said, is: "yes"}, steps: [docs]}
      - {repeat: {steps: [fix], until: {output: said, is: done}, at_most: 3}}
      - workflow: report/look_up
steps:
  - {id: list, name: List, description: D, instructions_file: do.md, reviews: [], outputs: {todo: {type: file, description: D}, said: {type: string, description: D}}}
  - {id: port, name: Port, description: D, instructions_file: do.md, reviews: [], outputs: {}}
  - {id: tidied, name: Tidied, description: D, instructions_file: do.md, reviews: [], outputs: {}}
  - {id: docs, name: Docs, description: D, instructions_file: do.md, reviews: [], outputs: {}}
  - {id: fix, name: Fix, description: D, instructions_file: do.md, reviews: [], outputs: {said: {type: string, description: D}}}
`

// The page of a job says every fault with its line, and shows each step as an agent reads it.
func TestJobs(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, report)
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/many/do.md": "Do it.\n", ".deepwork/jobs/many/job.yml": manyJob})
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
	// Forms are boxes with their steps in them, and workflows that are steps lead to those.
	b.open("/jobs/many")
	b.until(`document.querySelector('.graph .form:nth-child(2)').innerText.includes('for each of todo, 2 at once')`)
	if got := eval[string](b, `[...document.querySelectorAll('[aria-label="Steps of all"] > li')].map(li => [...li.querySelectorAll('a')].map(a => a.getAttribute('href')).join(' ')).join(', ')`); got != "#step-list, #step-port #workflow-tidy, #step-docs, #step-fix, /jobs/report#workflow-look_up" {
		t.Errorf("the graph of forms has %s", got)
	}
	b.check("forms")
}

// Comments on lines are made with the mouse and with keys, removed, and sent as one follow-up; the diff
// is unified or split, and has a tree.
func TestComments(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), "executors:\n  SCRIPT:\n    command: [sh, -c, 'sed -n \"s/^! //p\" | sh -e']\n    resume: [cat]\n")
	s := serve(t, root, overHTTP...)
	call := pagetest.Connect(t, s.url, "")
	id := s.works(call, "Three lines", `mkdir -p src/deep; printf 'a\nb\nc\n' > src/deep/three.txt; echo x > top.txt; git add -A; git commit -qm work`)
	b := browse(t, s)
	b.open("/attempts/" + id + "?tab=changes")
	comment := func(text string) {
		t.Helper()
		b.until(`document.getElementById('comment').open`)
		b.fill("#comment-text", text)
		b.click("Add the comment")
		b.until(`!document.getElementById('comment').open && [...document.querySelectorAll('.diff .remark')].some(e => e.innerText.includes('` + text + `'))`)
	}
	// With the mouse, at a number.
	b.clickOn(`[data-file="src/deep/three.txt"] tr:nth-child(3) .no:nth-child(2)`, "")
	b.until(`document.querySelector('#comment [data-where]').textContent === 'src/deep/three.txt:2' && document.querySelector('#comment [data-quote]').textContent === 'b'`)
	b.check("commenting")
	comment("why b")
	b.until(`document.querySelector('.tree').innerText.includes('1 comment') && document.querySelector('.tree summary').innerText === 'src/deep'`)
	// With keys: the arrows walk the lines.
	b.use(`.scroll:has([data-file="top.txt"])`, "", ``)
	b.press(kb.ArrowDown, kb.ArrowDown, kb.Enter)
	b.until(`document.querySelector('#comment [data-where]').textContent === 'top.txt:1'`)
	comment("why x")
	b.clickOn(`.diff tr:nth-child(2) .no:nth-child(2)`, "")
	comment("never mind")
	testkit.Equal(t, eval[string](b, `document.getElementById('comment-text').value`), "", "the dialog")
	b.clickOn(`.comments li:has(p.text) button[aria-label*="three.txt:1"]`, "Remove")
	b.until(`document.querySelectorAll('.comments li').length === 2 && !(` + has("never mind") + `)`)
	// Split, and back; the address is a link.
	b.click("split")
	b.until(`location.search.includes('diff=split') && document.querySelectorAll('.diff.split .remark').length === 2`)
	b.check("comments-split")
	b.click("Send 2 comments to the agent")
	b.until(said("goes on with the comments") + ` && !document.querySelector('.comments')`)
	b.click("Conversation")
	b.until(`document.querySelectorAll('#runs li').length === 2`)
	for _, part := range []string{"src/deep/three.txt", "why b", "top.txt", "why x"} { // the agent prints what it is sent
		b.until(`document.querySelector('.messages').innerText.includes('` + part + `')`)
	}
	// One file alone, from a fresh address.
	b.open("/attempts/" + id + "?path=top.txt")
	b.until(`document.querySelectorAll('.file').length === 1 && ` + has("all files"))
}

var csrfField = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// What the rights of a token do not allow is not offered, and refused with the name of the right.
func TestRights(t *testing.T) {
	t.Parallel()
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Group: "web", Rights: config.AllRights}, config.Token{Name: "bob", Group: "web"})
	s := serve(t, pagetest.Project(t), append(overHTTP, "--token-file", file)...)
	w := s.begin(pagetest.Connect(t, s.url, tokens[0]))
	needs := map[string]string{ // the right for each kind of action
		"/runs": "agents", "/attempts/" + w.attempt + "/resume": "agents", "/tasks/" + w.task + "/start": "agents", "/attempts/" + w.attempt + "/follow-up": "agents", "/attempts/" + w.attempt + "/comments": "agents", "/attempts/" + w.attempt + "/comments/send": "agents",
		"/attempts/" + w.attempt + "/git/merge": "merge", "/attempts/" + w.attempt + "/git/rebase": "merge", "/attempts/" + w.attempt + "/git/push": "merge", "/attempts/" + w.attempt + "/git/target": "merge",
	}
	form := url.Values{"executor": {"SCRIPT"}, "workflow": {"trip/plan"}, "goal": {"x"}, "action": {"send"}, "prompt": {"x"}, "remote": {"origin"}, "branch": {"main"}, "file": {"idea.txt"}, "line": {"1"}, "text": {"x"}}
	for i, name := range []string{"ann", "bob"} {
		jar, _ := cookiejar.New(nil) // without options it does not fail
		client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		ask := func(path string, form url.Values) (status int, text string) {
			t.Helper()
			send := func() (*http.Response, error) { return client.Get(s.url + path) }
			if form != nil {
				send = func() (*http.Response, error) { return client.PostForm(s.url+path, form) }
			}
			res := testkit.Get(send()).Must(t)
			defer res.Body.Close()
			all := testkit.Get(io.ReadAll(res.Body)).Must(t)
			return res.StatusCode, string(all)
		}
		if status, text := ask("/login", url.Values{"token": {tokens[i]}}); status != http.StatusSeeOther {
			t.Fatalf("%d %s", status, text)
		}
		_, task := ask("/tasks/"+w.task, nil)
		_, attempt := ask("/attempts/"+w.attempt, nil)
		_, changes := ask("/attempts/"+w.attempt+"?tab=changes", nil)
		attempt += changes
		_, job := ask("/jobs/trip", nil)
		testkit.Need(t, strings.Contains(task, w.attempt) && strings.Contains(attempt, "idea.txt"), "%s does not see the work of the group:\n%s", name, task)
		form.Set("csrf", csrfField.FindStringSubmatch(task)[1])
		for path, right := range needs {
			offered := strings.Contains(task+attempt+job, `action="`+path+`"`)
			testkit.True(t, name != "bob" || !offered, "bob is offered %s", path)
			if name == "ann" && (path == "/runs" || strings.HasSuffix(path, "/start") || strings.HasSuffix(path, "/merge") || strings.HasSuffix(path, "/follow-up")) && !offered {
				t.Errorf("ann is not offered %s", path)
			}
			if name == "ann" {
				continue
			}
			status, text := ask(path, form)
			testkit.Equal(t, status, http.StatusForbidden, "bob")
			testkit.Contains(t, text, "the right "+right, "bob")
		}
	}
}
