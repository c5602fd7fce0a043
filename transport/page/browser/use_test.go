package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
	"deepwork/transport/page/pagetest"
)

// said is an expression: the page says this of the last action.
func said(text string) string { return in("#notice", text) }

// refused is an expression: the page says this of the action that was refused.
func refused(text string) string { return in("#alert", text) }

// state is an expression: the status of the task or the attempt is this.
func state(status string) string {
	return fmt.Sprintf("document.querySelector('h1 .status, .bar .status')?.textContent === %q", status)
}

// at is an expression: the browser has loaded a page whose path begins so.
func at(path string) string {
	return fmt.Sprintf("location.pathname.startsWith(%q) && document.readyState === 'complete' && typeof walk === "+
		"'function'", path)
}

// newTask adds a task with the form of the board, and returns its path.
func (b *tab) newTask(title, description string) (path string) {
	b.t.Helper()
	b.open("/board").click("New task").fill("#title", title).fill("#description", description).use("button",
		"Add the task", `e.click(); e.click()`)
	b.until(at("/tasks/") + " && " + has(title))
	return eval[string](b, `location.pathname`)
}

// A task is added, edited, moved and deleted, and waits for others, but not in a circle.
func TestTasks(t *testing.T) {
	s, _, b := open(t, nil)
	first := b.newTask("First", "What to do")
	testkit.Equal(t, eval[string](b, `document.title`), "First · "+filepath.Base(s.root)+" · deepwork", "the title")

	b.click("Edit").fill("#title", "The first").fill("#description", "What to do\nand how").pick("#workflow",
		"trip/plan").click("Save")
	b.until(`document.querySelector('h1').innerText.startsWith('The first') && ` + has("and how") +
		` && !!document.querySelector('main a[href="/jobs/trip"]')`)
	b.click("Move").click("In review").until(state("in review"))
	second, third := b.newTask("Second", ""), b.newTask("Third", "")
	for _, wait := range []struct{ path, on, then string }{
		{second, "The first", has("It cannot start yet")}, {third, "Second", has("It cannot start yet")},
		{first, "Third", refused(`"The first" depends on "Third" depends on "Second"`)},
	} {
		b.open(wait.path).click("Add dependency").pick("#depends", wait.on).click("Add").until(wait.then)
	}

	b.open("/board")
	b.until(`[...document.querySelectorAll('#col-todo ~ ul .entry')].some(e => e.innerText.includes('Second') && `+
		`e.innerText.includes('blocked by The first'))`,
		`document.querySelector('#col-inreview .count').textContent === '1' && document.querySelector('#col-todo `+
			`.count').textContent === '2'`)
	b.open(second).click("Start").until(refused("The first"))
	b.clickOn(`button[aria-label="Do not wait for The first"]`, "Remove").until(`!(` + has("It cannot start yet") + `)`)
	b.open(third).click("Delete").click("Delete this task").until(at("/board") + " && " + said("Deleted: Third"))
	b.open("/board")
	testkit.True(t, !b.is(has("Third")), "the task is still there")
}

const mailJob = `name: mail
version: 1.0.0
summary: Write to somebody
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows: [{name: write, summary: A letter, steps: [write], inputs: [{name: whom, description: Who reads it}]}]
steps: [{id: write, name: Write, description: The letter, instructions: Write it., inputs: [{name: whom, ` +
	`description: Who reads it}], outputs: {}, reviews: []}]
`

