package attempt

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/state"
	"deepwork/session/store"
	files "deepwork/session/store/local"
	"deepwork/session/store/local/sqlite"
)

// An agent outlives its server: a later one takes it up and it goes on, and its queued follow-up runs.
func TestAgentOutlivesServer(t *testing.T) {
	for name, end := range map[string]func(*server){"ended": (*server).stop, "killed": (*server).die} {
		t.Run(name, func(t *testing.T) {
			p, s := opened(t)
			hold, once := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "once")
			v := s.newTask("! once "+once, "! write work.txt x", "! await "+hold)
			r := s.reaches(s.begin(v).AttemptID, task.Running)
			s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say and on")})
			end(s)
			next := p.open()
			now := next.get(r.AttemptID)
			testkit.True(t, now.State == "running" && deref(now.StartedAt) == deref(r.StartedAt), "taken up: %+v", now)
			must(t, os.WriteFile(hold, nil, 0o644))
			next.prints(r.AttemptID, "and on\ndone")
			r = next.reaches(r.AttemptID, task.Completed)
			testkit.True(t, deref(r.LatestSessionID) != "" && strings.Join(r.Repos[0].ChangedFiles, " ") == "work.txt", "%+v", r)
			testkit.Equal(t, next.task(v.TaskID).Status, "inreview")
		})
	}
}

// An engine of the command line records how agents ended that outlived their server, and when, leaves those that run alone,
// and stops them when it is asked to.
func TestSettle(t *testing.T) {
	p, s := opened(t)
	hold := filepath.Join(p.Root, "..", "hold")
	good, bad := s.begin(s.newTask("! await "+hold)), s.begin(s.newTask("! await "+hold, "! exit 5"))
	runs := s.begin(s.newTask("! await " + hold + "-never"))
	for _, r := range []*AttemptReply{good, bad, runs} {
		s.reaches(r.AttemptID, task.Running)
	}
	s.die()
	must(t, os.WriteFile(hold, nil, 0o644))
	var last time.Time
	for _, r := range []*AttemptReply{good, bad} {
		proc := testkit.Get(s.local.Find(ctx, r.AttemptID, filepath.Base(s.runOf(r.AttemptID)))).Must(t)
		last = testkit.Get(proc.Wait(ctx)).Must(t).EndedAt
	}

	c := p.open(func(o *Options) {
		o.Passive, o.Stores = true, files.Stores(state.Of(p.Root), false, nil)
		o.Stores.Database = sqlite.New(sqlite.Options{Path: state.Of(p.Root).Database(), Now: func() time.Time { return last.Add(time.Hour) }})
		t.Cleanup(func() { o.Stores.Database.Close() })
	})
	waits := c.begin(c.newTask("! say never"))
	must(t, c.Settle(ctx))
	good, bad = c.get(good.AttemptID), c.get(bad.AttemptID)
	at := testkit.Get(time.Parse(time.RFC3339Nano, deref(good.EndedAt))).Must(t) // not an hour later, when it was noticed
	testkit.True(t, good.State == "completed" && last.Sub(at).Abs() <= time.Minute, "%+v, ended at %v, and it was about %v", good, at, last)
	testkit.True(t, bad.State == "failed" && bad.ExitCode != nil && *bad.ExitCode == 5, "the one that failed: %+v", bad)
	testkit.Equal(t, c.get(runs.AttemptID).State, "running", "the one that runs")
	testkit.Equal(t, c.stopAttempt(runs.AttemptID).State, "stopped", "stopped")
	testkit.Equal(t, c.get(waits.AttemptID).State, "queued", "the one that waits")
	c.Serve()
	c.reaches(waits.AttemptID, task.Completed)
}

