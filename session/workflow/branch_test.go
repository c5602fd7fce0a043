package workflow

import (
	"errors"
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

// branching sets the mode of branches, which is in effect without a restart.
func (p *project) branching(mode string) {
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit: {branch: "+mode+"}\n")
}

func TestGitBranchModes(t *testing.T) {
	p := simpleProject(t)
	p.branching("create")
	c := p.open().Connect("local")
	begin := func(instance string) (*machine.StartReply, error) {
		return c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: &instance})
	}
	// branch_status says what to do with the name; get_step says the same.
	status := func(want machine.BranchStatus) {
		t.Helper()
		b := testkit.Get(begin("i")).Must(t).BeginStep
		testkit.Equal(t, b.BranchStatus, want)
		testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &b.SessionID})).Must(t).BeginStep.BranchStatus, want, "get_step")
	}
	p.branching("name")
	status(machine.BranchOutsideGit)
	p.branching("create")
	refused(t, errOf(begin("i")), session.StateError, "not_a_git_repository", "git init", "git.branch")
	p.git("init", "-q")
	p.branching("name")
	status(machine.BranchNamed)
	p.branching("create")
	p.write("tracked.txt", "1")
	p.git("add", "tracked.txt")
	p.git("commit", "-qm", "first")
	for _, want := range []string{"deepwork/alpha-main-i", "deepwork/alpha-main-i-2", "deepwork/alpha-main-i-3"} {
		b := testkit.Get(begin("i")).Must(t).BeginStep
		testkit.True(t, b.BranchName == want && b.BranchStatus == machine.BranchCreated, "create: %s, want %s", toJSON(t, b), want)
		p.git("rev-parse", "--verify", "refs/heads/"+want)
	}
	testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), "main", "the branch after create")
	p.branching("checkout")
	p.write("tracked.txt", "2")
	p.write("untracked.txt", "never matters")
	err := errOf(begin("i"))
	refused(t, err, session.StateError, "dirty_tree", "tracked.txt")
	testkit.True(t, !strings.Contains(err.Error(), "untracked"), "an untracked file counts: %v", err)
	p.git("checkout", "-q", "tracked.txt")
	b := testkit.Get(begin("i")).Must(t).BeginStep
	testkit.True(t, b.BranchName == "deepwork/alpha-main-i-4" && b.BranchStatus == machine.BranchCheckedOut, "checkout: %s", toJSON(t, b))
	testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), "deepwork/alpha-main-i-4")
	testkit.Equal(t, p.git("rev-parse", "--abbrev-ref", "@{-1}"), "main", "git checkout - goes to")
	p.git("update-ref", "refs/heads/deepwork/alpha-main-j/x", "HEAD") // no branch can be above it
	refused(t, errOf(begin("j")), session.StateError, "git_failed", "no session was started")
	testkit.Equal(t, len(testkit.Get(p.open().List(ctx)).Must(t)), 6, "sessions")
}

// Sessions of one name that two servers begin at the same moment get a branch each.
func TestBranchesOfOneName(t *testing.T) {
	p := simpleProject(t)
	p.git("init", "-q")
	p.git("commit", "-qm", "first", "--allow-empty")
	p.branching("create")
	names := make([]string, 8)
	var wg sync.WaitGroup
	for i := range names {
		srv := p.open()
		wg.Go(func() {
			r, err := srv.Connect("local").Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("i")})
			testkit.Works(t, err)
			names[i] = p.record(r.BeginStep.SessionID).BranchName
			testkit.Equal(t, r.BeginStep.BranchName, names[i], "the branch in the record")
		})
	}
	wg.Wait()
	made := strings.Fields(p.git("for-each-ref", "--format=%(refname:short)", "refs/heads/deepwork"))
	slices.Sort(names)
	slices.Sort(made)
	testkit.Same(t, names, made, "the branches of the sessions")
	testkit.Equal(t, len(slices.Compact(made)), 8, "branches")
}

// A branch that was not made when its session began, though that is stored, is made by the session's next call
// at any server, and no other session gets its name.
func TestABranchThatIsDue(t *testing.T) {
	for _, mode := range []string{"create", "checkout"} {
		t.Run(mode, func(t *testing.T) {
			p := simpleProject(t)
			p.git("init", "-q")
			p.git("commit", "-qm", "first", "--allow-empty")
			p.branching(mode)
			const name = "deepwork/alpha-main-i"
			srv := p.open()
			fails := func() { p.git("update-ref", "refs/heads/"+name+"/x", "HEAD") } // no branch can be above it
			srv.makeFaulty().during.Store(&fails)
			begin := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("i")}
			err := errOf(srv.Connect("local").Start(ctx, begin))
			refused(t, err, session.StateError, "git_failed", "has begun", name, "get_step")
			e, _ := errors.AsType[*session.Error](err)
			id, _ := e.Details["session_id"].(string)
			c := p.open().Connect("local")
			call := `{"outputs":{"report":"r.md"},"session_id":"` + id + `"}`
			refused(t, refusal(t, c, call), session.StateError, "git_failed", "has begun", name)
			p.git("update-ref", "-d", "refs/heads/"+name+"/x")
			testkit.Equal(t, testkit.Get(p.open().Connect("local").Start(ctx, begin)).Must(t).BeginStep.BranchName, name+"-2", "another session")
			testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.BranchName, name, "get_step")
			p.git("rev-parse", "--verify", "refs/heads/"+name)
			testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), map[string]string{"create": "main", "checkout": name}[mode])
			// Once a transition has recorded that it was made, it is the user's.
			p.finish(c, call)
			testkit.True(t, !p.record(id).BranchDue, "the record says that the branch is due")
			p.git("checkout", "-q", "-B", "main")
			p.git("branch", "-D", name)
			testkit.Must(t, errOf(p.open().Connect("local").Step(ctx, StepArgs{SessionID: &id})))
			testkit.Equal(t, p.git("branch", "--list", name), "", "a branch that the user deleted was made again")
		})
	}
}
