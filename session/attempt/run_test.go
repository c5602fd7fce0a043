package attempt

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/state"
)

// An attempt from its start to the review of its task.
func TestAttemptRuns(t *testing.T) {
	p := newProject(t)
	must(t, os.WriteFile(filepath.Join(p.Root, "README"), []byte("dirty\n"), 0o644))
	must(t, os.MkdirAll(filepath.Join(p.Root, ".deepwork", "jobs"), 0o755))
	s := p.open()
	v := s.newTask("Put things into it.", "! prompt", "! pwd", "! env MODE", "! env "+config.AttemptEnv, "! env "+config.BoardEnv, "! env "+config.JobsFoldersEnv,
		"! write basket.go package basket", "! commit Add the basket", "! write loose.txt loose", "! say all is well", "! exit 0")
	r := s.begin(v, func(a *StartArgs) { a.Prompt = new("Be quick.") })
	testkit.True(t, (r.State == "queued" || r.State == "starting" || r.State == "running") && r.TaskID == v.TaskID && r.Executor == "TEST", "started: %+v", r)
	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && deref(now.LatestAttemptID) == r.AttemptID && deref(now.LatestWorkspaceBranch) == r.WorkspaceBranch, "the task: %+v", now)
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "completed" && r.ExitCode != nil && *r.ExitCode == 0 && deref(r.FinalMessage) == "all is well" && r.Error == nil && r.Notice == nil && r.LatestSessionID != nil, "ended: %+v, %s", r, deref(r.Error))
	attempttest.Times(t, deref(r.StartedAt), deref(r.EndedAt), r.CreatedAt, r.UpdatedAt)
	testkit.True(t, slices.IsSorted([]string{r.CreatedAt, *r.StartedAt, *r.EndedAt}), "made, begun and ended at %s, %s and %s", r.CreatedAt, *r.StartedAt, *r.EndedAt)
	now = s.task(v.TaskID)
	testkit.True(t, now.Status == "inreview" && !now.HasInProgressAttempt && !now.LastAttemptFailed && deref(now.LatestSessionExecutor) == "TEST" && deref(now.LatestSessionID) == deref(r.LatestSessionID), "the task: %+v", now)
	repo := r.Repos[0]
	testkit.True(t, repo.Exists && repo.Ahead == 1 && repo.Behind == 0 && strings.Join(repo.ChangedFiles, " ") == "basket.go loose.txt" && repo.ChangedCount == 2, "the worktree: %+v", repo)
	testkit.Equal(t, repo.WorktreePath, filepath.Join(state.Of(p.Root).Worktrees(), strings.TrimPrefix(r.WorkspaceBranch, "deepwork/"), "shop"))
	testkit.ContainsAll(t, s.output(r.AttemptID)+"\n", []string{"agent first\n", "# Add a basket\n", "Put things into it.\n", "Be quick.\n", "pwd " + repo.WorktreePath + "\n", "MODE=quick\n",
		config.AttemptEnv + "=" + r.AttemptID + "\n", config.BoardEnv + "=" + s.boardPath() + "\n", config.JobsFoldersEnv + "=" + filepath.Join(p.Root, ".deepwork", "jobs") + "\n"})
	testkit.True(t, strings.HasPrefix(r.WorkspaceBranch, "deepwork/add-a-basket-") && p.Git(p.Root, "log", "-1", "--format=%s", r.WorkspaceBranch) == "Add the basket", "the branch %s has no commit", r.WorkspaceBranch)
	// The main checkout is as it was, and git does not see what is ours.
	testkit.Equal(t, p.Git(p.Root, "status", "--porcelain"), " M README", "the main checkout")
}

