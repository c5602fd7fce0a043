package attempt

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/state"
)

// newVictim makes a folder outside with a file, and returns what checks it.
func newVictim(t *testing.T) (dir string, untouched func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "home")
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "profile"), []byte("mine\n"), 0o644))
	return dir, func() {
		t.Helper()
		testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(dir, "profile"))).Must(t)), "mine\n", "outside")
		testkit.Equal(t, len(testkit.Get(os.ReadDir(dir)).Must(t)), 2, "files outside")
	}
}

// A row of the board that has a workspace elsewhere runs no agent there, and removes nothing.
func TestBoardOfAWorkspaceElsewhere(t *testing.T) {
	p, first := opened(t)
	r := first.ran("! say hello")
	home, untouched := newVictim(t)
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	elsewhere := filepath.Join(home, r.AttemptID, "shop")
	for _, sql := range []string{
		"UPDATE attempts SET workspace = " + quoted(home),
		"UPDATE attempts SET workspace = " + quoted(elsewhere) + "; UPDATE attempt_repos SET worktree = " + quoted(elsewhere),
	} {
		p.sql(sql)
		if strings.Contains(sql, "attempt_repos") {
			must(t, os.MkdirAll(filepath.Join(elsewhere, ".git"), 0o755))
		}
		first.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! write planted.txt x")})
		now := first.ends(r.AttemptID)
		testkit.Equal(t, now.State, "failed")
		testkit.Contains(t, deref(now.Error), "Checking the workspace failed")
	}
	testkit.True(t, !Exists(filepath.Join(elsewhere, "planted.txt")) && !Exists(filepath.Join(home, "planted.txt")), "an agent ran outside")
	testkit.Fails(t, testkit.Get(first.DeleteTask(ctx, me, DeleteArgs{TaskID: first.get(r.AttemptID).TaskID})).Err(), "", "a worktree without a journal was removed")
	testkit.True(t, Exists(filepath.Join(elsewhere, ".git")), "a folder outside is gone")
	must(t, os.RemoveAll(filepath.Join(home, r.AttemptID)))
	untouched()
}

// In a folder of worktrees in the project nothing is used that stood there before, and no link is followed.
func TestPreparedFolderOfWorktrees(t *testing.T) {
	for _, at := range []string{".deepwork", ".deepwork/worktrees", ""} {
		t.Run(strings.ReplaceAll(at, "/", "_"), func(t *testing.T) {
			p := newProject(t)
			home, untouched := newVictim(t)
			dir := filepath.Join(p.Root, ".deepwork", "worktrees")
			p.Configure(func(c *config.Config) { c.Attempts.Worktrees = ".deepwork/worktrees" })
			if at != "" {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(p.Root, at)), 0o755))
				link(t, home, filepath.Join(p.Root, filepath.FromSlash(at)))
			} else { // a journal that has a removal go on, of a folder outside
				testkit.Write(t, filepath.Join(dir, ".journal", nobody+".json"), `{"version":2,"attempt":"`+nobody+`","branch":"b","phase":"creating","trees":[{"repo_id":"r","name":"web","repo":"`+
					p.Root+`","target_branch":"main","git_dir":"`+p.Root+`/.git","path":"`+home+`","branch":"b","base":"","begun":true}]}`)
				must(t, os.Symlink(home, filepath.Join(dir, nobody)))
				must(t, os.Symlink(home, filepath.Join(dir, nobody+".removing")))
			}
			s := p.open(func(o *Options) { o.Logger = nil })
			v := s.newTask("! write a.txt x")
			r := s.ends(s.begin(v).AttemptID)
			testkit.True(t, (r.State == "completed") == (at == "") && (at == "" || strings.Contains(deref(r.Error), "was not made by deepwork")), "%+v: %s", r, deref(r.Error))
			_, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
			testkit.True(t, (err == nil) == (at == ""), "deleted: %v", err)
			s.stop()
			p.inspect()
			untouched()
		})
	}
}

// An execution whose files are links outside reads, writes and runs nothing there.
func TestLogsThatAreLinks(t *testing.T) {
	p := newProject(t)
	home, untouched := newVictim(t)
	s := p.open()
	r := s.ran("! say hello")
	log := filepath.Join(s.records(r.AttemptID), "log")
	must(t, os.RemoveAll(log))
	link(t, home, log)
	testkit.Fails(t, testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID)})).Err(), "not a folder that deepwork made")
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say again")})
	now := s.ends(r.AttemptID)
	testkit.True(t, now.State == "failed" && strings.Contains(deref(now.Error), "not a folder that deepwork made"), "%+v: %s", now, deref(now.Error))
	l := local{runner.Runner{Shim: []string{os.Args[0], runner.ShimCommand}}, s.State().Logs()}
	for _, id := range []string{"..", "../../x", "a/b", home} {
		testkit.Fails(t, l.Remove(id), "", "%s was removed", id)
		testkit.Fails(t, testkit.Get(l.Find(ctx, nobody, id)).Err(), "", "%s was looked at", id)
	}
	untouched()
}

// The state of servers in a workspace goes with it.
func TestStateOfAWorkspaceIsRemoved(t *testing.T) {
	s := newProject(t).open()
	r := s.ran("! say hello")
	f := testkit.Get(state.Find(r.Repos[0].WorktreePath)).Must(t)
	must(t, f.Make())
	testkit.Need(t, f.Dir != s.State().Dir && Exists(f.Dir), "%v", f.Dir)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: r.TaskID})).Must(t)
	testkit.True(t, !Exists(f.Dir) && Exists(s.State().Dir), "%s is there: %v; the project's: %v", f.Dir, Exists(f.Dir), Exists(s.State().Dir))
}

// A branch's own setup program is not the one that was approved.
func TestSetupOfABranchIsNotTheApprovedOne(t *testing.T) {
	p := newProject(t)
	must(t, os.Mkdir(filepath.Join(p.Root, "tools"), 0o755))
	script := filepath.Join(p.Root, "tools", "setup.sh")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(script, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		p.Git(p.Root, "add", ".")
		p.Git(p.Root, "commit", "-q", "-m", "setup")
	}
	write("exit 0")
	p.Git(p.Root, "branch", "good")
	mark := filepath.Join(p.Root, "..", "planted")
	p.Git(p.Root, "checkout", "-q", "-b", "evil")
	write("touch " + mark)
	p.Git(p.Root, "checkout", "-q", "main")
	p.Configure(func(c *config.Config) {
		c.Attempts.Setup = []string{"tools/setup.sh"}
		files := map[string]string{}
		for _, e := range testkit.Get(trust.SetOf(p.Root, c)).Must(t) {
			maps.Copy(files, e.Files)
		}
		c.Approval = &config.Approval{Use: c, Files: []map[string]string{files}}
	})
	s := p.open()
	for branch, want := range map[string]task.AttemptState{"good": task.Completed, "evil": task.Failed} {
		r := s.ends(s.begin(s.newTask("! say hello"), func(a *StartArgs) { a.Repos[0].TargetBranch = branch }).AttemptID)
		testkit.True(t, r.State == board.ExecutionState(want) && (want != task.Failed || strings.Contains(deref(r.Error), "deepwork trust")), "%s: %+v, %s", branch, r, deref(r.Error))
	}
	testkit.True(t, !Exists(mark), "the program of the branch ran")
}

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
