package browser

import (
	"fmt"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// variants are agents that run the script of their prompt; LOUD says so first.
const variants = `executors:
  SCRIPT:
    command: [sh, -c, 'sed -n "s/^! //p" | sh -e']
    variants:
      LOUD:
        command: [sh, -c, 'echo LOUD; sed -n "s/^! //p" | sh -e']
`

// said is an expression: the page says this of the last action.
func said(text string) string {
	return fmt.Sprintf("document.getElementById('notice').innerText.includes(%q)", text)
}

// refused is an expression: the page says this of the action that was refused.
func refused(text string) string {
	return fmt.Sprintf("document.getElementById('alert').innerText.includes(%q)", text)
}

// state is an expression: the status in the heading is this.
func state(status string) string {
	return fmt.Sprintf("document.querySelector('h1 .status')?.textContent === %q", status)
}

// at is an expression: the browser has loaded a page whose path begins so.
func at(path string) string {
	return fmt.Sprintf("location.pathname.startsWith(%q) && document.readyState === 'complete' && typeof walk === 'function'", path)
}

// newTask adds a task with the form of the board, and returns its path.
func (b *tab) newTask(title, description string) (path string) {
	b.t.Helper()
	b.open("/board")
	b.click("New task")
	b.fill("#title", title)
	b.fill("#description", description)
	b.click("Add the task")
	b.until(at("/tasks/") + " && " + has(title))
	return eval[string](b, `location.pathname`)
}

// A task is added, edited, moved and deleted, and waits for others, but not in a circle.
func TestTasks(t *testing.T) {
	s := serve(t, pagetest.Project(t), overHTTP...)
	b := browse(t, s)
	first := b.newTask("First", "What to do")
	if got := eval[string](b, `document.title`); got != "First · "+filepath.Base(s.root)+" · deepwork" {
		t.Errorf("the title is %q", got)
	}
	b.click("Edit")
	b.fill("#title", "The first")
	b.fill("#description", "What to do\nand how")
	b.fill("#workflow", "trip/nowhere")
	b.click("Save")
	b.until(refused("nowhere"))
	b.fill("#workflow", "trip/plan")
	b.click("Save")
	b.until(`document.querySelector('h1').innerText.startsWith('The first') && ` + has("and how") + ` && !!document.querySelector('main a[href="/jobs/trip"]')`)
	b.click("Move")
	b.click("In review")
	b.until(state("in review"))

	second, third := b.newTask("Second", ""), b.newTask("Third", "")
	wait := func(path, on string) {
		b.open(path)
		b.click("Wait for a task")
		b.pick("#depends", on)
		b.click("Add")
	}
	wait(second, "The first")
	b.until(has("It cannot start yet"))
	wait(third, "Second")
	b.until(has("It cannot start yet"))
	wait(first, "Third")
	b.until(refused(`"The first" depends on "Third" depends on "Second"`))
	b.shoot("circle")
	b.open("/board")
	b.until(`[...document.querySelectorAll('#col-todo ~ ul .entry')].some(e => e.innerText.includes('Second') && e.innerText.includes('blocked by The first'))`)
	b.until(`document.querySelector('#col-inreview .count').textContent === '1' && document.querySelector('#col-todo .count').textContent === '2'`)
	b.open(second)
	b.click("Start")
	b.until(refused("The first"))
	b.clickOn(`button[aria-label="Do not wait for The first"]`, "Remove")
	b.until(`!(` + has("It cannot start yet") + `)`)

	b.open(third)
	b.click("Delete")
	b.click("Delete this task")
	b.until(at("/board") + " && " + said("Deleted: Third"))
	b.open("/board")
	b.unseen("Third")
}

// An agent is started with what the form says, stopped, and sent follow-ups, at once and queued.
func TestAgents(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), variants)
	testkit.Git(t, root, "branch", "release")
	s := serve(t, root, overHTTP...)
	b := browse(t, s)
	gate := filepath.Join(testkit.Dir(t), "go")
	waits := "! echo begun; until test -e " + gate + "; do sleep 0.05; done; echo over\n"
	task := b.newTask("Slow work", waits)
	b.pick("#executor", "SCRIPT:LOUD")
	b.fill("[id^=branch-]", "nowhere")
	b.click("Start")
	b.until(refused("nowhere"))
	b.fill("[id^=branch-]", "release")
	b.fill("#more", "! echo more of it")
	b.click("Start")
	b.until(at("/attempts/"))
	b.until(has("SCRIPT:LOUD") + " && " + has("ahead of release") + " && " + has("begun") + " && " + has("LOUD"))

	b.fill("#prompt", "! echo never")
	b.click("Queue")
	b.until(has("Queued, for when the agent ends"))
	b.click("Drop it")
	b.until(said("Dropped: ! echo never") + ` && !(` + has("Queued, for when the agent ends") + `)`)
	b.fill("#prompt", "! echo second")
	b.click("Queue")
	b.until(has("Queued, for when the agent ends"))
	b.open("/board")
	b.until(`document.querySelector('#col-inprogress ~ ul .status.running')`)
	b.open("/")
	b.until(`document.querySelector('[aria-labelledby=working]').innerText.includes('Slow work')`)
	testkit.Write(t, gate, "")
	b.until(`document.querySelector('[aria-labelledby=needs]').innerText.includes('Slow work')`)
	b.open(task)
	b.until(`document.querySelector('.entry a[href^="/attempts/"] ~ .status')?.textContent === 'completed'`)
	b.click("SCRIPT:LOUD")
	b.until(at("/attempts/"))
	b.until(`document.querySelectorAll('#runs li').length === 2 && ` + has("\nover") + " && " + has("\nmore of it") + " && " + has("\nsecond") + " && " + state("completed"))
	b.fill("#prompt", "! echo third")
	b.click("Send")
	b.until(said("goes on with it") + ` && document.querySelectorAll('#runs li').length === 3 && ` + has("\nthird"))
	// One run alone: its messages.
	b.click("3 runs of the agent")
	b.clickOn("#runs li:nth-child(2) a", "")
	b.until(`location.search.includes('execution=') && ` + has("of one run") + " && " + has("\nsecond") + " && !(" + has("\nthird") + ")")

	// From the page of the task; then it is stopped.
	b.open(task)
	b.click("Send a follow-up to the newest")
	b.fill("#prompt", "! echo fourth; sleep 600")
	b.click("Send")
	b.until(at("/attempts/"))
	b.until(has("fourth"))
	b.click("Stop the agent")
	b.until(state("stopped") + ` && !document.querySelector('form[action$="/stop"]')`)
}