// The board is filtered by what is in its URL, cards are carried with keys and dragged with the mouse, and a
// task is added and started at once. What was typed for a workflow is there again when that is chosen again.
func TestBoard(t *testing.T) {
	_, call, b := open(t, map[string]string{".deepwork/jobs/mail/job.yml": mailJob})
	b.newTask("Plain", "")
	b.open("/board?new=1").until(`document.getElementById('new').matches(':modal')`)
	b.fill("#title", "Urgent").fill("#labels", "web good-first-issue").pick("#priority", "High").pick("#workflow",
		"mail/write")
	b.fill(`[name="input.whom"]`, "Ada").pick("#workflow",
		"trip/plan").until(`!document.querySelector('[name="input.whom"]')`)
	b.pick("#workflow", "mail/write").until(`document.querySelector('[name="input.whom"]')?.value === "Ada"`)
	b.pick("#workflow", "trip/plan").
		until(`document.querySelector('#workflow-inputs') && document.getElementById('new').open`)
	b.check("board-new")
	b.click("Add the task").until(at("/tasks/") + " && " + has("good-first-issue"))
	b.open("/board")

	cards := func(column, want string) {
		t.Helper()
		b.until(
			fmt.Sprintf(`[...document.querySelectorAll('[data-status=%s] .card > a')].map(a => `+
				`a.textContent).join() === %q`, column, want))
	}
	cards("todo", "Urgent,Plain")
	b.click("web").until(`location.search === '?labels=web'`)
	cards("todo", "Urgent")
	b.open("/board").fill("#q", "PLA")
	cards("todo", "Plain")
	b.until(`location.search === '?q=PLA'`)
	b.pick("[name=priority]", "High")
	cards("todo", "")
	b.click("Clear")
	cards("todo", "Urgent,Plain")
	b.use(".card .grip", "", "").press(kb.Enter, kb.ArrowRight, kb.ArrowRight, kb.ArrowLeft, kb.Enter)
	cards("inprogress", "Urgent")
	b.until(`document.activeElement.matches('[data-status=inprogress] .grip') && ` +
		`document.getElementById('moving').textContent === 'Moved to In progress'`)
	b.press(kb.Enter, kb.ArrowRight, kb.Escape) // stays
	b.until(`document.getElementById('moving').textContent === 'Left where it was'`)
	cards("inprogress", "Urgent")
	b.run(`(() => { const drag = (e, kind) => e.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: ` +
		`true, dataTransfer: data})), data = new DataTransfer();
		const card = document.querySelector('[data-status=inprogress] .card'), done = ` +
		`document.querySelector('[data-status=done]');
		drag(card, 'dragstart'); drag(done, 'dragover'); drag(done, 'drop'); drag(card, 'dragend'); })()`)
	cards("done", "Urgent")
	b.until(`document.getElementById('fold-done').open`)
	b.click("New task").fill("#title", "At once").fill("#description", "! echo begun").pick("#executor",
		"SCRIPT").click("Add and start")
	b.until(at("/attempts/")+" && "+has("At once")+" && "+state("completed"), in(".next", "Set the task done"))
	b.check("attempt-nothing")
	b.click("Set the task done").until(`!document.querySelector('.next').innerText`)
	b.open("/attempts/" + works(t, call, "Two files", "echo 'package main' > a.go; git add -A; git commit -qm work")).
		click("Review changes")
	b.until(`document.querySelector('.diff .hl-k')?.textContent === 'package' && document.querySelector('h3 ` +
		`.edit').href.startsWith('vscode://file/')`)
	b.open("/board") // times are relative, with the exact time at hand
	b.until(`(() => { const e = document.querySelector('.entry time'); return e && / ago$/.test(e.textContent) && ` +
		`e.title === new Date(e.dateTime).toLocaleString(); })()`)
}

// variants are agents that run the script of their prompt; LOUD says so first.
const variants = `executors:
  SCRIPT:
    command: [sh, -c, 'sed -n "s/^! //p" | sh -e']
    variants: {LOUD: {command: [sh, -c, 'echo LOUD; sed -n "s/^! //p" | sh -e']}}
`

