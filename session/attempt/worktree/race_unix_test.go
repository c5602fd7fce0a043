//go:build unix

package worktree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// An agent that changes the repository's config after it was inspected has no program run.
func TestConfigThatChangesBehindTheInspectionRunsNothing(t *testing.T) {
	repo := newRepo(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	program := at("program")
	testkit.Write(t, program, "#!/bin/sh\necho \"$@\" >> "+at("mark")+"\ncat\n")
	testkit.Must(t, os.Chmod(program, 0o755))
	write(t, repo, ".git/info/attributes", "* filter=late diff=late merge=late\n")
	good := read(t, repo, ".git", "config")
	testkit.Write(t, at("good"), good)
	testkit.Write(t, at("evil"), good+strings.ReplaceAll(`
[filter "late"]
	clean = MARK clean
	smudge = MARK smudge
	required = true
[diff]
	external = MARK external
[diff "late"]
	command = MARK command
	textconv = MARK textconv
[merge "late"]
	driver = MARK merge
[core]
	fsmonitor = MARK fsmonitor
	alternateRefsCommand = MARK refs
	sshCommand = MARK ssh
	editor = MARK editor
	pager = MARK pager
[log]
	showSignature = true
[gpg]
	program = MARK gpg
[hook "late"]
	command = MARK hook
	event = reference-transaction
	event = post-checkout
	event = post-index-change
`, "MARK", program))
	real, err := exec.LookPath("git")
	testkit.Must(t, err)
	testkit.Write(t, at("bin/git"), strings.NewReplacer("REAL", real, "CONFIG", filepath.Join(repo, ".git", "config"), "DIR", dir).Replace(`#!/bin/sh
case " $* " in *" config --list "*) cp DIR/good CONFIG ;; *) cp DIR/evil CONFIG ;; esac
REAL "$@"
code=$?
cp DIR/evil CONFIG
exit $code
`))
	testkit.Must(t, os.Chmod(at("bin/git"), 0o755))
	path := os.Getenv("PATH")
	t.Setenv("PATH", at("bin")+string(filepath.ListSeparator)+path)
	ran := func(when string) bool {
		text, _ := os.ReadFile(at("mark"))
		os.Remove(at("mark"))
		if len(text) > 0 {
			t.Logf("%s: %s", when, text)
		}
		return len(text) > 0
	}

	k, _ := newKeeper(t)
	tree := create(t, k, repo)
	if ran("Create") {
		t.Error("Create ran a program")
	}
	write(t, tree, "a.txt", "one\n2\n")
	write(t, tree, "new.txt", "new\n")
	write(t, tree, "inner/x.txt", "x\n")
	inner := filepath.Join(tree, "inner")
	gitIn(t, inner, "init", "-q")
	commit(t, inner, "inner")
	os.Remove(at("mark"))
	st, err := k.Status(t.Context(), tree, "", "main")
	if ran("Status") || err != nil || strings.Join(st.Changed, " ") != "a.txt inner/x.txt new.txt" {
		t.Errorf("Status: %v, %v", st, err)
	}
	text, _, err := k.Diff(t.Context(), tree, "", "main", nil, 0)
	if ran("Diff") || err != nil || !strings.Contains(text, "+2\n") {
		t.Errorf("Diff: %s, %v", text, err)
	}
	kept := remove(t, k)
	if ran("Remove") || show(t, repo, kept.Commit, "a.txt") != "one\n2\n" {
		t.Error("Remove")
	}
	os.Remove(at("mark"))
	write(t, repo, "a.txt", "other\n")
	if gitIn(t, repo, "status"); !ran("the control") {
		t.Error("what should be noticed is not")
	}
}
