package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/store"
)

// Two servers that draw the same branch in one moment: the second one draws again.
func TestBranchTakenMeanwhile(t *testing.T) {
	p, first := opened(t, passive)
	r := first.begin(first.newTask("! write a.txt x", "! commit work"))
	p.Git(p.Root, "branch", r.WorkspaceBranch)
	s := p.open()
	now := s.ends(r.AttemptID)
	testkit.Need(t, now.State == "completed", "%+v: %s", now, deref(now.Error))
	testkit.Need(t, now.WorkspaceBranch != r.WorkspaceBranch, "%+v: %s", now, deref(now.Error))
	testkit.Need(t, strings.HasPrefix(now.WorkspaceBranch, "deepwork/add-a-basket-"), "%+v: %s", now, deref(now.Error))
	testkit.Equal(t, p.Git(now.Repos[0].WorktreePath, "symbolic-ref", "--short", "HEAD"), now.WorkspaceBranch,
		"the branch of the worktree and of the board")
	testkit.Equal(t, p.Git(p.Root, "rev-parse", r.WorkspaceBranch), p.Git(p.Root, "rev-parse", "main"),
		"the other's branch was touched")
}

// unreadable is a config that cannot be read before it is good.
func (p *project) unreadable(good func() bool) func(*Options) {
	return func(o *Options) {
		o.Logger = nil
		o.Config = func(context.Context) (*config.Config, error) {
			if !good() {
				return nil, errors.New("config.yml:1:1: is not YAML")
			}
			return p.Config.Load(), nil
		}
	}
}

// What was claimed by a server that died waits while the config cannot be read: it is not a fault of the attempt's.
func TestClaimedWhileTheConfigIsBad(t *testing.T) {
	p, first := opened(t, passive)
	r := first.begin(first.newTask("! say once"))
	first.claimed()
	first.die()
	var good atomic.Bool
	s := p.open(p.unreadable(good.Load))
	testkit.Until(t, "waiting", func() bool {
		return testkit.Get(s.store().Attempt(ctx, r.AttemptID)).Must(t).State == task.Waiting
	})

	good.Store(true)
	testkit.Equal(t, s.ends(r.AttemptID).State, "completed")
}

// A run that was taken over while the config cannot be read is tried again now and then, and goes on when it can.
func TestTakenOverWhileTheConfigIsBad(t *testing.T) {
	p, first := opened(t, func(o *Options) {
		o.Leader = func(ctx context.Context, _ *Lead) board.RunEnd {
			<-ctx.Done()
			return board.RunEnd{State: board.Failed}
		}
	})
	r := first.startRun(true)
	first.reaches(r.RunID, task.Running)
	first.die()
	var good atomic.Bool
	var looks atomic.Int64
	began := time.Now()
	s := p.open(endsRuns, p.unreadable(func() bool {
		looks.Add(1)
		return good.Load()
	}))
	testkit.Until(t, "looked at 60 times", func() bool { return looks.Load() >= 60 })
	n := looks.Load()
	most := 20 + 5*int64(time.Since(began)/(20*time.Millisecond)) // a few for each poll
	testkit.True(t, n <= most, "the config was looked at %d times, want at most %d", n, most)

	good.Store(true)
	s.reaches(r.RunID, task.Completed)
}

// An absentBoard does not answer the first call of each kind that prepares an execution.
type absentBoard struct {
	store.Board
	answers *sync.Map // by the kind
}

func (b absentBoard) absent(kind string) error {
	if _, answers := b.answers.LoadOrStore(kind, true); answers {
		return nil
	}
	return fmt.Errorf("%s: %w", kind, store.ErrUnavailable)
}

func (b absentBoard) Execution(ctx context.Context, id string) (*task.Execution, error) {
	if err := b.absent("reading an execution"); err != nil {
		return nil, err
	}
	return b.Board.Execution(ctx, id)
}

func (b absentBoard) SetWorkspace(ctx context.Context, a *task.Attempt, base map[string]string) error {
	if err := b.absent("recording a workspace"); err != nil {
		return err
	}
	return b.Board.SetWorkspace(ctx, a, base)
}

func (b absentBoard) SetRun(ctx context.Context, id string, run json.RawMessage) error {
	if err := b.absent("recording a run"); err != nil {
		return err
	}
	return b.Board.SetRun(ctx, id, run)
}

