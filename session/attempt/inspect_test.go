package attempt

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
	files "deepwork/session/store/local"
)

// inspectAt inspects the board in a state folder.
func (p *project) inspectAt(ctx context.Context, f *state.Folder) (session.Report, error) {
	stores := p.Stores()
	if stores == nil {
		stores = files.Stores(f, true, nil)
	}
	defer stores.Close(ctx)
	return Inspect(ctx, f, stores, p.Config.Load(), slog.New(slog.DiscardHandler))
}

// inspect returns what an inspection of the project has to say, a line each; notes begin with "note: ".
func (p *project) inspect() []string {
	p.T.Helper()
	r, lines := testkit.Get(p.inspectAt(ctx, state.Of(p.Root))).Must(p.T), []string{}
	for _, f := range r.Findings {
		lines = append(lines, map[bool]string{true: "note: "}[f.Note]+f.Where+": "+f.What+"; "+f.Do)
	}
	slices.Sort(lines)
	return lines
}

// finds inspects, and compares with what is to be found: a part of each line.
func (p *project) finds(want ...string) {
	p.T.Helper()
	got := p.inspect()
	ok := len(got) == len(want)
	for _, w := range want {
		ok = ok && slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, w) })
	}
	testkit.True(p.T, ok, "found\n  %s\nand is to find %d:\n  %s", strings.Join(got, "\n  "), len(want),
		strings.Join(want, "\n  "))
}

// sql changes rows of the board behind its back.
func (p *project) sql(statements string) {
	p.T.Helper()
	db := testkit.Get(sql.Open("sqlite", "file:"+filepath.ToSlash(state.Of(p.Root).Database()))).Must(p.T)
	testkit.Get(db.ExecContext(ctx, statements)).Must(p.T)
	must(p.T, db.Close())
}

// A board at work and at rest is well; so is a missing one, and nothing is made by looking.
func TestInspectWell(t *testing.T) {
	p := newProject(t)
	p.finds()
	testkit.True(t, !Exists(filepath.Join(p.Root, ".deepwork")), "looking has made a .deepwork")

	s := p.open()
	r := s.runs("! write a.txt a", "! await "+p.hold)
	p.finds()
	report := testkit.Get(p.inspectAt(ctx, state.Of(p.Root))).Must(t)
	testkit.True(t, report.Live &&
		slices.Contains(report.Counts, session.Count{N: 1, What: "attempt", Of: "1 waiting or running"}), "%+v", report)

	s.die()
	p.finds("note: " + state.Of(p.Root).Logs()) // it runs, and has no server
	must(t, os.WriteFile(p.hold, nil, 0o644))
	next := p.open()
	next.ends(r.AttemptID)
	p.finds()
	next.stop()
	p.finds()

	// And what is kept of it when it is deleted.
	last := p.open()
	kept := testkit.Get(last.DeleteTask(ctx, me, DeleteArgs{TaskID: last.get(r.AttemptID).TaskID})).Must(t)
	last.stop()
	testkit.Need(t, len(kept.Rescued) == 1, "%+v", kept)

	p.finds()
	bounded, cancel := context.WithCancel(ctx)
	cancel()
	testkit.Fails(t, testkit.Get(p.inspectAt(bounded, state.Of(p.Root))).Err(), "",
		"an inspection that was called off has found all well")

	// The rescue ref outlives its objects.
	commit := kept.Rescued[0].Commit
	must(t, os.Remove(filepath.Join(p.Root, ".git", "objects", commit[:2], commit[2:])))
	p.finds("what " + kept.Rescued[0].Ref + " keeps is not all there")
	must(t, os.WriteFile(filepath.Join(p.Root, ".git", filepath.FromSlash(kept.Rescued[0].Ref)),
		[]byte("nonsense\n"), 0o644))
	p.finds("a rescue ref cannot be read")
}