// Seed 004, "list_task_attempts returns attempt details".
func TestReq004_ListTaskAttempts(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	v := s.newTask("! await " + hold)
	first := s.begin(v)
	s.reaches(first.AttemptID, task.Running)
	second := s.begin(v, func(a *StartArgs) { a.Variant = new("OTHER") })
	r := testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t)
	testkit.Need(t, r.Count == 2 && r.Total == 2 && r.Filters.TaskID == v.TaskID && deref(r.LatestAttemptID) == second.AttemptID && r.LatestSessionID == nil, "%+v", r)
	a, b := r.Attempts[0], r.Attempts[1]
	testkit.True(t, a.AttemptID == second.AttemptID && a.State == "queued" && a.LatestSessionID == nil && a.LatestSessionExecutor == nil && deref(a.Variant) == "OTHER", "the newest: %+v", a)
	testkit.True(t, b.AttemptID == first.AttemptID && b.State == "running" && b.LatestSessionID != nil && deref(b.LatestSessionExecutor) == "TEST" && b.WorkspaceBranch == first.WorkspaceBranch, "the older: %+v", b)
	attempttest.Times(t, a.CreatedAt, a.UpdatedAt, b.CreatedAt, b.UpdatedAt)
	page := testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID, Limit: new(1)})).Must(t)
	page = testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID, Limit: new(1), Cursor: page.NextCursor})).Must(t)
	testkit.True(t, page.Count == 1 && page.Attempts[0].AttemptID == first.AttemptID && deref(page.LatestAttemptID) == second.AttemptID, "the second page: %+v", page)
	waits := s.get(second.AttemptID)
	testkit.True(t, waits.State == "queued" && strings.Contains(deref(waits.Notice), "and 0 wait before it") && !waits.Repos[0].Exists && len(waits.Repos[0].ChangedFiles) == 0, "the waiting one: %+v, %s", waits, deref(waits.Notice))
	must(t, os.WriteFile(hold, nil, 0o644))
	testkit.Equal(t, s.ends(second.AttemptID).State, "completed")
	testkit.Contains(t, s.output(second.AttemptID), "agent other")
}

// Several repositories: a worktree each, the agent in the folder around them,
// with what the config copies and runs there.
func TestSeveralRepos(t *testing.T) {
	p := newProject(t)
	for _, name := range []string{"web", "api"} {
		dir := filepath.Join(p.Root, "..", name)
		p.Repo(dir)
		must(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("SECRET="+name+"\n"), 0o600))
		p.Git(dir, "branch", "release")
	}
	p.Configure(func(c *config.Config) {
		c.Projects = []config.Project{{Name: "front", Repos: []config.Repo{
			{Name: "web", Path: "../web", Copy: []string{".env"}, Setup: []string{os.Args[0], "agent", "setup", "! env " + config.AttemptEnv + "\n! write setup.txt ready"}},
			{Name: "the api", Path: "../api"},
		}}}
	})
	s := p.open()
	project, all := s.project("front")
	var repos []RepoArgs
	for _, id := range all {
		repos = append(repos, RepoArgs{id, "release"})
	}
	v := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "Both", Description: new("! pwd\n! write web/a.txt a\n! write the-api/b.txt b")})).Must(t)
	r := s.ends(s.begin(v, func(a *StartArgs) { a.Repos = repos }).AttemptID)
	testkit.Need(t, r.State == "completed", "%+v: %s\n%s", r, deref(r.Error), s.output(r.AttemptID))
	around := filepath.Join(state.Of(p.Root).Worktrees(), strings.TrimPrefix(r.WorkspaceBranch, "deepwork/"))
	testkit.Contains(t, s.output(r.AttemptID), "pwd "+around, "the agent ran elsewhere")
	changed := map[string]string{}
	for _, repo := range r.Repos {
		changed[repo.RepoName] = strings.Join(repo.ChangedFiles, " ")
		testkit.Equal(t, filepath.Dir(repo.WorktreePath), around)
		testkit.Equal(t, repo.TargetBranch, "release")
	}
	testkit.Same(t, changed, map[string]string{"the api": "b.txt", "web": ".env a.txt setup.txt"})
	testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(around, "web", ".env"))).Must(t)), "SECRET=web\n")
}

// A workspace that cannot be made fails the attempt, says why, and leaves nothing.
func TestSetupFails(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) {
		c.Attempts.Setup = []string{os.Args[0], "agent", "setup", "! say no compiler here\n! exit 4"}
	})
	s := p.open()
	v := s.newTask("! say never")
	r := s.ends(s.begin(v).AttemptID)
	testkit.True(t, r.State == "failed" && strings.Contains(deref(r.Error), "no compiler here") && r.StartedAt == nil && r.LatestSessionID == nil, "%+v: %s", r, deref(r.Error))
	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && now.LastAttemptFailed, "%+v", now)
	testkit.Equal(t, strings.Count(p.Git(p.Root, "worktree", "list"), "\n"), 0, "worktrees are left")
	testkit.Equal(t, p.Git(p.Root, "branch", "--list", "deepwork/*"), "", "branches are left")
}

