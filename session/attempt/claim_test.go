package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
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
	testkit.Need(t, now.State == "completed" && now.WorkspaceBranch != r.WorkspaceBranch && strings.HasPrefix(now.WorkspaceBranch, "deepwork/add-a-basket-"), "%+v: %s", now, deref(now.Error))
	testkit.Equal(t, p.Git(now.Repos[0].WorktreePath, "symbolic-ref", "--short", "HEAD"), now.WorkspaceBranch, "the branch of the worktree and of the board")
	testkit.Equal(t, p.Git(p.Root, "rev-parse", r.WorkspaceBranch), p.Git(p.Root, "rev-parse", "main"), "the other's branch was touched")
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

// What was claimed by a server that died waits while the config cannot be read: it is no fault of the attempt's.
func TestClaimedWhileTheConfigIsBad(t *testing.T) {
	p, first := opened(t, passive)
	r := first.begin(first.newTask("! say once"))
	first.claimed()
	first.die()
	var good atomic.Bool
	s := p.open(p.unreadable(good.Load))
	testkit.Until(t, "waiting", func() bool { return testkit.Get(s.store().Attempt(ctx, r.AttemptID)).Must(t).State == task.Waiting })
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
	s := p.open(endsRuns, p.unreadable(func() bool { looks.Add(1); return good.Load() }))
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

func (b absentBoard) SetWorkspace(ctx context.Context, id string, base map[string]string) error {
	if err := b.absent("recording a workspace"); err != nil {
		return err
	}
	return b.Board.SetWorkspace(ctx, id, base)
}

func (b absentBoard) SetRun(ctx context.Context, id string, run json.RawMessage) error {
	if err := b.absent("recording a run"); err != nil {
		return err
	}
	return b.Board.SetRun(ctx, id, run)
}

// What a store that is away for a moment has kept a server from is done when it answers.
func TestTheStoreIsAwayBeforeAnAgentRuns(t *testing.T) {
	for _, run := range []bool{false, true} {
		p, answers := newProject(t), sync.Map{}
		s := p.open(func(o *Options) { o.Logger = nil }, endsRuns, p.boards(func(b store.Board) store.Board { return absentBoard{b, &answers} }))
		r := s.begin(s.newTask("! say hello"))
		if run {
			r.AttemptID = s.startRun(false).RunID
		}
		r = s.ends(r.AttemptID)
		testkit.Equal(t, r.State, board.Completed, "%s", deref(r.Error))
	}
}

// What a crash has left is found where the config once had worktrees, and as soon as the config can be read.
func TestCrashesAreRecoveredInEachFolder(t *testing.T) {
	p := newProject(t)
	old := filepath.Join(p.Root, "..", "old trees")
	p.Configure(func(c *config.Config) { c.Attempts.Worktrees = old })
	first := p.open()
	r := first.ends(first.begin(first.newTask("! write loose.txt loose")).AttemptID)
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

// Two projects may have their worktrees in one folder.
func TestProjectsShareAFolderOfWorktrees(t *testing.T) {
	one, two := newProject(t), newProject(t)
	trees := filepath.Join(one.Root, "..", "trees")
	hold := filepath.Join(one.Root, "..", "hold")
	for _, p := range []*project{one, two} {
		p.Configure(func(c *config.Config) { c.Attempts.Worktrees = trees })
	}
	s := one.open()
	r := s.begin(s.newTask("! write loose.txt x", "! await "+hold))
	r = s.reaches(r.AttemptID, task.Running)
	other := two.open()
	v := other.ends(other.begin(other.newTask("! say x")).AttemptID) // by then it has recovered
	other.stop()
	testkit.True(t, v.State == "completed" && Exists(r.Repos[0].WorktreePath), "the worktree of an agent that runs is gone: %+v", v)
	must(t, os.WriteFile(hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "completed" && strings.Join(r.Repos[0].ChangedFiles, " ") == "loose.txt", "%+v", r)
}

// A board that was moved away knows no attempt, and an agent may be at work.
func TestAgentOutlivesItsBoard(t *testing.T) {
	p, s := opened(t)
	hold := filepath.Join(p.Root, "..", "hold")
	r := s.begin(s.newTask("! write loose.txt x", "! await "+hold, "! write late.txt x"))
	r = s.reaches(r.AttemptID, task.Running)
	s.die()
	moved := t.TempDir()
	for _, f := range testkit.Get(filepath.Glob(s.boardPath() + "*")).Must(t) {
		must(t, os.Rename(f, filepath.Join(moved, filepath.Base(f))))
	}
	next := p.open()
	v := next.ends(next.begin(next.newTask("! say x")).AttemptID)
	next.stop()
	testkit.True(t, v.State == "completed" && Exists(r.Repos[0].WorktreePath), "the worktree of an agent that runs is gone: %+v", v)
	must(t, os.WriteFile(hold, nil, 0o644))
	appears(t, filepath.Join(r.Repos[0].WorktreePath, "late.txt"))
}

// A run that this server no longer leads stops looking for its process.
func TestFindEndsWithItsContext(t *testing.T) {
	s := newProject(t).open(func(o *Options) { o.Passive, o.Logger = true, nil })
	x := task.Execution{ID: nobody, AttemptID: nobody}
	dir := local{logs: s.State().Logs()}.run(x.AttemptID, x.ID)
	must(t, os.MkdirAll(dir, 0o700))
	shim, err := durable.TryLock(filepath.Join(dir, "run.lock")) // one that is about to start its agent
	testkit.Need(t, err == nil && shim != nil, "%v %v", shim, err)
	defer shim.Unlock()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	must(t, os.WriteFile(filepath.Join(dir, "spec.json"), []byte("{}"), 0o600))
	done := make(chan struct{})
	go func() { defer close(done); (&execution{engine: s.Engine, ctx: gone, row: x}).find() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it goes on looking")
	}
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
		"stopped before it ran": {runner.Exit{Code: -1, Stopped: true, NotStarted: "it was stopped before it began", EndedAt: at}, task.Stopped, false, ""},
		"never ran":             {runner.Exit{Code: -1, NotStarted: "no such program", EndedAt: at}, task.Failed, false, "The agent could not be started: no such program"},
		"stopped":               {runner.Exit{Code: -1, Stopped: true, Signal: "SIGTERM", EndedAt: at}, task.Stopped, true, ""},
		"killed":                {runner.Exit{Code: -1, Signal: "SIGKILL", EndedAt: at}, task.Failed, true, "The agent was ended by SIGKILL."},
		"well":                  {runner.Exit{EndedAt: at}, task.Completed, true, ""},
		"not well":              {runner.Exit{Code: 3, EndedAt: at}, task.Failed, true, "The agent ended with exit code 3."},
		"with words":            {runner.Exit{Code: 1, Stderr: "no network\ngiving up", EndedAt: at}, task.Failed, true, "The agent ended with exit code 1. Its last lines on stderr:\nno network\ngiving up"},
	} {
		o := outcomeOf(c.exit)
		testkit.True(t, o.State == c.want && (o.ExitCode != nil) == c.code && o.EndedAt != nil && o.EndedAt.Equal(at) && deref(o.Error) == c.why, "%s: %+v", name, o.Ending)
	}
}
