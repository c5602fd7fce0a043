package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"deepwork/actor/testkit"
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
	return fmt.Sprintf("location.pathname.startsWith(%q) && document.readyState === 'complete' && typeof walk === 'function'", path)
}

// newTask adds a task with the form of the board, and returns its path.
func (b *tab) newTask(title, description string) (path string) {
	b.t.Helper()
	b.open("/board").click("New task").fill("#title", title).fill("#description", description).click("Add the task")
	b.until(at("/tasks/") + " && " + has(title))
	return eval[string](b, `location.pathname`)
}

// A task is added, edited, moved and deleted, and waits for others, but not in a circle.
func TestTasks(t *testing.T) {
	s, _, b := open(t, nil)
	first := b.newTask("First", "What to do")
	testkit.Equal(t, eval[string](b, `document.title`), "First · "+filepath.Base(s.root)+" · deepwork", "the title")
	b.click("Edit").fill("#title", "The first").fill("#description", "What to do\nand how").pick("#workflow", "trip/plan").click("Save")
	b.until(`document.querySelector('h1').innerText.startsWith('The first') && ` + has("and how") + ` && !!document.querySelector('main a[href="/jobs/trip"]')`)
	b.click("Move").click("In review").until(state("in review"))

	second, third := b.newTask("Second", ""), b.newTask("Third", "")
	for _, wait := range []struct{ path, on, then string }{
		{second, "The first", has("It cannot start yet")}, {third, "Second", has("It cannot start yet")}, {first, "Third", refused(`"The first" depends on "Third" depends on "Second"`)},
	} {
		b.open(wait.path).click("Wait for a task").pick("#depends", wait.on).click("Add").until(wait.then)
	}
	b.open("/board")
	b.until(`[...document.querySelectorAll('#col-todo ~ ul .entry')].some(e => e.innerText.includes('Second') && e.innerText.includes('blocked by The first'))`,
		`document.querySelector('#col-inreview .count').textContent === '1' && document.querySelector('#col-todo .count').textContent === '2'`)
	b.open(second).click("Start").until(refused("The first"))
	b.clickOn(`button[aria-label="Do not wait for The first"]`, "Remove").until(`!(` + has("It cannot start yet") + `)`)

	b.open(third).click("Delete").click("Delete this task").until(at("/board") + " && " + said("Deleted: Third"))
	b.open("/board")
	testkit.True(t, !b.is(has("Third")), "the task is still there")
}

// mailJob has a workflow with an input.
const mailJob = `name: mail
version: 1.0.0
summary: Write to somebody
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows: [{name: write, summary: A letter, steps: [write], inputs: [{name: whom, description: Who reads it}]}]
steps: [{id: write, name: Write, description: The letter, instructions: Write it., inputs: [{name: whom, description: Who reads it}], outputs: {}, reviews: []}]
`

