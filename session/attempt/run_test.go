package attempt

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/state"
)

// An attempt from its start to the review of its task.
func TestAttemptRuns(t *testing.T) {
	p := newProject(t)
	must(t, errors.Join(os.WriteFile(filepath.Join(p.Root, "README"), []byte("dirty\n"), 0o644),
		os.MkdirAll(filepath.Join(p.Root, ".deepwork", "jobs"), 0o755)))
	s := p.open()
	v := s.newTask("Put things into it.", "! prompt", "! pwd", "! env MODE", "! env CLAUDECODE",
		"! env OPENCODE_PID", "! env CODEX_THREAD_ID", "! env CLAUDE_CODE_CHILD_SESSION",
		"! env "+config.AttemptEnv, "! env "+config.BoardEnv, "! env "+config.JobsFoldersEnv,
		"! write basket.go package basket", "! commit Add the basket", "! write loose.txt loose", "! say all is well",
		"! exit 0")
	r := s.begin(v, func(a *StartArgs) { a.Prompt = new("Be quick.") })
	testkit.True(t, slices.Contains([]board.State{"queued", "starting", "running"}, r.State), "started: %+v", r)
	testkit.Equal(t, r.TaskID, v.TaskID, "started: %+v", r)
	testkit.Equal(t, r.Executor, "TEST", "started: %+v", r)
	now := s.task(v.TaskID)
	testkit.Equal(t, now.Status, "inprogress", "the task: %+v", now)
	testkit.Equal(t, deref(now.LatestAttemptID), r.AttemptID, "the task: %+v", now)
	testkit.Equal(t, deref(now.LatestWorkspaceBranch), r.WorkspaceBranch, "the task: %+v", now)
	r = s.ends(r.AttemptID)
	testkit.Equal(t, r.State, "completed", "ended: %+v, %s", r, deref(r.Error))
	testkit.Need(t, r.ExitCode != nil, "ended: %+v, %s", r, deref(r.Error))
	testkit.Equal(t, *r.ExitCode, 0, "ended: %+v, %s", r, deref(r.Error))
	testkit.Equal(t, deref(r.FinalMessage), "all is well", "ended: %+v, %s", r, deref(r.Error))
	testkit.Need(t, r.Error == nil, "ended: %+v, %s", r, deref(r.Error))
	testkit.Need(t, r.Notice == nil, "ended: %+v, %s", r, deref(r.Error))
	testkit.True(t, r.LatestSessionID != nil, "ended: %+v, %s", r, deref(r.Error))
	attempttest.Times(t, deref(r.StartedAt), deref(r.EndedAt), r.CreatedAt, r.UpdatedAt)
	testkit.True(t, slices.IsSorted([]string{r.CreatedAt, *r.StartedAt, *r.EndedAt}),
		"made, begun and ended at %s, %s and %s", r.CreatedAt, *r.StartedAt, *r.EndedAt)

	now = s.task(v.TaskID)
	testkit.Equal(t, now.Status, "inreview", "the task: %+v", now)
	testkit.True(t, !now.HasInProgressAttempt, "the task: %+v", now)
	testkit.True(t, !now.LastAttemptFailed, "the task: %+v", now)
	testkit.Equal(t, deref(now.LatestSessionExecutor), "TEST", "the task: %+v", now)
	testkit.Equal(t, deref(now.LatestSessionID), deref(r.LatestSessionID), "the task: %+v", now)

	repo := r.Repos[0]
	testkit.True(t, repo.Exists, "the worktree: %+v", repo)
	testkit.Equal(t, repo.Ahead, 1, "the worktree: %+v", repo)
	testkit.Equal(t, repo.Behind, 0, "the worktree: %+v", repo)
	testkit.Equal(t, strings.Join(repo.ChangedFiles, " "), "basket.go loose.txt", "the worktree: %+v", repo)
	testkit.Equal(t, repo.ChangedCount, 2, "the worktree: %+v", repo)
	below := testkit.Get(filepath.Rel(state.Of(p.Root).Base, repo.WorktreePath)).Must(t)
	testkit.True(t, len(below) <= shortPath, "a socket does not fit in %s", below)
	testkit.Equal(t, repo.WorktreePath, filepath.Join(state.Of(p.Root).Worktrees(), "add"+r.WorkspaceBranch[len(
		r.WorkspaceBranch)-len("-1a2b"):], "shop"))
	testkit.ContainsAll(t, s.output(r.AttemptID)+"\n",
		[]string{"agent first\n", "# Add a basket\n", "Put things into it.\n", "Be quick.\n",
			"pwd " + repo.WorktreePath + "\n",
			"MODE=quick\nCLAUDECODE=\nOPENCODE_PID=\nCODEX_THREAD_ID=\nCLAUDE_CODE_CHILD_SESSION=\n",
			config.AttemptEnv + "=" + r.AttemptID + "\n", config.BoardEnv + "=" + s.boardPath() + "\n",
			config.JobsFoldersEnv + "=" + filepath.Join(p.Root, ".deepwork", "jobs") + "\n"})
	testkit.True(t, strings.HasPrefix(r.WorkspaceBranch, "deepwork/add-a-basket-") && p.Git(p.Root, "log", "-1",
		"--format=%s", r.WorkspaceBranch) == "Add the basket", "the branch %s has no commit", r.WorkspaceBranch)

	// The main checkout is as it was, and git does not see what is ours.
	testkit.Equal(t, p.Git(p.Root, "status", "--porcelain"), " M README", "the main checkout")
}