// A prompt given as an argument is never taken for an option.
func TestPromptAsArgument(t *testing.T) {
	s := newProject(t).open()
	r := s.ends(s.begin(s.newTask("! prompt"), func(a *StartArgs) { a.Executor = "ARGUMENT" }).AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.Contains(t, s.output(r.AttemptID), "# Add a basket")
	// Nor is a message, by an agent whose conversation goes on.
	given := &recipe{Recipe: runner.Recipe{Command: []string{"git"}, Resume: []string{"git", "resume"}, Prompt: config.PromptArgument}, root: t.TempDir()}
	command, stdin := given.give("--version", true)
	testkit.True(t, stdin == nil && len(command) == 3 && command[2] == " --version", "%q, %q", command, stdin)
}

// The same call again gives the same attempt, also when it could not be made again.
func TestStartOnce(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! say once")
	once := func(a *StartArgs) { a.RequestID = new("go") }
	first := s.begin(v, once)
	s.ends(first.AttemptID)
	p.Git(p.Root, "branch", "-m", "main", "trunk")
	again := s.begin(v, once)
	testkit.True(t, again.AttemptID == first.AttemptID && again.State == "completed", "again: %+v", again)
	testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).Total, 1)
}

// tail_attempt follows an agent line by line, and waits for the next one.
func TestTail(t *testing.T) {
	p, s := opened(t)
	hold := filepath.Join(p.Root, "..", "hold")
	r := s.begin(s.newTask("! say one", "! await "+hold, "! say two"))
	seen := func(want string) func(*TailReply) bool {
		return func(r *TailReply) bool {
			return slices.ContainsFunc(r.Entries, func(e runner.Entry) bool { return e.Text == want })
		}
	}
	follow := func(after int64, until func(*TailReply) bool) int64 {
		t.Helper()
		for range 100 {
			got := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), AfterIndex: &after, Wait: new(10.0), Raw: new(true)})).Must(t)
			for i, e := range got.Entries {
				testkit.Equal(t, e.Index, after+1+int64(i), "the entry after %d", after)
			}
			after = got.NextIndex
			if until(got) {
				return after
			}
		}
		t.Fatal("it did not come")
		return 0
	}
	after := follow(-1, seen("one"))
	must(t, os.WriteFile(hold, nil, 0o644))
	after = follow(after, seen("done"))
	follow(after, func(r *TailReply) bool { return r.State == "completed" })
}

// list_executors lists the known ones, those of the config, and which can be run.
func TestListExecutors(t *testing.T) {
	p, s := opened(t)
	r := testkit.Get(s.ListExecutors(ctx, me)).Must(t)
	byName := map[string]ExecutorInfo{}
	for _, x := range r.Executors {
		byName[x.Name] = x
	}
	x := byName["TEST"]
	testkit.True(t, x.Available && x.CanContinue && strings.Join(x.Variants, " ") == "OTHER SAME" && x.Program == os.Args[0], "%+v", x)
	x = byName["MISSING"]
	testkit.True(t, !x.Available && x.Program == filepath.Join(p.Root, "no-such-agent"), "%+v", x)
	for _, name := range []string{"CLAUDE_CODE", "CODEX", "GEMINI", "CURSOR_AGENT", "OPENCODE"} {
		_, there := byName[name]
		testkit.True(t, there, "%s is missing", name)
	}
	testkit.True(t, r.Count == len(r.Executors) && r.Executors[0].Available, "%+v", r)
}

// Whatever a repository is called, its worktree has its own folder in the attempt's.
func TestFoldersOfWorktrees(t *testing.T) {
	var repos []task.AttemptRepo
	for _, name := range []string{"web", "WEB", "web-2", "", ".", "..", "../x", "a/b", ".git", "a\nb", "the api", strings.Repeat("x", 201)} {
		repos = append(repos, task.AttemptRepo{RepoName: name})
	}
	setWorktrees("/dir", repos)
	fit, seen := regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,70}$`), make(map[string]bool)
	for _, r := range repos {
		dir, name := filepath.Split(r.Worktree)
		if low := strings.ToLower(name); dir != filepath.FromSlash("/dir/") || !fit.MatchString(name) || seen[low] {
			t.Errorf("%q is in %q", r.RepoName, r.Worktree)
		} else {
			seen[low] = true
		}
	}
}

func TestIgnore(t *testing.T) {
	root := t.TempDir()
	read := func(parts ...string) string {
		text := testkit.Get(os.ReadFile(filepath.Join(append([]string{root}, parts...)...))).Must(t)
		return string(text)
	}
	must(t, ignore(root, filepath.Join(root, "trees")))
	testkit.Equal(t, read("trees", ".gitignore"), "*\n")
	must(t, ignore(root, filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")))
	testkit.True(t, !Exists(filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")), "a folder outside the project was made")
}