// Each kind of falsehood on the board is found, and told by its ids.
func TestInspectBoard(t *testing.T) {
	p, s := opened(t)
	r := s.ran("! say hello")
	s.stop()
	id, board := r.AttemptID, state.Of(p.Root).Database()
	good := testkit.Get(os.ReadFile(board)).Must(t)
	const aStep = `; INSERT INTO executions (attempt_id, log_id, workflow_session_id, step_id, follow_up, prompt, ` +
		`executor, created_at, id, state, started_at, ended_at) SELECT id, 'x', '00000000', 'one', 0, '', 'X', '2026', `
	for _, c := range []struct {
		sql  string
		want []string
	}{
		{`UPDATE attempts SET state = 'failed'`, []string{"attempt " + id + " is failed, and its newest execution"}},
		{`UPDATE executions SET state = 'running', ended_at = NULL, owner = '0123456789abcdef'; UPDATE attempts ` +
			`SET state = 'running'`,
			[]string{"is running, and neither its server nor its agent runs"}},
		{`UPDATE executions SET state = 'running', owner = NULL; UPDATE attempts SET state = 'running'`,
			[]string{"is running and has no owner", "is running, and its end is 20"}},
		{`UPDATE executions SET ended_at = NULL`, []string{"is completed, and its end is missing"}},
		{`DELETE FROM executions`, []string{"attempt " + id +
			" has no execution; restore the board from a copy, or remove the attempt's task ('deepwork board rm'"}},
		{`PRAGMA foreign_keys = OFF; DELETE FROM attempt_repos`, []string{"attempt " + id + " has no repository"}},
		{`PRAGMA foreign_keys = OFF; DELETE FROM tasks`,
			[]string{"of attempts names a row of tasks that is not there"}},
		{`UPDATE task_counts SET tasks = 7 WHERE status = 'inreview'`,
			[]string{"has 1 tasks that are inreview, and counts 7"}},
		{`UPDATE sessions SET queued_prompt = 'x', queued_at = 'y'`,
			[]string{"has a follow-up queued, and no execution of its attempt is open"}},
		{`UPDATE tasks SET deleting_at = '2026-01-01T00:00:00.000000Z'`,
			[]string{"is half deleted; remove it again: 'deepwork board rm "}},
		{`UPDATE attempt_repos SET worktree = '/somewhere/else/entirely'`,
			[]string{`has the worktree "/somewhere/else/entirely" and the workspace`}},
		{`UPDATE attempt_repos SET base_commit = '` + strings.Repeat("1", 40) + `'`,
			[]string{"the commit " + strings.Repeat("1", 40) + ", at which attempt " + id +
				" began, is not in the repository; fetch it, or remove the attempt's task ('deepwork board rm'"}},
		{`UPDATE attempts SET run = NULL` + aStep + `'x', 'stopped', NULL, '2026' FROM attempts`,
			[]string{"execution x of a step is of an attempt that is not a run"}},
		{`UPDATE attempts SET run = '{}'` + aStep + `'x', 'failed', '2026', '2026' FROM attempts`,
			[]string{"execution x of a step ran, and what it used is not recorded once"}},
		{`UPDATE attempts SET run = '{}'` + aStep + `'x', 'running', NULL, NULL FROM attempts`,
			[]string{"execution x of a step has not ended, and nothing leads it",
				"execution x runs and has no session or no time of its start"}},
		{`UPDATE attempts SET run = '{}'` + aStep + `'x', 'waiting', NULL, NULL FROM attempts` + aStep +
			`'y', 'starting', NULL, NULL FROM attempts`,
			[]string{"execution x of a step has not ended", "execution y of a step has not ended",
				"step one of session 00000000 has more than one agent"}},
		{`DROP INDEX executions_of; PRAGMA user_version = 99`, []string{"the database cannot be read: "}},
	} {
		must(t, os.WriteFile(board, good, 0o600))
		p.sql(c.sql)
		t.Log(c.sql)
		p.finds(c.want...)
	}

	// A page of it.
	torn := slices.Concat(good[:4096*3+8], bytes.Repeat([]byte{0xee}, 4096-8), good[4096*4:])
	must(t, os.WriteFile(board, torn, 0o600))
	got := p.inspect()
	testkit.True(t, len(got) != 0 && strings.Contains(got[0], "board.db"), "a damaged page: %v", got)
	must(t, os.WriteFile(board, good[:100], 0o600))
	p.finds("the database cannot be read: ")
	must(t, os.WriteFile(board, good, 0o600))
	p.finds()
}

