package workflow

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func (p *project) git(args ...string) string {
	p.t.Helper()
	return testkit.Git(p.t, p.root, args...)
}

func TestGitBranchModes(t *testing.T) {
	t.Parallel()
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
		testkit.Need(t, err == nil && r.BeginStep.BranchStatus == want, "%s, %v, want %q", toJSON(t, r), err, want)
		testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &r.BeginStep.SessionID})).Must(t).BeginStep.BranchStatus, want, "get_step")
	}
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: name\n")
	status(machine.BranchOutsideGit)
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: create\n")
	refused(t, testkit.Get(begin()).Err(), session.StateError, "not_a_git_repository", "git init", "git.branch")

	p.git("init", "-q")
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: name\n")
	status(machine.BranchNamed)
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: create\n")
	p.write("tracked.txt", "1")
	p.git("add", "tracked.txt")
	p.git("commit", "-qm", "first")
	for _, want := range []string{"deepwork/alpha-main-i", "deepwork/alpha-main-i-2", "deepwork/alpha-main-i-3"} {
		r, err := begin()
		testkit.Need(t, err == nil && r.BeginStep.BranchName == want && r.BeginStep.BranchStatus == machine.BranchCreated, "create: %s, %v, want %s", toJSON(t, r), err, want)
		p.git("rev-parse", "--verify", "refs/heads/"+want)
	}
	testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), "main", "the branch after create")

	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit:\n  branch: checkout\n") // in effect without a restart
	p.write("tracked.txt", "2")
	p.write("untracked.txt", "never matters")
	_, err := begin()
	refused(t, err, session.StateError, "dirty_tree", "tracked.txt")
	testkit.True(t, !strings.Contains(err.Error(), "untracked"), "an untracked file counts: %v", err)
	p.git("checkout", "-q", "tracked.txt")
	r, err := begin()
	testkit.Need(t, err == nil && r.BeginStep.BranchName == "deepwork/alpha-main-i-4" && r.BeginStep.BranchStatus == machine.BranchCheckedOut, "checkout: %s, %v", toJSON(t, r), err)
	testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), "deepwork/alpha-main-i-4")
	testkit.Equal(t, p.git("rev-parse", "--abbrev-ref", "@{-1}"), "main", "git checkout - goes to")

	p.write(".git/MERGE_HEAD", "x")
	refused(t, testkit.Get(begin()).Err(), session.StateError, "git_failed", "a git merge is in progress", "no session was started")
	testkit.Must(t, os.Remove(filepath.Join(p.root, ".git", "MERGE_HEAD")))
	p.git("branch", "other")
	p.git("update-ref", "refs/heads/deepwork/alpha-main-j/x", "HEAD") // no branch can be above it
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("j")})).Err(), session.StateError, "git_failed", "no session was started")
	testkit.Equal(t, len(testkit.Get(p.open().List(ctx)).Must(t)), 6, "sessions")
}

// Sessions of one name that two servers begin at the same moment get a branch each.
func TestBranchesOfOneName(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	p.git("init", "-q")
	p.git("commit", "-qm", "first", "--allow-empty")
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit: {branch: create}\n")
	const each = 4
	names := make([]string, 2*each)
	var wg sync.WaitGroup
	for i := range names {
		srv := p.open()
		wg.Go(func() {
			r, err := srv.Connect("local").Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("i")})
			if err != nil {
				t.Error(err)
				return
			}
			names[i] = r.BeginStep.BranchName
			testkit.Equal(t, p.record(r.BeginStep.SessionID).BranchName, names[i], "the branch in the record")
		})
	}
	wg.Wait()
	made := strings.Fields(p.git("for-each-ref", "--format=%(refname:short)", "refs/heads/deepwork"))
	slices.Sort(names)
	slices.Sort(made)
	testkit.True(t, slices.Equal(slices.Compact(slices.Clone(names)), made) && len(made) == len(names), "the sessions have the branches %q, and git %q", names, made)
}

// A branch that was not made when its session began, though that is stored, is made by the session's next call
// at any server, and no other session gets its name.
func TestABranchThatIsDue(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"create", "checkout"} {
		t.Run(mode, func(t *testing.T) {
			p := simpleProject(t)
			p.git("init", "-q")
			p.git("commit", "-qm", "first", "--allow-empty")
			p.write(".deepwork/config.yml", "version: \"1.0\"\ngit: {branch: "+mode+"}\n")
			const name = "deepwork/alpha-main-i"
			srv := p.open()
			fails := func() { p.git("update-ref", "refs/heads/"+name+"/x", "HEAD") } // no branch can be above it
			srv.makeFaulty().during.Store(&fails)
			begin := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("i")}
			_, err := srv.Connect("local").Start(ctx, begin)
			refused(t, err, session.StateError, "git_failed", "has begun", name, "get_step")
			var e *session.Error
			errors.As(err, &e)
			id, _ := e.Details["session_id"].(string)
			c := p.open().Connect("local")
			refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`))).Err(), session.StateError, "git_failed", "has begun", name)

			p.git("update-ref", "-d", "refs/heads/"+name+"/x")
			other, err := p.open().Connect("local").Start(ctx, begin)
			testkit.Need(t, err == nil && other.BeginStep.BranchName == name+"-2", "another session: %s, %v, want branch %s-2", toJSON(t, other), err, name)
			if r, err := c.Step(ctx, StepArgs{SessionID: &id}); err != nil || r.BeginStep.BranchName != name {
				t.Fatalf("get_step: %s, %v", toJSON(t, r), err)
			}
			p.git("rev-parse", "--verify", "refs/heads/"+name)
			want := "main"
			if mode == "checkout" {
				want = name
			}
			testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), want)

			// Once a transition has recorded that it was made, it is the user's.
			p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
			s := p.record(id)
			testkit.True(t, !s.BranchDue, "the record says that the branch is due")
			p.git("checkout", "-q", "-B", "main")
			p.git("branch", "-D", name)
			if _, err := p.open().Connect("local").Step(ctx, StepArgs{SessionID: &id}); err != nil || p.git("branch", "--list", name) != "" {
				t.Errorf("a branch that the user deleted was made again: %v", err)
			}
		})
	}
}