// An end that finds no room on the disk is recorded when there is.
func (b absentBoard) EndExecution(ctx context.Context, id string, e task.Ending) (*task.Execution, bool, error) {
	if b.absent("recording an end") != nil {
		return nil, false, task.ErrFull
	}
	return b.Board.EndExecution(ctx, id, e)
}

// What a store that is away for a moment has kept a server from is done when it answers.
func TestTheStoreIsAwayBeforeAnAgentRuns(t *testing.T) {
	for _, run := range []bool{false, true} {
		p, answers := newProject(t), sync.Map{}
		s := p.open(func(o *Options) {
			o.Logger = nil
		}, endsRuns, p.boards(func(b store.Board) store.Board { return absentBoard{b, &answers} }))
		var id string
		if run {
			id = s.startRun(false).RunID
		} else {
			id = s.begin(s.newTask("! say hello")).AttemptID
		}
		r := s.ends(id)
		testkit.Equal(t, r.State, board.Completed, "%s", deref(r.Error))
	}
}

// What a crash has left is found where the config once had worktrees, and as soon as the config can be read.
func TestCrashesAreRecoveredInEachFolder(t *testing.T) {
	p := newProject(t)
	old := filepath.Join(p.Root, "..", "old trees")
	p.Configure(func(c *config.Config) { c.Attempts.Worktrees = old })
	first := p.open()
	r := first.ran("! write loose.txt loose")
	first.stop()
	journal := filepath.Join(first.journalOf(old), worktree.NameOf(r.Repos[0].WorktreePath)+".json")
	folder := filepath.Dir(r.Repos[0].WorktreePath)
	must(t, os.Rename(folder, folder+".removing")) // as a server that was killed has left it
	p.Configure(func(*config.Config) {})
	var looked atomic.Bool
	p.open(p.unreadable(func() bool { return looked.Swap(true) })) // from the second look on
	vanishes(t, journal)
	testkit.True(t, !Exists(folder+".removing"), "the worktrees are left")
}

// A server leaves alone the worktree of an agent of another project with the same folder of worktrees, which
// may be at work.
func TestWorktreesOfOthersAreLeftAlone(t *testing.T) {
	p, another := newProject(t), newProject(t)
	for _, each := range []*project{p, another} {
		each.Configure(func(c *config.Config) { c.Attempts.Worktrees = filepath.Join(p.Root, "..", "trees") })
	}
	s := p.open()
	r := s.runs("! write loose.txt x", "! await "+p.hold, "! write late.txt x")
	v := another.open().ran("! say x") // by then it has recovered
	testkit.True(t, v.State == "completed" && Exists(r.Repos[0].WorktreePath),
		"the worktree of an agent that runs is gone: %+v", v)

	s.die() // and its board, which knows of the agent, is moved away
	for _, f := range testkit.Get(filepath.Glob(s.boardPath() + "*")).Must(t) {
		must(t, os.Rename(f, filepath.Join(p.Root, "..", filepath.Base(f))))
	}
	v = p.open().ran("! say x")
	testkit.True(t, v.State == "completed" && Exists(r.Repos[0].WorktreePath),
		"the worktree of an agent whose board is gone is gone: %+v", v)

	must(t, os.WriteFile(p.hold, nil, 0o644))
	appears(t, filepath.Join(r.Repos[0].WorktreePath, "late.txt"))
}

// A run that this server no longer leads stops looking for its process.
func TestFindEndsWithItsContext(t *testing.T) {
	s := newProject(t).open(func(o *Options) { o.Passive, o.Logger = true, nil })
	x := task.Execution{ID: nobody, AttemptID: nobody}
	dir := executors.Local{Logs: s.State().Logs()}.Run(x.AttemptID, x.ID)
	must(t, os.MkdirAll(dir, 0o700))
	shim, err := durable.TryLock(filepath.Join(dir, "run.lock")) // one that is about to start its agent
	testkit.Need(t, err == nil && shim != nil, "%v %v", shim, err)
	defer shim.Unlock()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	must(t, os.WriteFile(filepath.Join(dir, "spec.json"), []byte("{}"), 0o600))
	(&execution{engine: s.Engine, ctx: gone, row: x}).find() // ends
}

