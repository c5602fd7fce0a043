package attempt

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/state"
	"deepwork/session/store"
	files "deepwork/session/store/local"
	"deepwork/session/store/local/sqlite"
)

// An agent outlives its server: a later one takes it up and it goes on, and its
// queued follow-up runs.
func TestAgentOutlivesServer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*server){"ended": (*server).stop, "killed": (*server).die} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			hold, once := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "once")
			s := p.open()
			v := s.newTask("! once "+once, "! write work.txt x", "! await "+hold)
			r := s.begin(v)
			r = s.reaches(r.AttemptID, task.Running)
			s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say and on")})
			end(s)
			next := p.open()
			now := next.get(r.AttemptID)
			testkit.True(t, now.State == "running" && deref(now.StartedAt) == deref(r.StartedAt), "taken up: %+v", now)
			must(t, os.WriteFile(hold, nil, 0o644))
			eventually(t, func() string {
				if out := next.output(r.AttemptID); !strings.Contains(out, "and on\ndone") {
					return out
				}
				return ""
			})
			if r := next.reaches(r.AttemptID, task.Completed); deref(r.LatestSessionID) == "" || strings.Join(r.Repos[0].ChangedFiles, " ") != "work.txt" {
				t.Errorf("%+v", r)
			}
			testkit.Equal(t, next.task(v.TaskID).Status, "inreview")
		})
	}
}

// An engine of the command line records how agents ended that outlived their server, leaves those that
// run alone, and stops them when it is asked to.
func TestSettle(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	s := p.open()
	ended := s.begin(s.newTask("! await "+hold, "! exit 5"))
	runs := s.begin(s.newTask("! await " + hold + "-never"))
	for _, id := range []string{ended.AttemptID, runs.AttemptID} {
		s.reaches(id, task.Running)
	}
	dirs := testkit.Get(filepath.Glob(filepath.Join(s.records(ended.AttemptID), "runs", "*"))).Must(t)
	proc := testkit.Get(s.local.Find(ctx, ended.AttemptID, filepath.Base(dirs[0]))).Must(t)
	s.die()
	must(t, os.WriteFile(hold, nil, 0o644))
	testkit.Get(proc.Wait(ctx)).Must(t)

	c := p.open(func(o *Options) { o.Passive = true })
	waits := c.begin(c.newTask("! say never"))
	must(t, c.Settle(ctx))
	x := c.get(ended.AttemptID)
	testkit.True(t, x.State == "failed" && x.ExitCode != nil && *x.ExitCode == 5, "the one that ended: %+v", x)
	testkit.Equal(t, c.get(runs.AttemptID).State, "running", "the one that runs")
	testkit.Equal(t, testkit.Get(c.StopAttempt(ctx, me, AttemptArgs{the(runs.AttemptID)})).Must(t).State, "stopped", "stopped")
	testkit.Equal(t, c.get(waits.AttemptID).State, "queued", "the one that waits")
	all := testkit.Get(c.FindAttempts(ctx, me, runs.AttemptID[:8])).Must(t)
	testkit.True(t, len(all) == 1 && all[0].ID == runs.AttemptID, "found %+v", all)
	stranger := testkit.Get(c.FindAttempts(ctx, session.Caller{Identity: "ann"}, "")).Must(t)
	testkit.Equal(t, len(stranger), 0, "a stranger found %+v", stranger)
	c.Serve()
	c.reaches(waits.AttemptID, task.Completed)
}