// An agent is started with what the form says, stopped, and sent follow-ups, at once and queued.
func TestAgents(t *testing.T) {
	s, _, b := open(t, map[string]string{".deepwork/config.yml": variants})
	testkit.Git(t, s.root, "branch", "release")
	gate := filepath.Join(testkit.Dir(t), "go")
	task := b.newTask("Slow work", "! echo begun; until test -e "+gate+"; do sleep 0.05; done; echo over\n")
	b.pick("#executor", "SCRIPT:LOUD").fill("[id^=branch-]", "nowhere").click("Start").until(refused("nowhere"))
	b.fill("[id^=branch-]", "release").fill("#more", "! echo more of it").use("button", "Start",
		`e.click(); e.click()`).until(at("/attempts/"))
	b.shows("SCRIPT:LOUD", "ahead of release", "begun", "LOUD")
	b.fill("#prompt", "! echo never").click("Queue").shows("Queued, for when the agent ends")
	b.click("Drop it").until(said("Dropped: ! echo never") + ` && !(` + has("Queued, for when the agent ends") + `)`)
	b.fill("#prompt", "! echo second").click("Queue").shows("Queued, for when the agent ends")
	b.open("/board").until(`document.querySelector('#col-inprogress ~ ul .status.running')`)
	b.open("/").until(in("[aria-labelledby=working]", "Slow work"))
	testkit.Write(t, gate, "")
	b.until(in("[aria-labelledby=needs]", "Slow work"))
	b.open(task).
		until(`document.querySelector('.entry a[href^="/attempts/"] ~ .status')?.textContent === 'completed' && ` +
			`document.querySelectorAll('.entry a[href^="/attempts/"]').length === 1`)
	b.click("SCRIPT:LOUD")
	b.until(at("/attempts/"), `document.querySelectorAll('#runs li').length === 2 && `+has("\nover")+" && "+
		has("\nmore of it")+" && "+has("\nsecond")+" && "+state("completed"))
	b.fill("#prompt", "! echo third").click("Send")
	b.until(said("goes on with it") + ` && document.querySelectorAll('#runs li').length === 3 && ` + has("\nthird"))

	// One run alone: its messages.
	b.click("3 runs of the agent").clickOn("#runs li:nth-child(2) a", "")
	b.until(`location.search.includes('execution=') && ` + has("of one run") + " && " + has("\nsecond") + " && !(" +
		has("\nthird") + ")")

	// From the page of the task; then it is stopped.
	b.open(task).click("Send a follow-up to the newest").fill("#prompt", "! echo fourth; sleep 600").click("Send")
	b.until(at("/attempts/"), has("fourth"))
	b.click("Stop the agent").until(state("stopped") + ` && !document.querySelector('form[action$="/stop"]')`)
}

// works starts an agent that runs a script, and waits for its end.
func works(t *testing.T, call pagetest.Call, title, script string) (attempt string) {
	t.Helper()
	_, attempt = call.Script(title, "! "+strings.ReplaceAll(script, "; ", "\n! ")+"\n")
	call.Await(t, attempt, "completed")
	return attempt
}

