package workflow

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func TestBranchNamesAreLegalRefs(t *testing.T) {
	at := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	for instance, want := range map[string]string{
		"": "2026-03-04", "acme": "acme", "q1-2026": "q1-2026", "a b\tc": "a-b-c", "..": "2026-03-04",
		"x..y": "x.y", "x.lock": "x", "x.lock.lock": "x", "-x-": "x", "a~^:?*[\\b": "a-b", "@{": "2026-03-04",
		"größe": "größe", "a/b": "a-b", ".lock": "lock", strings.Repeat("x", 300): strings.Repeat("x", 101), "\x00\xff": "2026-03-04",
	} {
		got := branchName("job", "flow", &instance, at)
		if got != "deepwork/job-flow-"+want {
			t.Errorf("%q gives %q, want …%q", instance, got, want)
		}
		if err := exec.Command("git", "check-ref-format", "--branch", got).Run(); err != nil {
			t.Errorf("git does not take %q", got)
		}
	}
	if got := branchName("job", "flow", nil, at); got != "deepwork/job-flow-2026-03-04" {
		t.Error(got)
	}
}

func FuzzBranchName(f *testing.F) {
	f.Add("a/..b.lock")
	f.Fuzz(func(t *testing.T, s string) {
		got := refPart(s)
		for _, bad := range []string{"..", "/", " ", "~", "^", ":", "?", "*", "[", "\\", "@{", "\x7f"} {
			if strings.Contains(got, bad) {
				t.Errorf("%q gives %q, which has %q", s, got, bad)
			}
		}
		if strings.HasPrefix(got, ".") || strings.HasSuffix(got, ".") || strings.HasSuffix(got, ".lock") || strings.HasPrefix(got, "-") {
			t.Errorf("%q gives %q", s, got)
		}
	})
}

func (p *project) git(args ...string) string {
	p.t.Helper()
	return testkit.Git(p.t, p.root, args...)
}

func TestGitBranchModes(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: create\n")
	c := p.open().Connect("local")
	begin := func() (*machine.StartReply, error) {
		return c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("i")})
	}
	// branch_status says what to do with the name; get_step says the same.
	status := func(want machine.BranchStatus) {
		t.Helper()
		r, err := begin()
		if err != nil || r.BeginStep.BranchStatus != want {
			t.Fatalf("%s, %v, want %q", toJSON(t, r), err, want)
		}
		if step, err := c.Step(ctx, StepArgs{SessionID: &r.BeginStep.SessionID}); err != nil || step.BeginStep.BranchStatus != want {
			t.Errorf("get_step %s, %v, want %q", toJSON(t, step), err, want)
		}
	}
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: name\n")
	status(machine.BranchOutsideGit)
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: create\n")
	_, err := begin()
	refused(t, err, session.StateError, "not_a_git_repository", "git init", "git.branch")

	p.git("init", "-q")
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: name\n")
	status(machine.BranchNamed)
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: create\n")
	p.write("tracked.txt", "1")
	p.git("add", "tracked.txt")
	p.git("commit", "-qm", "first")
	for _, want := range []string{"deepwork/alpha-main-i", "deepwork/alpha-main-i-2", "deepwork/alpha-main-i-3"} {
		r, err := begin()
		if err != nil || r.BeginStep.BranchName != want || r.BeginStep.BranchStatus != machine.BranchCreated {
			t.Fatalf("create: %s, %v, want %s", toJSON(t, r), err, want)
		}
		p.git("rev-parse", "--verify", "refs/heads/"+want)
	}
	if head := p.git("symbolic-ref", "--short", "HEAD"); head != "main" {
		t.Errorf("create switched to %s", head)
	}

	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: checkout\n") // in effect without a restart
	p.write("tracked.txt", "2")
	p.write("untracked.txt", "never matters")
	_, err = begin()
	refused(t, err, session.StateError, "dirty_tree", "tracked.txt")
	if strings.Contains(err.Error(), "untracked") {
		t.Errorf("an untracked file counts: %v", err)
	}
	p.git("checkout", "-q", "tracked.txt")
	r, err := begin()
	if err != nil || r.BeginStep.BranchName != "deepwork/alpha-main-i-4" || r.BeginStep.BranchStatus != machine.BranchCheckedOut {
		t.Fatalf("checkout: %s, %v", toJSON(t, r), err)
	}
	if head := p.git("symbolic-ref", "--short", "HEAD"); head != "deepwork/alpha-main-i-4" {
		t.Errorf("on %s", head)
	}
	if before := p.git("rev-parse", "--abbrev-ref", "@{-1}"); before != "main" {
		t.Errorf("git checkout - goes to %s", before)
	}

	// A session that cannot be recorded leaves no branch behind.
	if os.Getuid() == 0 {
		t.Log("as root nothing is read-only: the rest is shown by TestAFullDiskRefusesAndMovesNothing")
		return
	}
	testkit.Must(t, os.Chmod(filepath.Join(p.state().Tmp()), 0o500))
	defer os.Chmod(p.state().Tmp(), 0o700)
	if _, err = begin(); err == nil {
		t.Fatal("recorded in a read-only folder")
	}
	if out := p.git("branch", "--list", "deepwork/alpha-main-i-5"); out != "" {
		t.Errorf("left behind %s", out)
	}
}