// A run cut short says interrupted, never completed; it is not run again unasked,
// and what was queued does not run. A follow-up goes on.
func TestInterrupted(t *testing.T) {
	p, s := opened(t)
	once, up := filepath.Join(p.Root, "..", "once"), filepath.Join(p.Root, "..", "up")
	v := s.newTask("! write work.txt x", "! once "+once, "! touch "+up, "! sleep 1h")
	r := s.begin(v)
	s.reaches(r.AttemptID, task.Running)
	eventually(t, func() string {
		// The number of its process may be on its way to the file.
		if pid, _ := os.ReadFile(up); len(pid) == 0 || !strings.Contains(s.output(r.AttemptID), "agent first") { // which its shim writes down
			return "the agent is not up"
		}
		return ""
	})
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	s.die()
	must(t, killShim(t, s.runOf(r.AttemptID)))
	next := p.open()
	r = next.ends(r.AttemptID)
	testkit.True(t, r.State == "interrupted" && r.ExitCode == nil && r.QueuedFollowUp == nil && r.Error != nil && strings.Join(r.Repos[0].ChangedFiles, " ") == "work.txt", "%+v", r)
	now := next.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && now.LastAttemptFailed, "%+v", now)
	groupEnds(t, up)
	next.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say on")})
	r = next.ends(r.AttemptID)
	out := next.output(r.AttemptID)
	testkit.True(t, r.State == "completed" && !strings.Contains(out, "never") && strings.Count(out, "agent first") == 1, "%s: %s", r.State, out)
}

// An execution that a dead server had claimed and never begun is begun by the
// next, on the workspace that is half made or was made already.
func TestClaimedAndNeverRun(t *testing.T) {
	for _, where := range []string{"claimed", "workspace made and not recorded", "workspace made"} {
		t.Run(where, func(t *testing.T) {
			p, first := opened(t, passive)
			r := first.begin(first.newTask("! say once"))
			_, at := first.claimed()
			switch where {
			case "workspace made":
				must(t, first.makeWorkspace(ctx, first.store(), p.Config.Load(), at, nil))
			case "workspace made and not recorded":
				first.makeTrees(at)
			}
			first.die()
			next := p.open()
			r = next.ends(r.AttemptID)
			testkit.Equal(t, r.State, "completed")
			testkit.Equal(t, strings.Count(next.output(r.AttemptID), "once"), 1)
		})
	}
}

// An attempt that failed before its workspace was recorded, and whose worktrees a
// full disk kept from being undone, leaves none: the next start undoes them.
func TestFailedBeforeItsWorkspace(t *testing.T) {
	p, first := opened(t, passive)
	r := first.begin(first.newTask("! say never"))
	x, at := first.claimed()
	first.makeTrees(at)
	_, _, err := first.store().EndExecution(ctx, x.ID, task.Ending{State: task.Failed, Error: new("no room")})
	must(t, err)
	first.die()
	next := p.open()
	testkit.Until(t, "without worktrees", func() bool { return !strings.Contains(p.Git(p.Root, "worktree", "list"), "\n") })
	now := next.get(r.AttemptID)
	testkit.True(t, now.State == "failed" && !now.Repos[0].Exists, "%+v", now)
}

// A server that ends in order gives back what it has not started, at once.
func TestCloseReleasesWhatNeverRan(t *testing.T) {
	p := newProject(t)
	up := filepath.Join(p.Root, "..", "up")
	p.Configure(func(c *config.Config) {
		c.Attempts.Setup = []string{os.Args[0], "agent", "setup", "! touch " + up + "\n! sleep 1h"}
	})
	s := p.open()
	r := s.begin(s.newTask("! say once"))
	appears(t, up)
	s.stop()
	looking := p.open(passive)
	testkit.Equal(t, looking.get(r.AttemptID).State, "queued")
	testkit.Equal(t, strings.Count(p.Git(p.Root, "worktree", "list"), "\n"), 0, "worktrees are left")
	p.Configure(func(*config.Config) {})
	next := p.open()
	testkit.Equal(t, next.ends(r.AttemptID).State, "completed")
}

// killShim kills the shim of a run, as the system may when it is out of memory.
func killShim(t *testing.T, run string) error {
	var started struct {
		PID int `json:"shim_pid"`
	}
	must(t, json.Unmarshal(testkit.Get(os.ReadFile(filepath.Join(run, "started.json"))).Must(t), &started))
	return testkit.Get(os.FindProcess(started.PID)).Must(t).Kill()
}

