package attempt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// An attempt of a project in a folder of its repository works in that folder of its worktree, also if its
// branch lacks the folder, and copy and setup are relative to it.
func TestField09_ProjectInAFolderOfItsRepository(t *testing.T) {
	p := newProject(t)
	top := p.Root
	p.Git(top, "branch", "without")
	p.Root = filepath.Join(top, "packages", "app")
	for name, text := range map[string]string{".gitignore": ".env\n", ".env": "SECRET=1\n", "app.txt": "app\n"} {
		testkit.Write(t, filepath.Join(p.Root, name), text)
	}
	p.Git(top, "add", ".")
	p.Git(top, "commit", "-q", "-m", "app")
	p.Configure(func(c *config.Config) {
		c.Attempts.Copy, c.Attempts.Setup = []string{".env"}, []string{"git", "config", "-f", "setup.txt", "made.by", "setup"}
	})
	s := p.open()
	for _, branch := range []string{"main", "without"} {
		v := s.newTask("! pwd", "! write work.txt done", "! commit work", "! exit 0")
		r := s.ends(s.begin(v, func(a *StartArgs) { a.Repos[0].TargetBranch = branch }).AttemptID)
		testkit.Need(t, r.State == "completed", "%s: %s, %s", branch, r.State, deref(r.Error))
		dir := filepath.Join(r.Repos[0].WorktreePath, "packages", "app")
		testkit.Contains(t, s.output(r.AttemptID)+"\n", "pwd "+dir+"\n", "%s: the agent worked elsewhere", branch)
		for _, name := range []string{".env", "setup.txt", "work.txt"} {
			testkit.Works(t, testkit.Get(os.Stat(filepath.Join(dir, name))).Err(), "%s", branch)
		}
		got := strings.Join(r.Repos[0].ChangedFiles, " ")
		testkit.True(t, strings.Contains(got, "packages/app/work.txt") && strings.Contains(got, ".env") != (branch == "main"), "%s: changed %s", branch, got)
	}
	testkit.Equal(t, p.Git(top, "status", "--porcelain"), "", "the user's checkout")
}

// A branch named deepwork is in the way of the branches of attempts, unless another prefix is set.
func TestField07_BranchPrefix(t *testing.T) {
	p := newProject(t)
	p.Git(p.Root, "branch", "deepwork")
	s := p.open()
	v := s.newTask("! write a.txt a", "! commit a", "! exit 0")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, s.starting(v))).Err(), session.StateError, codes.NoBranchLeft, "branch -m deepwork NEW-NAME", "attempts.branch_prefix")
	p.Configure(func(c *config.Config) { c.Attempts.BranchPrefix = "agents/by-" })
	r := s.ends(s.begin(v).AttemptID)
	testkit.True(t, r.State == "completed" && strings.HasPrefix(r.WorkspaceBranch, "agents/by-add-a-basket-") && r.Repos[0].Ahead == 1, "%s on %s: %s", r.State, r.WorkspaceBranch, deref(r.Error))
}

// An attempt says that its worktree is on another branch, and the removal of its task that this branch stays.
func TestField04_AWorktreeOnAnotherBranch(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! exit 0")
	r := s.ends(s.begin(v).AttemptID)
	path := r.Repos[0].WorktreePath
	p.Git(path, "checkout", "-q", "-b", "mine")
	p.Git(path, "commit", "-q", "--allow-empty", "-m", "the work")
	r = s.get(r.AttemptID)
	testkit.True(t, r.Repos[0].Ahead == 1 && strings.Contains(deref(r.Notice), "is on the branch mine, not on the attempt's branch "+r.WorkspaceBranch), "ahead %d, notice %q", r.Repos[0].Ahead, deref(r.Notice))
	testkit.Contains(t, deref(testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t).Notice), "on the branch mine, which stays")
	testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", "mine"), "the work")
	v = s.newTask("! exit 0")
	p.Git(s.ends(s.begin(v).AttemptID).Repos[0].WorktreePath, "checkout", "-q", "--orphan", "unborn")
	gone := testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	testkit.True(t, !strings.Contains(deref(gone.Notice), "unborn"), "a branch that does not exist stays: %+v", gone)
}

// goneLeader is the id of a process that does not run.
const goneLeader = "00112233aabbccdd"

// A run whose leader was killed before its workflow began is to be resumed: another one would be led beside it.
func TestARunWhoseLeaderWasKilledBeforeItBegan(t *testing.T) {
	p, s := opened(t, passive)
	id := s.startRun(false).RunID
	p.sql("UPDATE attempts SET state = 'starting'; UPDATE executions SET state = 'starting', owner = '" + goneLeader + "'")
	run := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: id})).Must(t)
	testkit.True(t, run.State == board.Interrupted && run.Began, "it is %s, and can be resumed: %v", run.State, run.Began)
	items := testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items
	testkit.True(t, len(items) == 1 && items[0].Kind == board.AttentionRun && items[0].Command == "deepwork run resume "+board.Short(id), "needs attention: %+v", items)
}