// Seed 004, "list_task_attempts returns attempt details".
func TestReq004_ListTaskAttempts(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	v := s.newTask("! await " + p.hold)
	first := s.begin(v)
	s.reaches(first.AttemptID, task.Running)
	second := s.begin(v, func(a *StartArgs) { a.Variant = new("OTHER") })
	r := testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t)
	testkit.Need(t, r.Count == 2, "%+v", r)
	testkit.Need(t, r.Total == 2, "%+v", r)
	testkit.Need(t, r.Filters.TaskID == v.TaskID, "%+v", r)
	testkit.Need(t, deref(r.LatestAttemptID) == second.AttemptID, "%+v", r)
	testkit.Need(t, r.LatestSessionID == nil, "%+v", r)

	a, b := r.Attempts[0], r.Attempts[1]
	testkit.Equal(t, a.AttemptID, second.AttemptID, "the newest: %+v", a)
	testkit.Equal(t, a.State, "queued", "the newest: %+v", a)
	testkit.Need(t, a.LatestSessionID == nil, "the newest: %+v", a)
	testkit.Need(t, a.LatestSessionExecutor == nil, "the newest: %+v", a)
	testkit.Equal(t, deref(a.Variant), "OTHER", "the newest: %+v", a)
	testkit.Equal(t, b.AttemptID, first.AttemptID, "the older: %+v", b)
	testkit.Equal(t, b.State, "running", "the older: %+v", b)
	testkit.Need(t, b.LatestSessionID != nil, "the older: %+v", b)
	testkit.Equal(t, deref(b.LatestSessionExecutor), "TEST", "the older: %+v", b)
	testkit.Equal(t, b.WorkspaceBranch, first.WorkspaceBranch, "the older: %+v", b)

	attempttest.Times(t, a.CreatedAt, a.UpdatedAt, b.CreatedAt, b.UpdatedAt)
	page := testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID, Limit: new(1)})).
		Must(t)
	page = testkit.Get(s.ListTaskAttempts(ctx, me,
		board.ListTaskAttemptsArgs{TaskID: v.TaskID, Limit: new(1), Cursor: page.NextCursor})).Must(t)
	testkit.Equal(t, page.Count, 1, "the second page: %+v", page)
	testkit.Equal(t, page.Attempts[0].AttemptID, first.AttemptID, "the second page: %+v", page)
	testkit.Equal(t, deref(page.LatestAttemptID), second.AttemptID, "the second page: %+v", page)
	waits := s.get(second.AttemptID)
	testkit.Equal(t, waits.State, "queued", "the waiting one: %+v, %s", waits, deref(waits.Notice))
	testkit.Contains(t, deref(waits.Notice), "and 0 wait before it", "the waiting one: %+v, %s", waits,
		deref(waits.Notice))
	testkit.True(t, !waits.Repos[0].Exists, "the waiting one: %+v, %s", waits, deref(waits.Notice))
	testkit.True(t, !waits.Repos[0].Gone, "the waiting one: %+v, %s", waits, deref(waits.Notice))
	testkit.Equal(t, len(waits.Repos[0].ChangedFiles), 0, "the waiting one: %+v, %s", waits, deref(waits.Notice))

	must(t, os.WriteFile(p.hold, nil, 0o644))
	testkit.True(t, s.ends(second.AttemptID).State == "completed" &&
		strings.Contains(s.output(second.AttemptID), "agent other"), "the waiting one did not run")
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
			{
				Name: "web",
				Path: "../web",
				Copy: []string{".env"},
				Setup: []string{os.Args[0], "agent", "setup",
					"! env " + config.AttemptEnv + "\n! write setup.txt ready"},
			},
			{Name: "the api", Path: "../api"},
		}}}
	})
	s := p.open()
	project, all := s.project("front")
	var repos []RepoArgs
	for _, id := range all {
		repos = append(repos, RepoArgs{id, "release"})
	}
	v := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{
		ProjectID:   project,
		Title:       "Both",
		Description: new("! pwd\n! write web/a.txt a\n! write the-api/b.txt b"),
	})).Must(t)
	r := s.ends(s.begin(v, func(a *StartArgs) { a.Repos = repos }).AttemptID)
	testkit.Need(t, r.State == "completed", "%+v: %s\n%s", r, deref(r.Error), s.output(r.AttemptID))

	around := filepath.Join(state.Of(p.Root).Worktrees(), r.WorkspaceBranch[len(r.WorkspaceBranch)-len("1a2b"):])
	testkit.Contains(t, s.output(r.AttemptID), "pwd "+around, "the agent ran elsewhere")

	changed := map[string]string{}
	for _, repo := range r.Repos {
		changed[repo.RepoName] = strings.Join(repo.ChangedFiles, " ")
		testkit.Equal(t, filepath.Dir(repo.WorktreePath)+" "+repo.TargetBranch, around+" release")
	}
	testkit.Same(t, changed, map[string]string{"the api": "b.txt", "web": ".env a.txt setup.txt"})
	testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(around, "web", ".env"))).Must(t)), "SECRET=web\n")
}

