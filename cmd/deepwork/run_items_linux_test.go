package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// isolatedJob is a job whose items have worktrees of their own.
func isolatedJob(more string) string {
	return runJob("NAME", "list, {for_each: text, steps: [port, look], isolation: worktree"+more+"}, last",
		"list", "port outputs: {code: {type: file, description: C}}", "look outputs: {}", "last outputs: {}")
}

// items has the agents of items write a file each, and the same line of one that they share.
func (p *runProject) items(n int) {
	for i := range n {
		step := fmt.Sprintf("port[%d]", i)
		p.also(fmt.Sprintf("%s write out%d x", step, i), fmt.Sprintf("%s write same %d", step, i), fmt.Sprintf(`%s call finished_step {"outputs":{"code":"out%d"}}`, step, i))
	}
}

// merged are the merges of the run's branch, the oldest first, and a file in it.
func (p *runProject) merged(file string) (merges []string, text string) {
	p.t.Helper()
	branch := *p.status().Branch
	for line := range strings.Lines(testkit.Git(p.t, p.root, "log", "--reverse", "--first-parent", "--merges", "--format=%s", branch)) {
		merges = append(merges, strings.TrimSpace(line))
	}
	testkit.Equal(p.t, testkit.Git(p.t, p.root, "branch", "--list", branch+"-*"), "", "branches of items are left")
	return merges, testkit.Git(p.t, p.root, "show", branch+":"+file)
}

// Each item of a run is done in a worktree of its own, and merged in the order of the items; an agent resolves a
// conflict, and what agents have not committed is not lost.
func TestRunItemsInWorktrees(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "attempts: {max_concurrent: 8}\n", isolatedJob("")).inGit()
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[0] await second", "port[1] touch second", "port[2] write alone x",
		"merge:port[1] run cat same", "merge:port[1] write same both", "merge:port[1] run git commit -qam resolved", "merge:port[2] write same all", "merge:port[2] run git add same")
	p.items(3)
	p.begin().exits(0)
	merges, text := p.merged("same")
	testkit.True(t, len(merges) == 3 && strings.TrimSpace(text) == "all", "%q: %q", merges, text)
	files := testkit.Git(t, p.root, "ls-tree", "-r", "--name-only", *p.status().Branch)
	testkit.True(t, !strings.Contains(files, ".deepwork/tmp") && strings.Contains(files, "alone"), "the branch has the files:\n%s", files)
	folders := map[string]bool{}
	for i := range 3 {
		port, look := p.recorded("begin", fmt.Sprintf("port[%d]", i)), p.recorded("begin", fmt.Sprintf("look[%d]", i))
		folders[port[0].Folder] = true
		testkit.Equal(t, look[0].Folder, port[0].Folder)
		testkit.Contains(t, port[0].Prompt, `"project_root": "`+port[0].Folder+`"`)
	}
	last := p.recorded("begin", "last")[0]
	testkit.True(t, !folders[last.Folder] && len(folders) == 3, "the items were done in %v, and the last step in %s", folders, last.Folder)
	got := p.recorded("run", "merge:port[1]")
	testkit.True(t, strings.Contains(got[0].Text, "<<<<<<<"), "%+v", got)
	n := len(p.recorded("begin", "merge:port[0]"))
	testkit.True(t, n <= 0, "%d agents were started for a merge without conflicts", n)
	p.clean()
}

// Leaders that are killed while items are made, done and merged leave nothing that the next one does not find: each
// item is done and merged once.
func TestRunItemsLeaderKilled(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 8}\n", isolatedJob(", at_once: 2")).inGit()
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[1]:1 touch begun", "port[1]:1 write same lost", "port[1]:1 await never", "last:1 touch last", "last:1 await never",
		"merge:port[1]:1 touch conflict", "merge:port[1]:1 await never")
	for i := 1; i < 3; i++ {
		p.also(fmt.Sprintf("merge:port[%d] write same %d", i, i), fmt.Sprintf("merge:port[%d] run git add same", i))
	}
	p.items(3)
	r := p.begin()
	for _, sign := range []string{"begun", "conflict", "last"} {
		p.appears(sign)
		must(t, r.cmd.Process.Kill())
		_ = r.cmd.Wait()
		r = p.resume()
	}
	r.exits(0)
	// An agent whose reply was lost with the leader calls again, so calls are not counted: an item that is finished twice
	// would be merged twice.
	merges, text := p.merged("same")
	testkit.True(t, len(merges) == 3 && strings.TrimSpace(text) == "2", "%q: %q", merges, text)
	p.clean()
}

// A conflict that no agent resolves stops the run, which says where; a person resolves it there. The items behind it
// wait. The worktree of an item that a person drops goes with the rest, and its commits stay.
func TestRunItemsForAPerson(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 8}\n", isolatedJob("")).inGit()
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[0] await second", "port[1] touch second", "port[2] exit 3", "merge:port[1]:1 exit 0")
	p.items(2)
	end := p.begin().exits(1)
	reason := *end[len(end)-1].Reason
	testkit.Contains(t, reason, "there are conflicts")
	folder := p.recorded("begin", "port[1]")[0].Folder
	testkit.Contains(t, reason, folder)
	testkit.Git(t, folder, "checkout", "-q", "--ours", "same")
	testkit.Git(t, folder, "commit", "-qam", "mine")
	self := testkit.Get(exec.LookPath("deepwork")).Must(t)
	out, screen, err := typing(t, "yes", self, "sessions", "drop", *p.status().SessionID, "port[2]", "--reason", "obsolete", "--path", p.root)
	testkit.Need(t, err == nil, "%v: %s%s", err, out, screen)
	p.resume().exits(0)
	merges, text := p.merged("same")
	testkit.True(t, len(merges) == 2 && strings.TrimSpace(text) == "1", "%q: %q", merges, text)
	p.clean()
}