// A stop that comes before the agent is one, not a failure.
func TestOutcomes(t *testing.T) {
	at := time.Now()
	for name, c := range map[string]struct {
		exit runner.Exit
		want task.AttemptState
		code bool   // it has an exit code
		why  string // its error
	}{
		"stopped before it ran": {runner.Exit{
			Code:       -1,
			Stopped:    true,
			NotStarted: "it was stopped before it began",
			EndedAt:    at,
		}, task.Stopped, false, ""},
		"never ran": {runner.Exit{Code: -1, NotStarted: "no such program", EndedAt: at}, task.Failed, false,
			"The agent could not be started: no such program"},
		"stopped": {runner.Exit{Code: -1, Stopped: true, Signal: "SIGTERM", EndedAt: at}, task.Stopped, true, ""},
		"killed": {runner.Exit{Code: -1, Signal: "SIGKILL", EndedAt: at}, task.Failed, true,
			"The agent was ended by SIGKILL."},
		"well":     {runner.Exit{EndedAt: at}, task.Completed, true, ""},
		"not well": {runner.Exit{Code: 3, EndedAt: at}, task.Failed, true, "The agent ended with exit code 3."},
		"with words": {runner.Exit{Code: 1, Stderr: "no network\ngiving up", EndedAt: at}, task.Failed, true,
			"The agent ended with exit code 1. Its last lines on stderr:\nno network\ngiving up"},
	} {
		o := outcomeOf(c.exit)
		testkit.Equal(t, o.State, c.want)
		testkit.Equal(t, (o.ExitCode != nil), c.code)
		testkit.Need(t, o.EndedAt != nil, "%s: %+v", name, o.Ending)
		testkit.True(t, o.EndedAt.Equal(at), "%s: %+v", name, o.Ending)
		testkit.Equal(t, deref(o.Error), c.why)
	}
}

// auto turns on attempts.auto_start.
func auto(executor string, inReview int, change ...func(*config.Config)) func(*config.Config) {
	return func(c *config.Config) {
		name, variant, _ := strings.Cut(executor, ":")
		c.Attempts.AutoStart = &config.AutoStart{Executor: name, Variant: variant, MaxInReview: inReview}
		for _, f := range change {
			f(c)
		}
	}
}

// statusOf waits until tasks have these states, in their order.
func (s *server) statusOf(all []*board.Task, want ...string) {
	s.t.Helper()
	testkit.Until(s.t, strings.Join(want, " "), func() bool {
		return slices.EqualFunc(all, want, func(v *board.Task, status string) bool {
			return s.task(v.TaskID).Status == status
		})
	})
}

// Servers start what is ready, the oldest first, each task once, with room for as many as may be in
// review; what is reviewed or unblocked makes them go on at once.
func TestAutoStart(t *testing.T) {
	p := newProject(t)
	one, two := p.open(), p.open()
	marks := filepath.Join(p.Root, "..", "marks")
	must(t, os.Mkdir(marks, 0o755))
	var all []*board.Task
	for i := range 5 {
		all = append(all, one.newTask("! once "+filepath.Join(marks, fmt.Sprint(i)), "! env MODE"))
	}
	testkit.Get(one.UpdateTask(ctx, me,
		board.UpdateTaskArgs{TaskID: all[4].TaskID, DependsOn: []string{all[2].TaskID}})).Must(t)
	p.Configure(auto("TEST:OTHER", 2))
	one.statusOf(all, "inreview", "inreview", "todo", "todo", "todo")
	testkit.ContainsAll(t, one.output(*one.task(all[0].TaskID).LatestAttemptID), []string{"agent other", "MODE=slow"})

	done := func(v *board.Task) {
		t.Helper()
		testkit.Get(two.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: v.TaskID, Status: new("done")})).Must(t)
	}
	done(all[0])
	one.statusOf(all, "done", "inreview", "inreview", "todo", "todo")
	done(all[1])
	one.statusOf(all, "done", "done", "inreview", "inreview", "todo")
	done(all[2])
	one.statusOf(all, "done", "done", "done", "inreview", "inreview")
	for _, v := range all {
		testkit.Equal(t, testkit.Get(one.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).
			Must(t).Count, 1)
	}

	// One that is off, or not approved, starts nothing; nor one that was tried.
	done(all[3])
	done(all[4])
	p.Configure(func(*config.Config) {})
	again := one.newTask("! exit 3")
	one.ends(one.begin(again).AttemptID)
	testkit.Get(one.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: again.TaskID, Status: new("todo")})).Must(t)

	withheld := auto("TEST", 9, func(c *config.Config) {
		c.Approval = &config.Approval{
			Use:      c,
			Withheld: &config.Withheld{Asked: []config.Asked{{Key: "attempts.auto_start"}}, Kept: true},
		}
	})
	p.Configure(withheld)
	fresh := one.newTask("! say hello")
	must(t, (&starter{engine: one.Engine}).startReady(ctx))
	one.statusOf([]*board.Task{again, fresh}, "todo", "todo")
	p.Configure(auto("TEST", 9))
	one.statusOf([]*board.Task{again, fresh}, "todo", "inreview")
}