// So is what is wrong with worktrees, journals and branches.
func TestInspectWorktrees(t *testing.T) {
	p, s := opened(t)
	r := s.ran("! say hello")
	s.stop()
	tree := r.Repos[0].WorktreePath
	dir := filepath.Dir(filepath.Dir(tree))
	journal := filepath.Join(dir, ".journal", worktree.NameOf(tree)+".json")
	written := testkit.Get(os.ReadFile(journal)).Must(t)
	replace := func(old, with string) {
		t.Helper()
		text := strings.ReplaceAll(string(written), old, with)
		testkit.Need(t, text != string(written), "the journal has no %s", old)
		must(t, os.WriteFile(journal, []byte(text), 0o600))
	}

	half := "the worktrees of attempt " + r.AttemptID + " are half-done: "
	replace(`"phase": "made"`, `"phase": "creating"`)
	p.finds(half + "creating was cut short")
	own := worktree.NameOf(tree)
	item := filepath.Join(dir, ".journal", own+"-item.json")
	partly := strings.ReplaceAll(string(testkit.Get(os.ReadFile(journal)).Must(t)),
		`"attempt": "`+own+`"`, `"attempt": "`+own+`-item"`)
	must(t, errors.Join(os.WriteFile(item, []byte(partly), 0o600), os.WriteFile(journal, written, 0o600)))
	p.finds() // the run makes it again if it is resumed
	must(t, errors.Join(os.Remove(item), os.Rename(filepath.Dir(tree), filepath.Dir(tree)+".removing")))
	p.finds(half + "removing was cut short")
	must(t, os.Rename(filepath.Dir(tree)+".removing", filepath.Dir(tree)))
	replace(`{`, `[`)
	p.finds("the journal of attempt " + worktree.NameOf(tree) + " cannot be used: ")
	must(t, os.WriteFile(journal, written, 0o600))
	stranger := filepath.Join(dir, "stranger")
	must(t, os.Mkdir(stranger, 0o755))
	p.finds(stranger + ": it is a folder of no attempt of the board")
	must(t, os.Remove(stranger))
	p.Git(tree, "checkout", "-q", "--detach")
	p.Git(p.Root, "branch", "-q", "-D", r.WorkspaceBranch)
	p.finds()
	p.Git(tree, "checkout", "-q", "--orphan", "new")
	p.finds("note: " + tree)
}

// Looking changes no file, and leaves none, also where a server was killed and has left the board's log.
func TestInspectChangesNothing(t *testing.T) {
	p, s := opened(t)
	r, dead := s.ran("! write a.txt a"), filepath.Join(p.Root, "..", "dead")
	must(t, errors.Join(os.CopyFS(dead, os.DirFS(p.Root)), state.Of(dead).Make())) // as it is while the board is open
	killed := state.Of(dead)
	for _, name := range []string{"", "-wal"} {
		must(t, os.WriteFile(killed.Database()+name, testkit.Get(os.ReadFile(s.boardPath()+name)).Must(t), 0o600))
	}

	s.stop()
	list := func(root string) string {
		t.Helper()
		var b strings.Builder
		must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			must(t, err)
			fi := testkit.Get(d.Info()).Must(t)
			if d.IsDir() && path != root {
				fmt.Fprintln(&b, path, fi.Mode())
			} else if !d.IsDir() && path != killed.Database()+"-shm" {
				// of the log, which the kill would have left as well
				fmt.Fprintln(&b, path, fi.Size(), fi.ModTime(), fi.Mode())
			}
			return nil
		}))

		return b.String()
	}
	before := list(p.Root) + list(state.Of(p.Root).Dir)
	p.finds()
	testkit.Equal(t, list(p.Root)+list(state.Of(p.Root).Dir), before)
	before = list(dead) + list(killed.Dir)
	found := testkit.Get(p.inspectAt(ctx, killed)).Must(t)
	testkit.Equal(t, list(dead)+list(killed.Dir), before)
	testkit.True(t, slices.ContainsFunc(found.Counts, func(c session.Count) bool {
		return c.What == "attempt" && c.N == 1
	}), "attempt %s was not seen: %+v", r.AttemptID, found)
}

// Looking at a repository, and at what an attempt changed, runs no program that its settings name, and fetches nothing.
func TestNoProgramOfARepositoryRuns(t *testing.T) {
	p := newProject(t)
	testkit.Write(t, filepath.Join(p.Root, ".gitattributes"), "* filter=evil diff=evil\n")
	p.Git(p.Root, "add", ".")
	p.Git(p.Root, "commit", "-q", "-m", "attributes")
	s := p.open()
	r, mark := s.ran("! write README changed", "! write a.txt a"), filepath.Join(p.Root, "..", "mark")
	testkit.Write(t, filepath.Join(p.Root, "evil"), "#!/bin/sh\ntouch "+mark+"; cat\n")
	must(t, os.Chmod(filepath.Join(p.Root, "evil"), 0o755))
	for _, key := range []string{"core.fsmonitor", "core.sshCommand", "core.pager", "filter.evil.clean",
		"filter.evil.smudge", "filter.evil.process", "diff.evil.command",
		"diff.evil.textconv", "diff.external", "core.alternateRefsCommand", "gpg.program", "log.showSignature true",
		"remote.origin.url ssh://example.invalid/x",
		"remote.origin.promisor true", "extensions.partialClone origin", "core.repositoryFormatVersion 1"} {
		key, value, given := strings.Cut(key, " ")
		if !given {
			value = filepath.Join(p.Root, "evil")
		}
		p.Git(p.Root, "config", key, value)
	}

	for range 2 {
		p.inspect()
		s.get(r.AttemptID)
		testkit.True(t, !Exists(mark), "a program ran")
		base := p.Git(p.Root, "rev-parse", "HEAD") // is to be fetched
		must(t, os.RemoveAll(filepath.Join(p.Root, ".git", "objects", base[:2], base[2:])))
	}
}

