package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// resolver is an agent that runs the script of its first prompt and, at a follow-up, resolves a conflict
// with its own side.
const resolver = `executors:
  SCRIPT:
    command: [sh, -c, 'sed -n "s/^! //p" | sh -e']
    resume: [sh, -c, 'cat; git checkout -q --ours . && git add -A && git commit -qm resolved']
`

// works starts an agent that runs a script, and waits for its end.
func (s *server) works(call pagetest.Call, title, script string) (attempt string) {
	s.t.Helper()
	_, attempt = call.Script(title, "! "+strings.ReplaceAll(script, "; ", "\n! ")+"\n")
	call.Await(s.t, attempt, "completed", "failed")
	return attempt
}

// Merge in each way, with a message, then rebase and push to a real remote.
func TestMerge(t *testing.T) {
	root := pagetest.Project(t)
	origin := testkit.Dir(t)
	testkit.Git(t, origin, "init", "-q", "--bare", "-b", "main")
	testkit.Git(t, root, "remote", "add", "origin", origin)
	s := serve(t, root, overHTTP...)
	call := pagetest.Connect(t, s.url, "")
	b := browse(t, s)
	for _, way := range []struct{ file, option, message, subject, parents string }{
		{"one.txt", "merge commit", "Add one\n", "Add one", "2"},
		{"two.txt", "one commit", "Add two", "Add two", "1"},
		{"three.txt", "its commits, rebased", "", "work", "1"},
	} {
		id := s.works(call, "Write "+way.file, "echo a > "+way.file+"; git add -A; git commit -qm work; git commit -q --allow-empty -m more")
		b.open("/attempts/" + id)
		b.pick("#way", way.option)
		b.fill("#message", strings.TrimSpace(way.message))
		b.click("Merge")
		b.until(said("merged into main"))
		b.until(has("0 ahead of main"))
		if got := testkit.Git(t, root, "log", "-1", "--format=%s", "--", way.file); way.parents == "1" && strings.TrimSpace(got) != way.subject {
			t.Errorf("%s: the commit is %q", way.option, got)
		}
		if got := testkit.Git(t, root, "log", "-1", "--format=%s %P"); way.parents == "2" && (!strings.HasPrefix(got, way.subject) || len(strings.Fields(got)) != 4) {
			t.Errorf("%s: the commit is %q", way.option, got)
		}
		if _, err := os.Stat(filepath.Join(root, way.file)); err != nil {
			t.Errorf("%s: %v", way.option, err)
		}
		if b.is(`[...document.querySelectorAll('button')].some(e => e.textContent === 'Merge')`) {
			t.Errorf("%s: it can be merged again", way.option)
		}
	}

	id := s.works(call, "Push it", "echo a > four.txt; git add -A; git commit -qm four")
	b.open("/attempts/" + id)
	b.click("Push to a remote")
	b.click("Push")
	b.until(said("pushed"))
	branch := strings.TrimSpace(testkit.Git(t, origin, "branch", "--format=%(refname:short)"))
	if !b.is(has(branch)) || branch == "" {
		t.Errorf("pushed to %q", branch)
	}

	// The target moves on: the branch is rebased, and what is at the remote must be replaced.
	testkit.Write(t, filepath.Join(root, "five.txt"), "five")
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-qm", "five")
	b.open("/attempts/" + id)
	b.until(has("1 behind"))
	b.click("Rebase")
	b.until(said("rebased on main"))
	b.until(has("0 behind"))
	b.click("Push to a remote")
	b.click("Push")
	b.until(`document.querySelector('#alert .alert')`)
	b.shoot("not-pushed")
	b.clickOn("[name=force]", "")
	b.click("Push")
	b.until(`document.getElementById('notice').innerText.includes('pushed') && !document.querySelector('#alert .alert')`)
	if got := testkit.Git(t, origin, "log", "--format=%s", branch); !strings.HasPrefix(got, "four\nfive\n") {
		t.Errorf("the remote has\n%s", got)
	}

	// Another target.
	testkit.Git(t, root, "branch", "release")
	b.click("Change the target")
	b.fill("[id^=target-]", "release")
	b.click("Change")
	b.until(has("ahead of release"))
	b.until(said("is now for release"))
}

// A conflict is shown with its files, undone, met again and handed to the agent, who resolves it.
func TestConflict(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), resolver)
	s := serve(t, root, overHTTP...)
	call := pagetest.Connect(t, s.url, "")
	id := s.works(call, "Another idea", "echo mountains > idea.txt; git add -A; git commit -qm mountains")
	testkit.Write(t, filepath.Join(root, "idea.txt"), "woods\n")
	testkit.Git(t, root, "commit", "-aqm", "woods")
	b := browse(t, s)
	b.open("/attempts/" + id)
	conflict := `document.querySelector('section[aria-label="Merge in progress"]')?.innerText.includes('idea.txt')`
	b.click("Merge")
	b.until(conflict)
	b.until(said("has conflicts with main"))
	b.check("conflict")
	b.open("/attempts/" + id)
	b.click("Undo the merge")
	b.until(`!(` + conflict + `) && document.getElementById('notice').innerText.includes('the merge is undone')`)

	b.click("Merge")
	b.until(conflict)
	b.click("Hand it to the agent")
	b.until(`document.querySelectorAll('#runs li').length === 2 && !(` + conflict + `) && document.querySelector('h1 .status').textContent === 'completed'`)
	b.until(has("is being merged into yours"))
	b.click("Merge")
	b.until(said("merged into main"))
	if text, err := os.ReadFile(filepath.Join(root, "idea.txt")); err != nil || string(text) != "mountains\n" {
		t.Errorf("main has %q, %v", text, err)
	}
}