// What ended while no server lived is recorded as what it was.
func TestEndedWithoutServer(t *testing.T) {
	p := newProject(t)
	hold, gone := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "gone")
	s := p.open()
	good := s.begin(s.newTask("! await " + hold))
	bad := s.begin(s.newTask("! await "+hold, "! touch "+gone, "! exit 5"))
	s.reaches(good.AttemptID, task.Running)
	s.reaches(bad.AttemptID, task.Running)
	dirs := testkit.Get(filepath.Glob(filepath.Join(s.records("*"), "runs", "*"))).Must(t)
	s.die()
	must(t, os.WriteFile(hold, nil, 0o644))
	var last time.Time
	for _, dir := range dirs {
		proc := testkit.Get(s.local.Find(ctx, filepath.Base(filepath.Dir(filepath.Dir(dir))), filepath.Base(dir))).Must(t)
		exit := testkit.Get(proc.Wait(ctx)).Must(t)
		last = exit.EndedAt
	}
	next := p.open(func(o *Options) {
		o.Stores = files.Stores(state.Of(p.Root), false, nil)
		o.Stores.Database = sqlite.New(sqlite.Options{Path: state.Of(p.Root).Database(), Now: func() time.Time { return last.Add(time.Hour) }})
		t.Cleanup(func() { o.Stores.Database.Close() })
	})
	r := next.ends(good.AttemptID)
	at, err := time.Parse(time.RFC3339Nano, deref(r.EndedAt))
	if r.State != "completed" || err != nil || last.Sub(at).Abs() > time.Minute { // not an hour later, when it was noticed
		t.Errorf("%+v, ended at %s, and it was about %v", r, deref(r.EndedAt), last)
	}
	if r := next.ends(bad.AttemptID); r.State != "failed" || *r.ExitCode != 5 {
		t.Errorf("%+v", r)
	}
}

// A run cut short says interrupted, never completed; it is not run again unasked,
// and what was queued does not run. A follow-up goes on.
func TestInterrupted(t *testing.T) {
	p := newProject(t)
	once, up := filepath.Join(p.Root, "..", "once"), filepath.Join(p.Root, "..", "up")
	s := p.open()
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
	killShim(t, s, r.AttemptID)
	next := p.open()
	r = next.ends(r.AttemptID)
	testkit.True(t, r.State == "interrupted" && r.ExitCode == nil && r.QueuedFollowUp == nil && r.Error != nil && strings.Join(r.Repos[0].ChangedFiles, " ") == "work.txt", "%+v", r)
	now := next.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && now.LastAttemptFailed, "%+v", now)
	pid := testkit.Get(os.ReadFile(up)).Must(t)
	n := testkit.Get(strconv.Atoi(string(pid))).Must(t)
	groupEnds(t, n)
	next.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say on")})
	r = next.ends(r.AttemptID)
	out := next.output(r.AttemptID)
	testkit.True(t, r.State == "completed" && !strings.Contains(out, "never") && strings.Count(out, "agent first") == 1, "%s: %s", r.State, out)
}