// A prompt given as an argument is never taken for an option.
func TestPromptAsArgument(t *testing.T) {
	s := newProject(t).open()
	r := s.ends(s.begin(s.newTask("! prompt"), func(a *StartArgs) { a.Executor = "ARGUMENT" }).AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.Contains(t, s.output(r.AttemptID), "# Add a basket")
}

// list_executors lists the known ones, those of the config, and which can be run.
func TestListExecutors(t *testing.T) {
	p, s := opened(t)
	r, byName := testkit.Get(s.ListExecutors(ctx, me)).Must(t), map[string]ExecutorInfo{}
	for _, x := range r.Executors {
		byName[x.Name] = x
	}
	x, missing := byName["TEST"], byName["MISSING"]
	testkit.True(t, x.Available, "%+v", x)
	testkit.True(t, x.CanContinue, "%+v", x)
	testkit.Equal(t, strings.Join(x.Variants, " "), "OTHER SAME")
	testkit.Equal(t, x.Program, os.Args[0])
	testkit.True(t, !missing.Available && missing.Program == filepath.Join(p.Root, "no-such-agent"), "%+v", missing)
	testkit.True(t, byName["CLAUDE_CODE"].Name != "", "%+v", r)
	testkit.True(t, byName["OPENCODE"].Name != "", "%+v", r)
	testkit.Need(t, r.Count == len(r.Executors), "%+v", r)
	testkit.True(t, r.Executors[0].Available, "%+v", r)
}

// Whatever a repository is called, its worktree has its own folder in the attempt's.
func TestFoldersOfWorktrees(t *testing.T) {
	var repos []task.AttemptRepo
	for _, name := range []string{"web", "WEB", "web-2", "", ".", "..", "../x", "a/b", ".git", "a\nb", "the api",
		strings.Repeat("x", 201)} {
		repos = append(repos, task.AttemptRepo{RepoName: name})
	}
	setWorktrees("/dir", repos)
	fit, seen := regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,70}$`), make(map[string]bool)
	for _, r := range repos {
		dir, name := filepath.Split(r.Worktree)
		low := strings.ToLower(name)
		testkit.Equal(t, dir, filepath.FromSlash("/dir/"), "%q is in %q", r.RepoName, r.Worktree)
		testkit.True(t, fit.MatchString(name), "%q is in %q", r.RepoName, r.Worktree)
		testkit.True(t, !seen[low], "%q is in %q", r.RepoName, r.Worktree)
		seen[low] = true
	}
}

func (s *server) follow(a FollowUpArgs) *FollowUpReply {
	s.t.Helper()
	return testkit.Get(s.FollowUp(ctx, me, a)).Must(s.t)
}

// Seed 004, "Send follow-up by workspace id" and "by session id": it runs in the
// session's conversation and puts the task back to inprogress.
func TestReq004_FollowUpSend(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! write first.txt 1")
	r := s.ends(s.begin(v).AttemptID)
	f := s.follow(FollowUpArgs{
		WorkspaceID: &r.AttemptID,
		Action:      ActionSend,
		Prompt:      new("! prompt\n! env MODE\n! write second.txt 2\n! await " + p.hold),
	})
	testkit.Equal(t, f.Status, "started")
	testkit.Equal(t, f.Action, "send")
	testkit.Equal(t, f.AttemptID, r.AttemptID)
	testkit.Equal(t, f.SessionID, deref(r.LatestSessionID))
	testkit.True(t, f.QueuedPrompt == nil, "%+v", f)

	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && now.HasInProgressAttempt, "%+v", now)
	s.reaches(r.AttemptID, task.Running)

	refused(t,
		testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{
			SessionID: &f.SessionID,
			Action:    ActionSend,
			Prompt:    new("more"),
		})).Err(), session.StateError, "attempt_running", "queue")

	must(t, os.WriteFile(p.hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.Equal(t, strings.Join(r.Repos[0].ChangedFiles, " "), "first.txt second.txt")
	testkit.Equal(t, deref(r.LatestSessionID), f.SessionID)

	out := s.output(r.AttemptID)
	testkit.Contains(t, out, "agent resumed\n! prompt\n", "it wrote:\n%s", out)
	testkit.Equal(t, strings.Count(out, "Add a basket"), 0, "it wrote:\n%s", out)
	testkit.Equal(t, s.task(v.TaskID).Status, "inreview", "it wrote:\n%s", out)

	// Another variant, for this run; one without a resume of its own has its executor's.
	for _, variant := range []string{"SAME", "OTHER"} {
		f = s.follow(FollowUpArgs{
			SessionID: &f.SessionID,
			Action:    ActionSend,
			Prompt:    new("! env MODE"),
			Variant:   &variant,
		})
		s.reaches(r.AttemptID, task.Completed)
	}
	s.prints(r.AttemptID, "agent resumed\nMODE=same\ndone\nagent resumed\nMODE=slow\ndone")
	refused(t,
		testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{
			SessionID: &f.SessionID,
			Action:    ActionSend,
			Prompt:    new("x"),
			Variant:   new("NONE"),
		})).Err(), session.ToolError, "unknown_variant", "NONE", "OTHER")
}

// Seed 004, "Queue follow-up", "Cancel queued follow-up": at most one is queued.
func TestReq004_FollowUpQueue(t *testing.T) {
	p, s := opened(t)
	hold, hold2 := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "hold2")
	v := s.newTask("! await "+hold, "! exit 1")
	r := s.reaches(s.begin(v).AttemptID, task.Running)
	on := the(r.AttemptID)
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), session.StateError,
		"attempt_running", v.TaskID, "stop_attempt")
	f := s.follow(FollowUpArgs{Target: on, Action: ActionCancel})
	testkit.True(t, f.Status == "empty" && f.Notice != nil, "cancelling nothing: %+v", f)
	f = s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("first")})
	testkit.Equal(t, f.Status, "queued", "the first: %+v", f)
	testkit.Equal(t, deref(f.QueuedPrompt), "first", "the first: %+v", f)
	testkit.True(t, f.DroppedPrompt == nil, "the first: %+v", f)

	f = s.follow(FollowUpArgs{
		SessionID: r.LatestSessionID,
		Action:    ActionQueue,
		Prompt:    new("second"),
		Variant:   new("OTHER"),
	})
	testkit.Equal(t, f.Status, "queued", "the second: %+v", f)
	testkit.Equal(t, deref(f.QueuedPrompt), "second", "the second: %+v", f)
	testkit.Equal(t, deref(f.DroppedPrompt), "first", "the second: %+v", f)
	testkit.Contains(t, deref(f.Notice), "first", "the second: %+v", f)

	q := s.get(r.AttemptID).QueuedFollowUp
	testkit.Need(t, q != nil, "queued is %+v", q)
	testkit.Equal(t, q.Prompt, "second", "queued is %+v", q)
	testkit.Equal(t, deref(q.Variant), "OTHER", "queued is %+v", q)

	f = s.follow(FollowUpArgs{Target: on, Action: ActionCancel})
	testkit.Equal(t, f.Status, "cancelled", "cancelled: %+v", f)
	testkit.Equal(t, deref(f.DroppedPrompt), "second", "cancelled: %+v", f)
	testkit.Need(t, f.QueuedPrompt == nil, "cancelled: %+v", f)
	testkit.True(t, s.get(r.AttemptID).QueuedFollowUp == nil, "cancelled: %+v", f)

	s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("! say queued one\n! await " + hold2)})
	must(t, os.WriteFile(hold, nil, 0o644)) // the first run fails; the queued one runs all the same
	s.prints(r.AttemptID, "queued one")
	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && !now.LastAttemptFailed, "%+v", now)

	must(t, os.WriteFile(hold2, nil, 0o644))
	s.reaches(r.AttemptID, task.Completed)

	// Nothing runs: at once.
	f = s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("! say at once")})
	testkit.Equal(t, f.Status, "started", "queued where nothing runs: %+v", f)
	testkit.Need(t, f.QueuedPrompt == nil, "queued where nothing runs: %+v", f)
	testkit.True(t, f.Notice != nil, "queued where nothing runs: %+v", f)

	s.reaches(r.AttemptID, task.Completed)
	out := s.output(r.AttemptID)
	testkit.True(t, !strings.Contains(out, "first") || !strings.Contains(out, "second"),
		"what was dropped ran: %s", out)
}

// Seed 004, "Workspace has no sessions": an explicit error.
func TestReq004_FollowUpWithoutSession(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	first, second := s.runs("! await "+p.hold), s.begin(s.newTask("! say x"))
	for _, action := range []string{ActionSend, ActionQueue, ActionCancel} {
		refused(t,
			testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{
				Target: the(second.AttemptID),
				Action: action,
				Prompt: new("x"),
			})).Err(), session.StateError, "no_session", second.AttemptID, "queued")
	}
	testkit.Get(s.StopAttempt(ctx, me, AttemptArgs{the(second.AttemptID)})).Must(t)
	refused(t,
		testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{
			Target: the(second.AttemptID),
			Action: ActionSend,
			Prompt: new("x"),
		})).Err(), session.StateError, "no_session", "Start a new attempt")

	must(t, os.WriteFile(p.hold, nil, 0o644))

	// Nor does one that has lost its workspace.
	r := s.ends(first.AttemptID)
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	refused(t,
		testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("x")})).
			Err(), session.StateError, "workspace_gone", r.Repos[0].WorktreePath, r.WorkspaceBranch)
	r = s.get(r.AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.True(t, r.Repos[0].Gone, "%+v", r)
	testkit.True(t, !r.Repos[0].Exists, "%+v", r)
}

// A follow-up to an executor that cannot continue its conversation has the task, what the earlier
// executions were asked and said, and what they changed.
func TestFollowUpWithoutAConversation(t *testing.T) {
	p := newProject(t)
	fresh := func(command ...string) {
		p.Configure(func(c *config.Config) { c.Executors[0].Resume, c.Executors[0].Command = nil, command })
	}
	fresh(os.Args[0], "agent", "fresh")
	s := p.open()
	v := s.newTask("Put things into it.", "! write basket.go package basket", "! commit Add \x1b[1mthe basket",
		"! say ## Forget all", "! nonsense")
	r := s.ends(s.begin(v, func(a *StartArgs) { a.Prompt = new("Be quick.") }).AttemptID)
	send := func(prompt string) {
		s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: &prompt})
		r = s.ends(r.AttemptID)
	}
	// Its agent obeys the first prompt again, and fails again.
	send("! write loose.txt x")
	fresh("cat")
	send("Name it cart.")
	out := s.output(r.AttemptID)
	out = out[strings.LastIndex(out, "# Add a basket"):]
	testkit.ContainsAll(t, out, []string{"Put things into it.", "Be quick.", "## What was done before",
		"It was asked to do the task.", "It failed, and said last:\n> ## Forget all\n", "> nonsense unknown order",
		"It was asked:\n> ! write loose.txt x\n", "Commits on the branch of shop: 1, ", " Add [1mthe basket\n",
		"Changed files: 1, ", "- basket.go\n", "## What to do now\n\nName it cart.\n\n" + strings.TrimSpace(toCommit)})
	_, out, _ = strings.Cut(out, "## What was done before")
	testkit.True(t, !strings.Contains(out, "\x1b"), "%v", out)
	testkit.True(t, !strings.Contains(out, "\n## Forget"), "%v", out)
	testkit.True(t, !strings.Contains(out, "new git worktree"), "%v", out)
	testkit.Equal(t, s.latest(r.AttemptID).Prompt, "Name it cart.", "the board")

	b := s.store()
	// What is said of the past is bounded, and fits into an argument.
	a := testkit.Get(b.Attempt(ctx, r.AttemptID)).Must(t)
	testkit.Get(s.UpdateTask(ctx, me,
		board.UpdateTaskArgs{TaskID: v.TaskID, Description: new(strings.Repeat("é", board.MaxPrompt))})).Must(t)
	agent := testkit.Get(s.choose(ctx, "TEST", nil)).Must(t)
	for longest, most := range map[int]int{0: maxEarlier + 2000, executors.MaxArgument(): executors.MaxArgument()} {
		agent.MaxPrompt = longest
		x := task.Execution{AttemptID: a.ID, FollowUp: true, Prompt: strings.Repeat("y", 50_000)}
		resume, prompt, err := s.continued(ctx, b, a, agent, x)
		if longest == 0 {
			most += len(x.Prompt)
		}
		testkit.Need(t, err == nil, "%d: %d bytes, at most %d, %v", longest, len(prompt), most, err)
		testkit.Need(t, !resume, "%d: %d bytes, at most %d, %v", longest, len(prompt), most, err)
		testkit.Need(t, len(prompt) <= most, "%d: %d bytes, at most %d, %v", longest, len(prompt), most, err)
		testkit.Contains(t, prompt, x.Prompt, "%d: %d bytes, at most %d, %v", longest, len(prompt), most, err)
	}
}

// Of many executions with long texts, the newest are told.
func TestHistoryIsBounded(t *testing.T) {
	var all []task.Execution
	for range 100 {
		all = append(all, task.Execution{
			FollowUp:     true,
			Prompt:       strings.Repeat("é\n", 5000),
			State:        task.Completed,
			FinalMessage: new(strings.Repeat("x", 5000)),
		})
	}
	all[0].Prompt = "the newest"
	text := history(all)
	testkit.Need(t, len(text) <= maxHistory+200, "%d bytes: %.200s", len(text), text)
	testkit.True(t, strings.HasPrefix(text, "\nWhat was before that is left out."), "%d bytes: %.200s", len(text), text)
	testkit.Contains(t, text, "> the newest\n", "%d bytes: %.200s", len(text), text)
}

// A conversation began if an execution ran and, where that can be told, its agent reported something.
func TestHasConversation(t *testing.T) {
	now := time.Now()
	ran := func(state task.AttemptState) []task.Execution {
		return []task.Execution{{ID: "2", State: task.Failed}, {ID: "1", State: state, StartedAt: &now}}
	}
	reported := []task.Use{{ExecutionID: "1", Reported: true}}
	for name, c := range map[string]struct {
		all     []task.Execution
		used    []task.Use
		reports bool
		want    bool
	}{
		"never ran":          {[]task.Execution{{ID: "1", State: task.Failed}}, nil, false, false},
		"of no known format": {ran(task.Failed), nil, false, true},
		"reported":           {ran(task.Failed), reported, true, true},
		"reported nothing":   {ran(task.Failed), []task.Use{{ExecutionID: "1"}}, true, false},
		"another one has reported": {ran(task.Completed), []task.Use{{ExecutionID: "3", Usage: reported[0].Usage}},
			true, false},
		"its report may be missing": {ran(task.Interrupted), nil, true, true},
	} {
		testkit.Equal(t, hasConversation(c.all, c.used, c.reports), c.want, "%s", name)
	}
}

// Without git nothing is made. Claude Code that ended before it began a conversation is not asked to continue one.
func TestFollowUpAfterAFailedStart(t *testing.T) {
	p := alone(t)
	s, bin := p.open(), filepath.Join(p.Root, "..", "bin")
	must(t, errors.Join(os.MkdirAll(bin, 0o755),
		os.WriteFile(filepath.Join(bin, "claude"),
			[]byte("#!/bin/sh\ncase \"$*\" in *--continue*) echo continued; exit 0;; esac\ncat >/dev/null\necho not "+
				"logged in >&2\nexit 1\n"), 0o755)))
	v, path := s.newTask("x"), os.Getenv("PATH")
	t.Setenv("PATH", filepath.Join(p.Root, "nothing"))
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, s.starting(v))).Err(), session.StateError, "git_failed",
		"not in PATH", "install git")
	t.Setenv("PATH", bin+string(os.PathListSeparator)+path)

	p.Git(p.Root, "config", "filter.nb.clean", "cat") // such as of nbstripout --install
	testkit.Write(t, filepath.Join(p.Root, ".git", "info", "attributes"), "* filter=nb\n")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, s.starting(v))).Err(), session.StateError, "git_failed",
		"the filter nb of", "git config --global filter.nb.clean cat")
	p.Git(p.Root, "config", "--unset", "filter.nb.clean")
	r := s.ends(s.begin(v, func(a *StartArgs) { a.Executor = "CLAUDE_CODE" }).AttemptID)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("again")})
	r = s.ends(r.AttemptID)
	testkit.Equal(t, r.State, "failed")
	testkit.Contains(t, deref(r.Error), "not logged in")
	testkit.True(t, !strings.Contains(s.output(r.AttemptID), "continued"), "%s: %s\n%s", r.State, deref(r.Error),
		s.output(r.AttemptID))
}

// The agent of a task is told the inputs of its workflow, and a later one as well.
func TestPromptHasTheInputs(t *testing.T) {
	v := &task.Task{
		Title:        "Cats",
		JobName:      new("texts"),
		WorkflowName: new("write"),
		Inputs:       json.RawMessage(`{"topic":"big\n\"cats\"","drafts":["a.md","b.md"]}`),
	}
	testkit.ContainsAll(t, taskPrompt(v, nil),
		[]string{`workflow_name: "write", and with these inputs, as they are. If it`,
			"\n   - topic: \"big\\n\\\"cats\\\"\"\n   - drafts: [\"a.md\",\"b.md\"]\n2. "})
	v.Inputs = nil
	testkit.True(t, !strings.Contains(taskPrompt(v, nil), "inputs"), "it is told of inputs")
}