// Merge in each way, with a message, then rebase and push to a real remote.
func TestMerge(t *testing.T) {
	s, call, b := open(t, nil)
	root, origin := s.root, testkit.Dir(t)
	testkit.Git(t, origin, "init", "-q", "--bare", "-b", "main")
	testkit.Git(t, root, "remote", "add", "origin", origin)

	for _, way := range []struct{ file, option, message, subject, parents string }{
		{"one.txt", "merge commit", "Add one", "Add one", "p p"},
		{"two.txt", "one commit", "Add two", "Add two", "p"},
		{"three.txt", "its commits, rebased", "", "more", "p"},
	} {
		id := works(t, call, "Write "+way.file,
			"echo a > "+way.file+"; git add -A; git commit -qm work; git commit -q --allow-empty -m more")
		b.open("/attempts/" + id).click("Review changes").
			until(at("/attempts/") + " && location.search === '?tab=changes'")
		b.click("Options").pick("#way", way.option).fill("#message", way.message).click("Merge")
		b.until(said("merged into main"), has("0 ahead of main"))
		subject, parents, _ := strings.Cut(testkit.Git(t, root, "log", "-1", "--format=%s\n%P"), "\n")
		testkit.Equal(t, subject, way.subject, "%s: the commit", way.option)
		testkit.Equal(t, len(strings.Fields(parents)), len(strings.Fields(way.parents)), "%s: its parents", way.option)
		testkit.Works(t, testkit.Get(os.Stat(filepath.Join(root, way.file))).Err(), "%s", way.option)
		testkit.True(t, !b.is(`[...document.querySelectorAll('button')].some(e => e.textContent === 'Merge')`),
			"%s: it can be merged again", way.option)
	}
	id := works(t, call, "Push it", "echo a > four.txt; git add -A; git commit -qm four")
	b.open("/attempts/" + id + "?tab=changes").click("Push to a remote").click("Push").until(said("pushed"))
	branch := strings.TrimSpace(testkit.Git(t, origin, "branch", "--format=%(refname:short)"))
	testkit.True(t, b.is(has(branch)) && branch != "", "pushed to %q", branch)

	// The target moves on: the branch is rebased, and what is at the remote must be replaced.
	testkit.Write(t, filepath.Join(root, "five.txt"), "five")
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-qm", "five")

	b.open("/attempts/" + id + "?tab=changes").shows("1 behind")
	b.click("Rebase").until(said("rebased on main"), has("0 behind"))
	b.click("Push to a remote").click("Push").until(`document.querySelector('#alert .alert')`)
	b.clickOn("[name=force]", "").click("Push").until(said("pushed") + ` && !document.querySelector('#alert .alert')`)
	testkit.Contains(t, ":"+testkit.Git(t, origin, "log", "--format=%s", branch), ":four\nfive\n", "the remote has")
	// Another target.
	testkit.Git(t, root, "branch", "release")

	b.click("Change the target").fill("[id^=target-]", "release").click("Change").until(has("ahead of release"),
		said("is now for release"))
}

// resolver is an agent that runs the script of its first prompt and, at a follow-up, resolves a conflict with
// its own side.
const resolver = `executors:
  SCRIPT:
    command: [sh, -c, 'sed -n "s/^! //p" | sh -e']
    resume: [sh, -c, 'cat; git checkout -q --ours . && git add -A && git commit -qm resolved']
`

// A conflict is shown with its files, undone, met again and handed to the agent, who resolves it.
func TestConflict(t *testing.T) {
	s, call, b := open(t, map[string]string{".deepwork/config.yml": resolver})
	id := works(t, call, "Another idea", "echo mountains > idea.txt; git add -A; git commit -qm mountains")
	idea := filepath.Join(s.root, "idea.txt")
	testkit.Write(t, idea, "woods\n")
	testkit.Git(t, s.root, "commit", "-aqm", "woods")

	b.open("/attempts/" + id + "?tab=changes")
	conflict := in(`section[aria-label="Merge in progress"]`, "idea.txt")
	b.click("Merge").until(conflict, said("has conflicts with main"))
	b.check("conflict")

	// One side is taken, and that is undone.
	b.open("/attempts/" + id + "?tab=changes")
	testkit.True(t, b.is(`!document.querySelector('.diff').innerText.includes('woods')`), "the diff has the merge")
	b.click("Take the file of main").until(has("idea.txt is resolved"), said("a file is resolved"))
	testkit.Equal(t, testkit.Git(t, s.root, "show", ":idea.txt"), "woods")
	b.click("Undo").until(`!(`+has("idea.txt is resolved")+`)`, conflict, said("in conflict again"))
	b.open("/attempts/" + id + "?tab=changes").click("Undo the merge").
		until(`!(` + conflict + `) && ` + said("the merge is undone"))
	b.click("Merge").until(conflict)
	b.click("Hand it to the agent").
		until(`![...document.querySelectorAll('button')].some(e => e.textContent === 'Hand it to the agent')`)
	b.open("/attempts/" + id)
	b.until(`document.querySelectorAll('#runs li').length === 2 && !(`+conflict+`) && `+state("completed"),
		has("is being merged into yours"))
	b.click("Review changes").until("location.search === '?tab=changes'")
	b.click("Merge").until(said("merged into main"))
	testkit.Equal(t, string(testkit.Get(os.ReadFile(idea)).Must(t)), "mountains\n", "main")
}