// An execution that a dead server had claimed and never begun is begun by the
// next, on the workspace that is half made or was made already.
func TestClaimedAndNeverRun(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"claimed", "workspace made and not recorded", "workspace made"} {
		t.Run(where, func(t *testing.T) {
			p := newProject(t)
			first := p.open(func(o *Options) { o.Passive = true })
			r := first.begin(first.newTask("! say once"))
			b := testkit.Get(first.Store(ctx)).Must(t)
			_, at := first.claimed()
			switch where {
			case "workspace made":
				must(t, first.makeWorkspace(ctx, b, p.Config.Load(), at, nil))
			case "workspace made and not recorded":
				k := first.Worktrees(at)
				testkit.Get(k.Create(ctx, at.ID, at.Branch, treesOf(at), nil)).Must(t)
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
	p := newProject(t)
	first := p.open(func(o *Options) { o.Passive = true })
	r := first.begin(first.newTask("! say never"))
	b := testkit.Get(first.Store(ctx)).Must(t)
	x, at := first.claimed()
	k := first.Worktrees(at)
	testkit.Get(k.Create(ctx, at.ID, at.Branch, treesOf(at), nil)).Must(t)
	_, _, err := b.EndExecution(ctx, x.ID, task.Ending{State: task.Failed, Error: new("no room")})
	must(t, err)
	first.die()
	next := p.open()
	eventually(t, func() string {
		if list := p.Git(p.Root, "worktree", "list"); strings.Count(list, "\n") != 0 {
			return "worktrees are left:\n" + list
		}
		return ""
	})
	now := next.get(r.AttemptID)
	testkit.True(t, now.State == "failed" && !now.Repos[0].Exists, "%+v", now)
}

// A server that ends in order gives back what it has not started, at once.
func TestCloseReleasesWhatNeverRan(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	up := filepath.Join(p.Root, "..", "up")
	p.Configure(func(c *config.Config) {
		c.Attempts.Setup = []string{os.Args[0], "agent", "setup", "! touch " + up + "\n! sleep 1h"}
	})
	s := p.open()
	r := s.begin(s.newTask("! say once"))
	appears(t, up)
	s.stop()
	looking := p.open(func(o *Options) { o.Passive = true })
	testkit.Equal(t, looking.get(r.AttemptID).State, "queued")
	testkit.Equal(t, strings.Count(p.Git(p.Root, "worktree", "list"), "\n"), 0, "worktrees are left")
	p.Configure(func(*config.Config) {})
	next := p.open()
	testkit.Equal(t, next.ends(r.AttemptID).State, "completed")
}

// killShim kills the shim of an attempt's run, as the system may when it is out
// of memory.
func killShim(t *testing.T, s *server, attempt string) {
	t.Helper()
	dirs := testkit.Get(filepath.Glob(filepath.Join(s.records(attempt), "runs", "*"))).Must(t)
	for _, dir := range dirs {
		text := testkit.Get(os.ReadFile(filepath.Join(dir, "started.json"))).Must(t)
		var started struct {
			PID int `json:"shim_pid"`
		}
		must(t, json.Unmarshal(text, &started))
		proc := testkit.Get(os.FindProcess(started.PID)).Must(t)
		must(t, proc.Kill())
	}
}

func treesOf(a *task.Attempt) []worktree.Tree {
	var trees []worktree.Tree
	for _, r := range a.Repos {
		trees = append(trees, worktree.Tree{RepoID: r.RepoID, Name: filepath.Base(r.Worktree), Repo: r.RepoPath, TargetBranch: r.TargetBranch})
	}
	return trees
}

// If somebody removes the records of a run, nothing is known of it.
func TestRecordsRemoved(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	s := p.open()
	r := s.begin(s.newTask("! await " + hold))
	s.reaches(r.AttemptID, task.Running)
	must(t, os.RemoveAll(s.records(r.AttemptID)))
	must(t, os.WriteFile(hold, nil, 0o644))
	if r := s.ends(r.AttemptID); r.State != "interrupted" || !strings.Contains(deref(r.Error), "records") {
		t.Errorf("%+v: %s", r, deref(r.Error))
	}
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
	if err != nil {
		return nil, err
	}
	return faultyProcess{p, f}, nil
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
	t.Parallel()
	p := newProject(t)
	hold, once := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "once")
	f := &faulty{}
	s := p.open(func(o *Options) { o.Logger, o.Executors = nil, map[string]Executor{"TEST": f} })
	f.Executor = commandLine{s.local, s.Engine, "TEST"}
	r := s.begin(s.newTask("! once "+once, "! await "+hold))
	s.reaches(r.AttemptID, task.Running)
	must(t, os.WriteFile(hold, nil, 0o644))
	if r := s.ends(r.AttemptID); r.State != "completed" || f.calls.Load() <= 3 {
		t.Errorf("%+v after %d calls", r, f.calls.Load())
	}
}

// An execution that ended while the list of those that are open was on its way is not led again from it:
// its second end would write over what a follow-up does.
func TestWhatHasEndedIsNotLedAgain(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	slow := &slowStore{read: make(chan struct{}), pass: make(chan struct{})}
	s := p.open(func(o *Options) {
		o.Stores = p.StoresWith(func(d store.Database) store.Database {
			slow.Database = d
			return slow
		})
	})
	id := s.begin(s.newTask("! await " + hold)).AttemptID
	s.reaches(id, task.Running)
	slow.hold.Store(true)
	<-slow.read
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(id)
	eventually(t, func() string {
		if len(s.led()) > 0 {
			return "it is led still"
		}
		return ""
	})
	close(slow.pass)
	again := slow.lists.Load() + 2 // the second begins after what the first has returned is led
	eventually(t, func() string {
		if slow.lists.Load() < again || len(s.led()) > 0 {
			return "the board was not looked at again"
		}
		return ""
	})
	testkit.Equal(t, slow.ends.Load(), 1, "its end was recorded … times")
}

// A slowStore keeps a list of the open executions back for once, after it has read it, and counts.
type slowStore struct {
	store.Database
	hold        atomic.Bool   // the next list
	read        chan struct{} // closed when it was read
	pass        chan struct{} // closed by the test
	lists, ends atomic.Int32
}

type slowBoard struct {
	store.Board
	of *slowStore
}

func (s *slowStore) Board() store.Board { return slowBoard{s.Database.Board(), s} }

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