// A task that another server of the board, or a command, creates is started, too; a server that is
// killed leaves each task either untouched or started, and the next one goes on.
func TestAutoStartAfterACrash(t *testing.T) {
	p := newProject(t)
	marks := filepath.Join(p.Root, "..", "marks")
	must(t, os.Mkdir(marks, 0o755))
	command := p.open(passive)
	var all []*board.Task
	for i := range 6 {
		all = append(all, command.newTask("! once "+filepath.Join(marks, fmt.Sprint(i))))
	}
	p.Configure(auto("TEST", 6, func(c *config.Config) { c.Attempts.MaxConcurrent = 2 }))
	for range 3 {
		s := p.open()
		testkit.Until(t, "running", func() bool { return s.Stats().Running > 0 })
		s.die()
	}
	s := p.open()
	for _, v := range all {
		testkit.Until(t, "started", func() bool { return s.task(v.TaskID).LatestAttemptID != nil })
		testkit.Equal(t, s.ends(*s.task(v.TaskID).LatestAttemptID).State, "completed")
	}
	for _, v := range all {
		testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).
			Must(t).Count, 1)
	}
}

// What cannot be started is logged once, and does not keep other tasks waiting. A budget that is
// reached, and tasks of those who may not start agents, start nothing.
func TestAutoStartRefused(t *testing.T) {
	p := newProject(t)
	other := filepath.Join(p.Root, "..", "other")
	p.Repo(other)
	p.Git(other, "checkout", "-q", "--detach")
	projects := func(c *config.Config) {
		c.Projects = []config.Project{{Name: "other", Repos: []config.Repo{{Path: "../other"}}}}
	}
	p.Configure(auto("NOBODY", 9, projects))
	var log testkit.Log
	s := p.open(func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	elsewhere, _ := s.project("other")
	stuck := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: elsewhere, Title: "Elsewhere"})).Must(t)
	fine := s.newTask("! say hello")
	logged := func(text string) {
		t.Helper()
		testkit.Until(t, "logged once: "+text, func() bool { return log.Count(text) == 1 })
	}
	logged("There is no executor")
	p.Configure(auto("TEST", 9, projects))
	s.statusOf([]*board.Task{fine, stuck}, "inreview", "todo")
	logged("no branch is checked out in ")
	s.statusOf([]*board.Task{s.newTask("! say hello")}, "inreview") // and the other was passed over again
	testkit.Equal(t, log.Count("no branch is checked out in "), 1, "it was logged … times")

	p.Git(other, "checkout", "-q", "main")
	p.Configure(auto("TEST", 9, projects)) // as an edit; otherwise after a pause
	s.statusOf([]*board.Task{stuck}, "inreview")
	guest := testkit.Get(s.CreateTask(ctx, session.Caller{Identity: "guest"},
		board.CreateTaskArgs{ProjectID: fine.ProjectID, Title: "Do as I say"})).Must(t)
	s.statusOf([]*board.Task{s.newTask("! say hello"), guest}, "inreview", "todo")
	p.Configure(auto("TEST", 9, projects, func(c *config.Config) { c.Attempts.MaxUnknown = &config.Limit{Max: 4} }))
	over := s.newTask("! say hello")
	must(t, (&starter{engine: s.Engine}).startReady(ctx))
	s.statusOf([]*board.Task{over}, "todo")
	p.Configure(auto("TEST", 9, projects, func(c *config.Config) { c.Attempts.MaxUnknown = &config.Limit{Max: 5} }))
	s.statusOf([]*board.Task{over, guest}, "inreview", "todo")
}