// Everything can be done without a mouse.
func TestKeys(t *testing.T) {
	_, call, b := open(t, nil)
	paths := begin(t, call)
	focused := func(path string) string { return `document.activeElement.pathname === '` + path + `'` }
	b.open("/").press("j").until(focused(paths["attempt"]))
	b.press("j").until(focused(paths["session"]))
	b.press("j") // the last one stays
	b.press("k").until(focused(paths["attempt"]))
	b.press("/").until(`document.activeElement.id === 'q'`)
	b.run(`document.activeElement.value = ''`) // the driver types the slash, too
	b.press("active").until(`document.querySelectorAll('.entry').length === 1 && location.search === '?q=active'`)
	testkit.Equal(t, eval[string](b, `document.activeElement.id + document.activeElement.value`), "qactive",
		"the filter lost the focus or its text")

	b.press(kb.Escape, "j", kb.Enter).until(at(paths["session"]))
	b.run(`setTimeout(() => history.back())`)
	b.until(`location.pathname === '/' && ` + at("/") +
		` && location.search === '?q=active' && document.getElementById('q').value === 'active' && ` +
		`document.querySelectorAll('.entry').length === 1`)
	call.Plan("Another")
	b.until(has("Another") + ` && location.search === '?q=active'`) // it follows changes again
	b.press("g", "n").until(at("/") + ` && location.pathname === '/' && !location.search`)
	b.press("?").until(`document.getElementById('keys').open`)
	testkit.Equal(t, eval[string](b,
		`[...document.querySelectorAll('#keys dt')].map(e => e.innerText.trim()).filter(k => ['?', '/', 'j k', `+
			`'x', 'Esc', 'g n', 'g b'].includes(k)).length + ' keys'`), "7 keys")

	b.check("keys")
	b.press(kb.Escape).until(`!document.getElementById('keys').open`)
	b.press("g", "b").until(at("/board"))
	b.press("j", "x").until(`document.activeElement.closest('details.menu')?.open`)
	b.press(kb.Tab, kb.Enter).until(`!!document.querySelector('section[aria-labelledby=col-todo] .entry')`)
	b.press("g", "n").until(`location.pathname === '/' && ` + at("/"))

	// A skip link is the first thing that Tab reaches.
	b.press(kb.Tab)
	testkit.Equal(t, eval[string](b, `document.activeElement.textContent`), "Skip to the content", "Tab reaches")
	b.press(kb.Enter).until(`document.activeElement.id === 'main'`)

	// Tab reaches everything that can be used, and the focus is visible at each.
	for _, name := range []string{"now", "board", "task", "attempt", "session", "job"} {
		b.open(paths[name])
		b.run(`document.querySelectorAll('details').forEach(d => d.open = true);
			window.usable = () => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), ` +
			`select, textarea, summary, [tabindex="0"]')].filter(e => e.checkVisibility() && !e.disabled && !e.reached);
			document.addEventListener('focusin', e => { e.target.reached = true; const s = ` +
			`getComputedStyle(e.target); if (s.outlineStyle === 'none' || s.outlineWidth === '0px') (window.unseen ` +
			`??= []).push(e.target.outerHTML.slice(0, 200)); })`)

		for range eval[int](b, `usable().length`) {
			b.press(kb.Tab)
		}
		testkit.Same(t, eval[[]string](b, `usable().map(e => e.outerHTML.slice(0, 200))`), nil,
			"%s: Tab does not reach", name)
		testkit.Same(t, eval[[]string](b, `window.unseen ?? []`), nil, "%s: the focus is not visible", name)
	}
}