// The board is filtered by what is in its URL, cards are carried with keys and dragged with the mouse, and a task is added
// and started at once. What was typed for a workflow is there again when that is chosen again.
func TestBoard(t *testing.T) {
	_, call, b := open(t, map[string]string{".deepwork/jobs/mail/job.yml": mailJob})
	b.newTask("Plain", "")
	b.open("/board?new=1").until(`document.getElementById('new').matches(':modal')`)
	b.fill("#title", "Urgent").fill("#labels", "web good-first-issue").pick("#priority", "High").pick("#workflow", "mail/write")
	b.fill(`[name="input.whom"]`, "Ada").pick("#workflow", "trip/plan").until(`!document.querySelector('[name="input.whom"]')`)
	b.pick("#workflow", "mail/write").until(`document.querySelector('[name="input.whom"]')?.value === "Ada"`)
	b.pick("#workflow", "trip/plan").until(`document.querySelector('#workflow-inputs') && document.getElementById('new').open`)
	b.check("board-new")
	b.click("Add the task").until(at("/tasks/") + " && " + has("good-first-issue"))
	b.open("/board")
	cards := func(column, want string) {
		t.Helper()
		b.until(fmt.Sprintf(`[...document.querySelectorAll('[data-status=%s] .card > a')].map(a => a.textContent).join() === %q`, column, want))
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
	b.until(`document.activeElement.matches('[data-status=inprogress] .grip') && document.getElementById('moving').textContent === 'Moved to In progress'`)
	b.press(kb.Enter, kb.ArrowRight, kb.Escape) // stays
	b.until(`document.getElementById('moving').textContent === 'Left where it was'`)
	cards("inprogress", "Urgent")
	b.run(`(() => { const drag = (e, kind) => e.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: data})), data = new DataTransfer();
		const card = document.querySelector('[data-status=inprogress] .card'), done = document.querySelector('[data-status=done]');
		drag(card, 'dragstart'); drag(done, 'dragover'); drag(done, 'drop'); drag(card, 'dragend'); })()`)
	cards("done", "Urgent")
	b.until(`document.getElementById('fold-done').open`)

	b.click("New task").fill("#title", "At once").fill("#description", "! echo begun").pick("#executor", "SCRIPT").click("Add and start")
	b.until(at("/attempts/")+" && "+has("At once")+" && "+state("completed"), in(".next", "Set the task done"))
	b.check("attempt-nothing")
	b.click("Set the task done").until(`!document.querySelector('.next').innerText`)
	b.open("/attempts/" + works(t, call, "Two files", "echo 'package main' > a.go; git add -A; git commit -qm work")).click("Review changes")
	b.until(`document.querySelector('.diff .hl-k')?.textContent === 'package' && document.querySelector('h3 .edit').href.startsWith('vscode://file/')`)
	b.open("/board") // times are relative, with the exact time at hand
	b.until(`(() => { const e = document.querySelector('.entry time'); return e && / ago$/.test(e.textContent) && e.title === new Date(e.dateTime).toLocaleString(); })()`)
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
	b.fill("[id^=branch-]", "release").fill("#more", "! echo more of it").click("Start").until(at("/attempts/"))
	b.shows("SCRIPT:LOUD", "ahead of release", "begun", "LOUD")

	b.fill("#prompt", "! echo never").click("Queue").shows("Queued, for when the agent ends")
	b.click("Drop it").until(said("Dropped: ! echo never") + ` && !(` + has("Queued, for when the agent ends") + `)`)
	b.fill("#prompt", "! echo second").click("Queue").shows("Queued, for when the agent ends")
	b.open("/board").until(`document.querySelector('#col-inprogress ~ ul .status.running')`)
	b.open("/").until(in("[aria-labelledby=working]", "Slow work"))
	testkit.Write(t, gate, "")
	b.until(in("[aria-labelledby=needs]", "Slow work"))
	b.open(task).until(`document.querySelector('.entry a[href^="/attempts/"] ~ .status')?.textContent === 'completed'`)
	b.click("SCRIPT:LOUD")
	b.until(at("/attempts/"), `document.querySelectorAll('#runs li').length === 2 && `+has("\nover")+" && "+has("\nmore of it")+" && "+has("\nsecond")+" && "+state("completed"))
	b.fill("#prompt", "! echo third").click("Send")
	b.until(said("goes on with it") + ` && document.querySelectorAll('#runs li').length === 3 && ` + has("\nthird"))
	// One run alone: its messages.
	b.click("3 runs of the agent").clickOn("#runs li:nth-child(2) a", "")
	b.until(`location.search.includes('execution=') && ` + has("of one run") + " && " + has("\nsecond") + " && !(" + has("\nthird") + ")")

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
		id := works(t, call, "Write "+way.file, "echo a > "+way.file+"; git add -A; git commit -qm work; git commit -q --allow-empty -m more")
		b.open("/attempts/" + id).click("Review changes").until(at("/attempts/") + " && location.search === '?tab=changes'")
		b.click("Options").pick("#way", way.option).fill("#message", way.message).click("Merge")
		b.until(said("merged into main"), has("0 ahead of main"))
		subject, parents, _ := strings.Cut(testkit.Git(t, root, "log", "-1", "--format=%s\n%P"), "\n")
		testkit.Equal(t, subject, way.subject, "%s: the commit", way.option)
		testkit.Equal(t, len(strings.Fields(parents)), len(strings.Fields(way.parents)), "%s: its parents", way.option)
		testkit.Works(t, testkit.Get(os.Stat(filepath.Join(root, way.file))).Err(), "%s", way.option)
		testkit.True(t, !b.is(`[...document.querySelectorAll('button')].some(e => e.textContent === 'Merge')`), "%s: it can be merged again", way.option)
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
	b.click("Change the target").fill("[id^=target-]", "release").click("Change").until(has("ahead of release"), said("is now for release"))
}

// resolver is an agent that runs the script of its first prompt and, at a follow-up, resolves a conflict
// with its own side.
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
	b.open("/attempts/" + id + "?tab=changes").click("Undo the merge").until(`!(` + conflict + `) && ` + said("the merge is undone"))

	b.click("Merge").until(conflict)
	b.click("Hand it to the agent")
	b.open("/attempts/" + id)
	b.until(`document.querySelectorAll('#runs li').length === 2 && !(`+conflict+`) && `+state("completed"), has("is being merged into yours"))
	b.click("Review changes").until("location.search === '?tab=changes'")
	b.click("Merge").until(said("merged into main"))
	testkit.Equal(t, string(testkit.Get(os.ReadFile(idea)).Must(t)), "mountains\n", "main")
}