// newVictim makes a folder outside with a file, and returns what checks it.
func newVictim(t *testing.T) (dir string, untouched func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "home")
	must(t, errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "profile"), []byte("mine\n"), 0o644)))
	return dir, func() {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("%s%d", testkit.Get(os.ReadFile(filepath.Join(dir, "profile"))).Must(t),
			len(testkit.Get(os.ReadDir(dir)).Must(t))), "mine\n2", "outside")
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
		"UPDATE attempts SET workspace = " + quoted(elsewhere) + "; UPDATE attempt_repos SET worktree = " +
			quoted(elsewhere),
	} {
		p.sql(sql)
		if strings.Contains(sql, "attempt_repos") {
			must(t, os.MkdirAll(filepath.Join(elsewhere, ".git"), 0o755))
		}
		first.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! write planted.txt x")})
		now := first.ends(r.AttemptID)
		testkit.Contains(t, string(now.State)+": "+deref(now.Error), "failed: Checking the workspace failed")
	}
	testkit.True(t, !Exists(filepath.Join(elsewhere, "planted.txt")) && !Exists(filepath.Join(home, "planted.txt")),
		"an agent ran outside")
	testkit.Fails(t, testkit.Get(first.DeleteTask(ctx, me, DeleteArgs{TaskID: first.get(r.AttemptID).TaskID})).Err(),
		"", "a worktree without a journal was removed")
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
				testkit.Write(t, filepath.Join(dir, ".journal", nobody+".json"), `{"version":2,"attempt":"`+nobody+
					`","branch":"b","phase":"creating","trees":[{"repo_id":"r","name":"web","repo":"`+
					p.Root+`","target_branch":"main","git_dir":"`+p.Root+`/.git","path":"`+home+
					`","branch":"b","base":"","begun":true}]}`)
				must(t, errors.Join(os.Symlink(home, filepath.Join(dir, nobody)),
					os.Symlink(home, filepath.Join(dir, nobody+".removing"))))
			}
			s := p.open(func(o *Options) { o.Logger = nil })
			v := s.newTask("! write a.txt x")
			r := s.ends(s.begin(v).AttemptID)
			testkit.True(t, at != "" || string(
				testkit.Get(os.ReadFile(filepath.Join(dir, ".gitignore"))).Must(t)) == "*\n", "git sees the worktrees")
			testkit.True(t, (r.State == "completed") == (at == "") && (at == "" ||
				strings.Contains(deref(r.Error), "was not made by deepwork")), "%+v: %s", r, deref(r.Error))

			_, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
			testkit.True(t, (err == nil) == (at == ""), "deleted: %v", err)
			s.stop()
			p.inspect()
			untouched()
		})
	}
}

// What is not an id of an execution names no folder of records; that links in them are not followed is tested
// with the runner.
func TestRecordsOutsideAreLeftAlone(t *testing.T) {
	home, untouched := newVictim(t)
	l := executors.Local{Runner: runner.Runner{Shim: []string{os.Args[0], runner.ShimCommand}}, Logs: t.TempDir()}
	for _, id := range []string{"..", "../../x", "a/b", home} {
		testkit.Fails(t, l.Remove(id), "", "%s was removed", id)
		testkit.Fails(t, testkit.Get(l.Find(ctx, nobody, id)).Err(), "", "%s was looked at", id)
	}
	untouched()
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
		r := s.ends(s.begin(s.newTask("! say hello"), func(a *StartArgs) {
			a.Repos[0].TargetBranch = branch
		}).AttemptID)
		testkit.True(t, r.State == board.ExecutionState(want) && (want != task.Failed ||
			strings.Contains(deref(r.Error), "deepwork trust")), "%s: %+v, %s", branch, r, deref(r.Error))
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
		c.Attempts.Copy, c.Attempts.Setup = []string{".env"},
			[]string{"git", "config", "-f", "setup.txt", "made.by", "setup"}
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
		testkit.True(t, strings.Contains(got, "packages/app/work.txt") &&
			strings.Contains(got, ".env") != (branch == "main"), "%s: changed %s", branch, got)
	}
	testkit.Equal(t, p.Git(top, "status", "--porcelain"), "", "the user's checkout")
}