// A page stays open while its server is killed: it says so, and is renewed when there is a server again. A
// change that one person makes is on the page of another, without a reload.
func TestOpenPages(t *testing.T) {
	s, _, ann := open(t, nil)
	bob := browse(t, s)
	ann.open("/board")
	bob.open("/board").run(`window.same = true`)
	s.kill()
	bob.until(`!document.getElementById('link').hidden`)
	s.start("--port", s.url[strings.LastIndex(s.url, ":")+1:])
	call := pagetest.Connect(t, s.url, "")
	call.Script("After the restart", "! true\n")
	bob.until(has("After the restart") + " && document.getElementById('link').hidden && window.same")
	bob.run(`document.getElementById('new').showModal(); document.getElementById('title').value = 'half a title'`)

	// Forms of the old page work at the new server.
	ann.run(`document.getElementById('new').showModal()`)
	ann.do(chromedp.SendKeys(chromedp.CSS("#title"), "Made by Ann"),
		chromedp.Click(chromedp.CSS("form[action='/tasks'] button:not([name]):not([type])")))
	ann.until(at("/tasks/") + " && " + has("Made by Ann"))
	bob.shows("Made by Ann")
	testkit.True(t, eval[bool](bob,
		`window.same && document.getElementById('new').open && document.getElementById('title').value === 'half a `+
			`title'`), "the update took what Bob was writing")

	// What an agent prints appears while it works.
	gate := testkit.Dir(t) + "/go"
	_, attempt := call.Script("Slow", "! echo hello; until test -e "+gate+"; do sleep 0.05; done; echo all done\n")
	bob.open("/attempts/" + attempt).shows("hello").run(`window.same = true`)
	testkit.Write(t, gate, "")
	bob.until(has("all done") + " && " + has("completed") + " && window.same")
}

// A stream whose first request fails is asked for again, and so is a page that could not be fetched.
func TestRequestsThatFail(t *testing.T) {
	s, call, b := open(t, nil)
	behind := testkit.Get(url.Parse(s.url)).Must(t)
	var streams, pages atomic.Int64

	// without X-Forwarded-For, which needs a token
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(behind)
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" && streams.Add(1) == 1 ||
			r.Header.Get("HX-Request") != "" && r.URL.Path == "/board" && pages.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	defer b.do(chromedp.Navigate("about:blank")) // whose stream keeps the proxy open
	b.do(chromedp.Navigate(front.URL + "/board"))
	b.until(at("/board")+` && !document.getElementById('link').hidden`,
		`!!document.body._htmx?.sse && document.getElementById('link').hidden`)
	call.Script("Seen at the second attempt", "! true\n")
	b.shows("Seen at the second attempt")
	testkit.True(t, streams.Load() >= 2 && pages.Load() >= 2, "%d streams, %d pages", streams.Load(), pages.Load())
	testkit.Equal(t, eval[int](b, `htmx.config.sse.reconnectMaxDelay`), 5000,
		"ms that a page may wait before it reconnects")
}

// Outside of a project a person sees what needs them in all of theirs, chooses one, and works with its pages.
func TestProjects(t *testing.T) {
	s, call, _ := open(t, nil)
	call.Plan("Sail around the world")
	b := person(t, "")
	b.shows(s.root)
	b.until(`!!document.body._htmx?.sse`)
	_, failed := call.Script("Break the mast", "! false\n")
	call.Await(t, failed, "failed")
	b.until(in(".needs", "Break the mast") + ` && /^.[0-9]+. Inbox · /.test(document.title)`)
	b.check("projects").fits("projects", 320)
	b.do(chromedp.EmulateViewport(1200, 900))
	b.clickOn(".needs a", "Break the mast").until(`location.pathname.endsWith("/attempts/` + failed + `")`)
	b.click("Now").until(in(".working", "Sail around the world") + ` && document.title.startsWith('(1) Now · ')`)
	b.until(`location.origin === "` + b.at + `"`)
	b.click("Board").until(`location.pathname.endsWith("/board")`)
	b.click("New task").fill("#title",
		"Buy a boat").click("Add the task").until(`location.pathname.includes("/tasks/") && ` + has("Buy a boat"))
	b.click("Move").click("In review").until(state("in review"))
	b.check("project")
	b.click("All projects").until(in(".needs", "Break the mast") + ` && location.pathname === "/"`)
}