// makeTrees makes the worktrees of an attempt, and records nothing.
func (s *server) makeTrees(a *task.Attempt) {
	s.t.Helper()
	var trees []worktree.Tree
	for _, r := range a.Repos {
		trees = append(trees, worktree.Tree{RepoID: r.RepoID, Name: filepath.Base(r.Worktree), Repo: r.RepoPath, TargetBranch: r.TargetBranch})
	}
	testkit.Get(s.Worktrees(a).Create(ctx, a.ID, a.Branch, trees, nil)).Must(s.t)
}

// If somebody removes the records of a run, nothing is known of it.
func TestRecordsRemoved(t *testing.T) {
	p, s := opened(t)
	hold := filepath.Join(p.Root, "..", "hold")
	r := s.begin(s.newTask("! await " + hold))
	s.reaches(r.AttemptID, task.Running)
	must(t, os.RemoveAll(s.records(r.AttemptID)))
	must(t, os.WriteFile(hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "interrupted" && strings.Contains(deref(r.Error), "records"), "%+v: %s", r, deref(r.Error))
}

// faulty panics in the first calls of Wait.
type faulty struct {
	Executor
	calls atomic.Int32
}

type faultyProcess struct {
	Process
	of *faulty
}

func (f *faulty) Start(ctx context.Context, w Work) (Process, error) {
	p, err := f.Executor.Start(ctx, w)
	return faultyProcess{p, f}, err
}

func (f *faulty) Find(ctx context.Context, attempt, execution string) (Process, error) {
	p, err := f.Executor.Find(ctx, attempt, execution)
	return faultyProcess{p, f}, err
}

func (p faultyProcess) Wait(ctx context.Context) (runner.Exit, error) {
	if p.of.calls.Add(1) <= 3 {
		panic("a fault of the program")
	}
	return p.Process.Wait(ctx)
}

// A run that crashes begins again from the board and what the executor knows: the
// agent goes on, once, and its end is recorded.
func TestRunCrashes(t *testing.T) {
	p := newProject(t)
	hold, once := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "once")
	f := &faulty{}
	s := p.open(func(o *Options) { o.Logger, o.Executors = nil, map[string]Executor{"TEST": f} })
	f.Executor = commandLine{s.local, s.Engine, "TEST"}
	r := s.begin(s.newTask("! once "+once, "! await "+hold))
	s.reaches(r.AttemptID, task.Running)
	must(t, os.WriteFile(hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "completed" && f.calls.Load() > 3, "%+v after %d calls", r, f.calls.Load())
}

// An execution that ended while the list of those that are open was on its way is not led again from it:
// its second end would write over what a follow-up does.
func TestWhatHasEndedIsNotLedAgain(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	slow := &slowed{read: make(chan struct{}), pass: make(chan struct{})}
	s := p.open(p.boards(func(b store.Board) store.Board { return slowBoard{b, slow} }))
	id := s.begin(s.newTask("! await " + hold)).AttemptID
	s.reaches(id, task.Running)
	slow.hold.Store(true)
	<-slow.read
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(id)
	testkit.Until(t, "left alone", func() bool { return len(s.led()) == 0 })
	close(slow.pass)
	again := slow.lists.Load() + 2 // the second begins after what the first has returned is led
	testkit.Until(t, "looked at again", func() bool { return slow.lists.Load() >= again && len(s.led()) == 0 })
	testkit.Equal(t, slow.ends.Load(), 1, "its end was recorded … times")
}

// A slowBoard keeps a list of the open executions back for once, after it has read it, and counts.
type slowBoard struct {
	store.Board
	of *slowed
}

type slowed struct {
	hold        atomic.Bool   // the next list
	read        chan struct{} // closed when it was read
	pass        chan struct{} // closed by the test
	lists, ends atomic.Int32
}

func (b slowBoard) OpenExecutions(ctx context.Context) ([]task.Execution, error) {
	b.of.lists.Add(1)
	all, err := b.Board.OpenExecutions(ctx)
	if len(all) > 0 && b.of.hold.CompareAndSwap(true, false) {
		close(b.of.read)
		<-b.of.pass
	}
	return all, err
}

func (b slowBoard) EndExecution(ctx context.Context, id string, e task.Ending) (*task.Execution, bool, error) {
	b.of.ends.Add(1)
	return b.Board.EndExecution(ctx, id, e)
}