// A branch named deepwork is in the way of the branches of attempts, unless another prefix is set.
func TestField07_BranchPrefix(t *testing.T) {
	p := newProject(t)
	p.Git(p.Root, "branch", "deepwork")
	s := p.open()
	v := s.newTask("! write a.txt a", "! commit a", "! exit 0")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, s.starting(v))).Err(), session.StateError, codes.NoBranchLeft,
		"branch -m deepwork NEW-NAME", "attempts.branch_prefix")
	p.Configure(func(c *config.Config) { c.Attempts.BranchPrefix = "agents/by-" })
	r := s.ends(s.begin(v).AttemptID)
	testkit.Equal(t, r.State, "completed", "%s on %s: %s", r.State, r.WorkspaceBranch, deref(r.Error))
	testkit.True(t, strings.HasPrefix(r.WorkspaceBranch, "agents/by-add-a-basket-"), "%s on %s: %s", r.State,
		r.WorkspaceBranch, deref(r.Error))
	testkit.Equal(t, r.Repos[0].Ahead, 1, "%s on %s: %s", r.State, r.WorkspaceBranch, deref(r.Error))
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
	testkit.True(t, r.Repos[0].Ahead == 1 &&
		strings.Contains(deref(r.Notice), "is on the branch mine, not on the attempt's branch "+r.WorkspaceBranch),
		"ahead %d, notice %q", r.Repos[0].Ahead, deref(r.Notice))
	testkit.Contains(t, deref(testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t).Notice),
		"on the branch mine, which stays")
	testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", "mine"), "the work")
	v = s.newTask("! exit 0")
	p.Git(s.ends(s.begin(v).AttemptID).Repos[0].WorktreePath, "checkout", "-q", "--orphan", "unborn")
	gone := testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	testkit.True(t, !strings.Contains(deref(gone.Notice), "unborn"), "a branch that does not exist stays: %+v", gone)
}

// goneLeader is the id of a process that does not run.
const goneLeader = "00112233aabbccdd"

// lateView is a board on which something happens right after a look at an attempt.
type lateView struct {
	store.View
	then func()
}

func (v lateView) Attempt(ctx context.Context, id string) (*task.Attempt, error) {
	defer v.then()
	return v.View.Attempt(ctx, id)
}

// A run whose leader was killed before its workflow began is to be resumed: another one would be led beside it.
func TestARunWhoseLeaderWasKilledBeforeItBegan(t *testing.T) {
	p, s := opened(t, passive)
	id := s.startRun(false).RunID
	p.sql("UPDATE attempts SET state = 'starting'; UPDATE executions SET state = 'starting', owner = '" +
		goneLeader + "'")
	run := testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: id})).Must(t)
	testkit.True(t, run.State == board.Interrupted && run.Began, "it is %s, and can be resumed: %v", run.State,
		run.Began)

	items := testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items
	testkit.Need(t, len(items) == 1, "needs attention: %+v", items)
	testkit.Equal(t, items[0].Kind, board.AttentionRun, "needs attention: %+v", items)
	testkit.Equal(t, items[0].Command, "deepwork run resume "+board.Short(id), "needs attention: %+v", items)

	// A leader that ends the run, and itself, between the looks at the run and at the leader has left nothing
	// to resume.
	v, _, err := s.View(ctx, me)
	must(t, err)
	v.View = lateView{v.View, func() { p.sql("UPDATE attempts SET state = 'completed'") }}
	testkit.Equal(t, testkit.Get(s.RunReply(ctx, v, id)).Must(t).State, board.Completed)

	// Nor has one that still lives at the first look at it.
	p.sql("UPDATE attempts SET state = 'running'")
	s.Members = &lastBreath{Members: s.Members}
	testkit.Equal(t, testkit.Get(s.GetRun(ctx, me, board.RunArgs{RunID: id})).Must(t).State, board.Running)
	s.Members = &lastBreath{
		Members: s.Members,
		looks:   1,
		then:    func() { p.sql("UPDATE attempts SET state = 'completed'") },
	}
	for _, i := range testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items {
		testkit.Equal(t, i.Kind, board.AttentionReview)
	}
}

// lastBreath are members who live until they are looked at.
type lastBreath struct {
	store.Members
	looks int
	then  func()
}

func (m *lastBreath) Alive(string) bool {
	m.looks++
	if m.then != nil {
		m.then()
	}
	return m.looks == 1
}