// source serves a system whose workflows run until they are cancelled. It offers those that offers has.
func source(t *testing.T, offers *atomic.Pointer[string]) (url string) {
	t.Helper()
	var status atomic.Value
	status.Store(`{"status":"running","progress":{"progress":2,"total":3,"message":"two of three"}}`)
	replies := map[string]func() string{
		"workflows-list-tool":    func() string { return *offers.Load() },
		"workflows-execute-tool": func() string { return `{"execution_id":"e-1","status":"running"}` },
		"workflows-status-tool":  func() string { return status.Load().(string) },
		"workflows-cancel-tool": func() string {
			status.Store(`{"status":"cancelled"}`)
			return `{"status":"cancelled"}`
		},
	}

	s := mcp.NewServer(&mcp.Implementation{Name: "factory", Version: "1"}, nil)
	for name, reply := range replies {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: reply()}}}, nil
			})
	}

	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			session.Close()
		}
		h.CloseClientConnections()
		h.Close()
	})
	return h.URL
}

// Sources say how they are and what they offer; their executions are followed and cancelled.
func TestSources(t *testing.T) {
	var offers atomic.Pointer[string]
	offer := func(names ...string) {
		var all []string
		for _, n := range names {
			all = append(all, fmt.Sprintf(`{"id":%[1]q,"name":%[1]q,"description":%[2]q,"executionType":"async"}`, n,
				"does "+pagetest.Hostile))
		}
		offers.Store(new("[" + strings.Join(all, ",") + "]"))
	}
	offer("assemble")
	_, call, b := open(t, map[string]string{".deepwork/config.yml": fmt.Sprintf(`workflow_tools:
  refresh_interval: 0
  reply_within: 1ms
  status_interval: 100ms
  sources:
    - {name: factory, url: %q}
    - {name: away, command: [sh, -c, 'echo the line is dead >&2; exit 1']}
`, source(t, &offers))})

	b.open("/sources")
	b.until(in("#source-factory", "connected")+" && "+has("assemble"),
		`document.querySelector('[aria-labelledby=source-away] .alert')`)
	offer("assemble", "paint")
	b.click("Ask all for their workflows now").
		until(said("New (1): paint") + " && " + in("#source-factory", "2 workflows"))
	b.click("Ask all for their workflows now").until(said("Nothing has changed."))
	call("call_workflow_tool", args{"name": "assemble", "arguments": args{}}, nil)
	b.until(`document.querySelector('#executions ~ ul .status.running') && ` + has("2 of 3") + " && " +
		has("two of three"))
	b.open("/").until(in("[aria-labelledby=working]", "assemble"))
	b.open("/sources").click("assemble").until(at("/sources/executions/") + " && " + state("running"))
	b.check("execution")
	b.open("/sources").click("Cancel").click("Cancel the execution")
	b.until(said("assemble: cancelled") + ` && !document.querySelector('#executions ~ ul .status.running')`)
	b.clickOn("#executions ~ ul a",
		"assemble").until(at("/sources/executions/") + " && " + state("cancelled") + " && " + has("It has no result."))
}

// What a project asks for and nobody has approved is shown in full, with the command that approves it.
func TestTrust(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"),
		variants+"quality_gate:\n  agent_review_command: [./review.sh, --strict]\n")
	for name, value := range testkit.Get(statetest.Write(testkit.Dir(t))).Must(t) { // which trusts no folder
		t.Setenv(name, value)
	}
	b := browse(t, serve(t, root, overHTTP...))
	b.open("/").until(in("[aria-labelledby=needs]", "Not approved"))
	b.clickOn("[aria-labelledby=needs] .entry a", "").until(at("/trust"))
	b.shows("Until you do, none of it happens", "deepwork trust", "echo LOUD", "./review.sh", "--strict",
		"config.yml:2", "config.yml:6")
	testkit.True(t, !eval[bool](b, `!!document.querySelector('main form, main button')`), "the page approves")
	b.check("trust-waiting")
}