// However many attempts wait on 4 slots of two servers: never more than 4 run, only those that run when the
// budget is reached exceed it, all end when it is raised, nothing is left locked, and git is whole.
func TestFiftyAttemptsOnFourSlots(t *testing.T) {
	const slots = 4
	attempts := 16
	if os.Getenv("DEEPWORK_FIGURES") == "1" {
		attempts = 50
	}
	p := newProject(t)
	budget := func(usd float64) {
		p.Configure(func(c *config.Config) {
			c.Attempts.MaxConcurrent = slots
			upTo(usd)(c)
		})
	}
	budget(100)
	dir := filepath.Join(p.Root, "..", "slots")
	must(t, os.Mkdir(dir, 0o755))
	one, two := p.open(func(o *Options) { o.Poll = time.Second }), p.open()
	v := one.newTask("! slot "+dir, "! await "+p.hold, "! write file.txt x", "! commit work", costs("0.1"))
	ids := make([]string, attempts)
	var wg sync.WaitGroup
	for i := range ids {
		s := []*server{one, two}[i%2]
		wg.Go(func() { ids[i] = s.begin(v).AttemptID })
	}
	wg.Wait()
	budget(0.5)
	must(t, os.WriteFile(p.hold, nil, 0o644))
	testkit.Until(t, "at the budget", func() bool {
		return len(testkit.Get(one.Reached(ctx, one.store(), p.Config.Load())).Must(t)) > 0
	})

	ran := map[task.AttemptState]int{}
	testkit.Until(t, "without agents", func() bool {
		clear(ran)
		for _, a := range testkit.Get(one.store().AllAttempts(ctx)).Must(t) {
			ran[a.State]++
		}
		return ran[task.Completed]+ran[task.Waiting] == attempts
	})
	testkit.True(t, ran[task.Completed] >= 5 && ran[task.Completed] <= 5+slots-1,
		"%v of 0.1 USD each with a budget of 0.5 and %d slots", ran, slots)

	for _, s := range []*server{one, two} { // and neither starts more
		testkit.Equal(t, testkit.Get(
			s.store().ClaimNext(ctx, s.Members.ID(), slots, nil, board.Limits(p.Config.Load()))).Must(t), nil)
	}

	budget(100)
	branches := map[string]bool{}
	for _, id := range ids {
		r := one.ends(id)
		testkit.True(t, r.State == "completed" && r.Repos[0].Ahead == 1, "%+v", r)
		branches[r.WorkspaceBranch] = true
	}
	testkit.Equal(t, len(branches), attempts, "branches of the attempts")

	marks, most := testkit.Get(filepath.Glob(filepath.Join(dir, "saw-*"))).Must(t), 0
	for _, m := range marks {
		n := 0
		fmt.Sscanf(filepath.Base(m), "saw-%d-", &n)
		most = max(most, n)
	}
	testkit.Need(t, len(marks) == attempts, "%d agents ran, %d at once at most", len(marks), most)
	testkit.True(t, most <= slots, "%d agents ran, %d at once at most", len(marks), most)
	testkit.True(t, most >= 2, "%d agents ran, %d at once at most", len(marks), most)
	testkit.Until(t, "counted by the servers", func() bool { // when the board has it
		a, b := one.Stats(), two.Stats()
		return a.Ended[task.Completed]+b.Ended[task.Completed] == uint64(attempts) &&
			a.Started+b.Started == uint64(attempts)
	})

	out := p.Git(p.Root, "fsck", "--full", "--strict")
	testkit.True(t, !strings.Contains(out, "error") && !strings.Contains(out, "missing"), "git fsck: %s", out)
	out = p.Git(p.Root, "worktree", "list", "--porcelain")
	testkit.True(t, !strings.Contains(out, "locked"), "git worktree list: %s", out)
	testkit.True(t, !strings.Contains(out, "prunable"), "git worktree list: %s", out)
	testkit.Equal(t, strings.Count(out, "worktree "), attempts+1, "git worktree list: %s", out)

	locks, _ := filepath.Glob(filepath.Join(p.Root, ".git", "worktrees", "*", "*.lock"))
	testkit.True(t, locks == nil, "lock files are left: %v", locks)
}
