package attempt

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
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
			testkit.True(t, deref(r.LatestSessionID) != "", "%+v", r)
			testkit.Equal(t, strings.Join(r.Repos[0].ChangedFiles, " "), "work.txt")
			testkit.Equal(t, next.task(v.TaskID).Status, "inreview")
		})
	}
}

// An engine of the command line records how agents ended that outlived their server, and when, leaves those
// that run alone, and stops them when it is asked to.
func TestSettle(t *testing.T) {
	p, s := opened(t)
	good, bad := s.begin(s.newTask("! await "+p.hold)), s.begin(s.newTask("! await "+p.hold, "! exit 5"))
	runs := s.begin(s.newTask("! await " + p.hold + "-never"))
	for _, r := range []*AttemptReply{good, bad, runs} {
		s.reaches(r.AttemptID, task.Running)
	}

	s.die()
	must(t, os.WriteFile(p.hold, nil, 0o644))
	var last time.Time
	for _, r := range []*AttemptReply{good, bad} {
		proc := testkit.Get(s.local.Find(ctx, r.AttemptID, filepath.Base(s.runOf(r.AttemptID)))).Must(t)
		last = testkit.Get(proc.Wait(ctx)).Must(t).EndedAt
	}
	c := p.open(func(o *Options) {
		o.Passive, o.Stores = true, files.Stores(state.Of(p.Root), false, nil)
		o.Stores.Database = sqlite.New(sqlite.Options{
			Path: state.Of(p.Root).Database(),
			Now:  func() time.Time { return last.Add(time.Hour) },
		})
		t.Cleanup(func() { o.Stores.Database.Close() })
	})

	waits := c.begin(c.newTask("! say never"))
	must(t, c.Settle(ctx))
	good, bad = c.get(good.AttemptID), c.get(bad.AttemptID)
	// not an hour later, when it was noticed
	at := testkit.Get(time.Parse(time.RFC3339Nano, deref(good.EndedAt))).Must(t)
	testkit.True(t, good.State == "completed" && last.Sub(at).Abs() <= time.Minute,
		"%+v, ended at %v, and it was about %v", good, at, last)
	testkit.Same(t, []any{bad.State, bad.ExitCode, c.get(runs.AttemptID).State, c.stopAttempt(runs.AttemptID).State,
		c.get(waits.AttemptID).State}, []any{board.Failed, new(5), board.Running, board.Stopped, board.Queued})

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
		// which its shim writes down
		if pid, _ := os.ReadFile(up); len(pid) == 0 || !strings.Contains(s.output(r.AttemptID), "agent first") {
			return "the agent is not up"
		}
		return ""
	})
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	s.die()
	must(t, killShim(t, s.runOf(r.AttemptID)))
	next := p.open()
	r = next.ends(r.AttemptID)
	testkit.Equal(t, r.State, "interrupted")
	testkit.Need(t, r.ExitCode == nil, "%+v", r)
	testkit.Need(t, r.QueuedFollowUp == nil, "%+v", r)
	testkit.True(t, strings.HasSuffix(deref(r.Error), `was dropped: "! say never".`), "%+v", r)
	testkit.Equal(t, strings.Join(r.Repos[0].ChangedFiles, " "), "work.txt")

	now := next.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && now.LastAttemptFailed, "%+v", now)
	groupEnds(t, up)
	next.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say on")})
	r = next.ends(r.AttemptID)
	out := next.output(r.AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.True(t, !strings.Contains(out, "never"), "%s: %s", r.State, out)
	testkit.Equal(t, strings.Count(out, "agent first"), 1)
}

// An execution that a dead server had claimed and never begun is begun by the next, on the workspace that is
// half made or was made already. Worktrees of one that failed, which a full disk kept from being undone, are
// undone then.
func TestClaimedAndNeverRun(t *testing.T) {
	for _, where := range []string{"claimed", "workspace made and not recorded", "workspace made", "failed"} {
		t.Run(where, func(t *testing.T) {
			p, first := opened(t, passive)
			r := first.begin(first.newTask("! say once"))
			x, at := first.claimed()
			if where == "workspace made" {
				must(t, first.makeWorkspace(ctx, first.store(), p.Config.Load(), at, nil))
			} else if where != "claimed" {
				of := at.Repos[0]
				trees := []worktree.Tree{{
					RepoID:       of.RepoID,
					Name:         filepath.Base(of.Worktree),
					Repo:         of.RepoPath,
					TargetBranch: of.TargetBranch,
				}}
				testkit.Get(first.Worktrees(at).Create(ctx, at.ID, at.Branch, trees, nil)).Must(t)
			}
			if where == "failed" {
				_, _, err := first.store().EndExecution(ctx, x.ID,
					task.Ending{State: task.Failed, Error: new("no room")})
				must(t, err)
			}
			first.die()
			next := p.open()
			r = next.ends(r.AttemptID)
			if where == "failed" {
				testkit.Until(t, "without worktrees", func() bool {
					return !strings.Contains(p.Git(p.Root, "worktree", "list"), "\n")
				})
				r = next.get(r.AttemptID)
				testkit.True(t, r.State == "failed" && !r.Repos[0].Exists, "%+v", r)
				return
			}
			testkit.True(t, r.State == "completed" && strings.Count(next.output(r.AttemptID), "once") == 1, "%+v", r)
		})
	}
}

// A server that ends in order gives back what it has not started, at once.
func TestCloseReleasesWhatNeverRan(t *testing.T) {
	p := newProject(t)
	p.Configure(setup("! touch " + p.up + "\n! sleep 1h"))
	s := p.open()
	r := s.begin(s.newTask("! say once"))
	appears(t, p.up)
	s.stop()
	testkit.True(t, p.open(passive).get(r.AttemptID).State == "queued" &&
		!strings.Contains(p.Git(p.Root, "worktree", "list"), "\n"), "it is not queued, or worktrees are left")

	p.Configure(func(*config.Config) {})
	testkit.Equal(t, p.open().ends(r.AttemptID).State, "completed")
}

// killShim kills the shim of a run, as the system may when it is out of memory.
func killShim(t *testing.T, run string) error {
	var started struct {
		PID int `json:"shim_pid"`
	}
	must(t, json.Unmarshal(testkit.Get(os.ReadFile(filepath.Join(run, "started.json"))).Must(t), &started))
	return testkit.Get(os.FindProcess(started.PID)).Must(t).Kill()
}

// If somebody removes the records of a run, nothing is known of it.
func TestRecordsRemoved(t *testing.T) {
	p, s := opened(t)
	r := s.runs("! await " + p.hold)
	must(t, os.RemoveAll(s.records(r.AttemptID)))
	must(t, os.WriteFile(p.hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "interrupted" && strings.Contains(deref(r.Error), "records"), "%+v: %s", r,
		deref(r.Error))
}

// faulty panics in the first calls of Wait.
type faulty struct {
	executors.Executor
	calls atomic.Int32
}

type faultyProcess struct {
	executors.Process
	of *faulty
}

func (f *faulty) Start(ctx context.Context, w executors.Work) (executors.Process, error) {
	p, err := f.Executor.Start(ctx, w)
	return faultyProcess{p, f}, err
}

func (f *faulty) Find(ctx context.Context, attempt, execution string) (executors.Process, error) {
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
	s := p.open(func(o *Options) { o.Logger, o.Executors = nil, map[string]executors.Executor{"TEST": f} })
	f.Executor = executors.CommandLine{Local: s.local, Name: "TEST", Root: s.Root(), Config: s.Config}
	r := s.runs("! once "+once, "! await "+hold)
	must(t, os.WriteFile(hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "completed" && f.calls.Load() > 3, "%+v after %d calls", r, f.calls.Load())
}

// An execution that ended while the list of those that are open was on its way is not led again from it:
// its second end would write over what a follow-up does.
func TestWhatHasEndedIsNotLedAgain(t *testing.T) {
	p, slow := newProject(t), &slowed{read: make(chan struct{}), pass: make(chan struct{})}
	s := p.open(p.boards(func(b store.Board) store.Board { return slowBoard{b, slow} }))
	id := s.begin(s.newTask("! await " + p.hold)).AttemptID
	s.reaches(id, task.Running)
	slow.hold.Store(true)
	<-slow.read
	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(id)
	testkit.Until(t, "left alone", func() bool { return len(s.ownExecutions()) == 0 })

	close(slow.pass)
	again := slow.lists.Load() + 2 // the second begins after what the first has returned is led
	testkit.Until(t, "looked at again", func() bool {
		return slow.lists.Load() >= again && len(s.ownExecutions()) == 0
	})
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

// crashConfig is the config of the servers that are killed.
func crashConfig(c *config.Config) {
	c.Attempts.MaxConcurrent = 3
	c.Attempts.Setup = []string{os.Args[0], "agent", "setup", "! sleep 20ms"}
}

// serverMain is the server of TestKilledServersLoseNothing: it makes tasks, attempts and follow-ups, deletes some, and
// says what was acknowledged, until it is killed.
func serverMain(args []string) {
	root, marks := args[0], args[1]
	p := &project{Project: &attempttest.Project{Root: root}}
	p.Configure(crashConfig)
	o := p.options()
	o.Stores = p.Stores()
	e := orFail(Open(ctx, o))
	project := orFail(e.ListProjects(ctx, me, board.ListProjectsArgs{})).Projects[0].ProjectID
	repo := orFail(e.ListRepos(ctx, me, board.ListReposArgs{ProjectID: project})).Repos[0].RepoID
	for range 1 + rand.IntN(3) {
		name := strconv.FormatUint(rand.Uint64(), 36)
		v := orFail(e.CreateTask(ctx, me, board.CreateTaskArgs{
			ProjectID: project,
			Title:     "Task " + name,
			Description: new(strings.Join([]string{
				"! once " + filepath.Join(marks, "once-"+name), "! write committed " + name, "! commit " + name,
				"! touch " + filepath.Join(marks, "committed-"+name), "! write loose " + name,
				"! touch " + filepath.Join(marks, "loose-"+name),
				fmt.Sprintf("! sleep %dms", rand.IntN(400))}, "\n")),
		}))
		fmt.Println("task", v.TaskID, name)
		r := orFail(e.StartTaskAttempt(ctx, me,
			StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}}))
		fmt.Println("attempt", v.TaskID, r.AttemptID)
	}
	for {
		e.meddle(project, marks)
	}
}

// meddle follows up on, or deletes, one of the newest tasks.
func (e *Engine) meddle(project, marks string) {
	tasks := orFail(e.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project, Limit: new(40)}))
	if tasks.Count == 0 {
		time.Sleep(5 * time.Millisecond) // until it is killed
		return
	}
	v := tasks.Tasks[rand.IntN(tasks.Count)]
	if v.LatestSessionID == nil {
		return
	}

	b := orFail(e.Store(ctx))
	all, s := orFail(b.Executions(ctx, *v.LatestAttemptID)), orFail(b.Session(ctx, *v.LatestSessionID))
	switch name := "follow-" + strconv.FormatUint(rand.Uint64(), 36); {
	case len(all) == 1 && s.Queued == nil:
		prompt := "! write " + name + " " + name + "\n! touch " + filepath.Join(marks, name)
		orFail(e.FollowUp(ctx, me, FollowUpArgs{SessionID: v.LatestSessionID, Action: ActionQueue, Prompt: &prompt}))
		fmt.Println("followed", *v.LatestAttemptID, name)
	case len(all) == 2 && !v.HasInProgressAttempt && rand.IntN(100) == 0:
		fmt.Println("deleting", v.TaskID)
		orFail(e.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID}))
		fmt.Println("deleted", v.TaskID)
	}
}

// orFail returns what a call returned, or ends the server.
func orFail[T any](value T, err error) T {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	return value
}

// acknowledged is what the killed servers said, by the first word of a line and the id in it, and the
// attempts whose shim was killed.
type acknowledged map[string]map[string][]string

// Killing the server at random moments loses no commit, no uncommitted byte and no task; no agent runs twice; each
// execution says how it ended.
func TestKilledServersLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	p := newProject(t)
	marks := filepath.Join(p.Root, "..", "marks")
	must(t, os.Mkdir(marks, 0o755))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	ack := acknowledged{"task": {}, "attempt": {}, "followed": {}, "deleting": {}, "deleted": {}, "killed": {}}
	rounds, _ := strconv.Atoi(cmp.Or(os.Getenv("DEEPWORK_CRASH_ROUNDS"), "5"))
	for range rounds {
		p.killOne(t, marks, dice, ack)
		if dice.IntN(2) == 0 {
			p.killShims(t, ack)
		}

		// A git that was ended just before it was ready to remove this may have left it. One that runs has it
		// for milliseconds.
		lock := filepath.Join(p.Root, ".git", "packed-refs.lock")
		for began := time.Now(); Exists(lock) && time.Since(began) < 5*time.Second; {
			time.Sleep(100 * time.Millisecond)
		}
		must(t, os.RemoveAll(lock))
	}
	p.Configure(crashConfig)
	s := p.open()
	b := s.store()
	for _, a := range testkit.Get(b.AllAttempts(ctx)).Must(t) { // each ends with all that was queued
		testkit.Until(t, "at rest", func() bool {
			return !testkit.Get(b.LatestExecution(ctx, a.ID)).Must(t).State.Open()
		})
	}

	for id, name := range ack["task"] {
		s.checkCrashed(t, ack, marks, id, name[0])
	}

	out := p.Git(p.Root, "fsck", "--full", "--strict")
	testkit.True(t, !strings.Contains(out, "error") && !strings.Contains(out, "missing"), "git fsck: %s", out)
	eventually(t, func() string { // what was being deleted is deleted beside all else
		out := p.Git(p.Root, "worktree", "list", "--porcelain")
		if strings.Contains(out, "locked") || strings.Contains(out, "prunable") {
			return "git worktree list: " + out
		}
		return ""
	})

	t.Logf("%d attempts, %d followed, %d deletions begun, %d agents killed", len(ack["attempt"]), len(ack["followed"]),
		len(ack["deleting"]), len(ack["killed"]))
}

// killOne runs a server and kills it at a random moment of its work.
func (p *project) killOne(t *testing.T, marks string, dice *rand.Rand, ack acknowledged) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "server", p.Root, marks)
	cmd.Stderr = os.Stderr
	out := testkit.Get(cmd.StdoutPipe()).Must(t)
	must(t, cmd.Start())
	after := time.Duration(dice.IntN(900)) * time.Millisecond
	var timer *time.Timer
	var killed atomic.Bool
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if timer == nil {
			timer = time.AfterFunc(after, func() {
				killed.Store(true)
				cmd.Process.Kill()
			})
			defer timer.Stop()
		}

		f := strings.Fields(lines.Text())
		testkit.Need(t, ack[f[0]] != nil, "%s", lines.Text())
		ack[f[0]][f[1]] = append(ack[f[0]][f[1]], f[len(f)-1])
	}
	cmd.Wait()
	testkit.True(t, killed.Load(), "the server ended without being asked: %v", cmd.ProcessState)
}

// killShims kills what watches over the agents that run now, as the end of the machine does.
func (p *project) killShims(t *testing.T, ack acknowledged) {
	t.Helper()
	for _, dir := range testkit.Get(
		filepath.Glob(filepath.Join(state.Of(p.Root).Logs(), "attempts", "*", "runs", "*"))).Must(t) {
		if !Exists(filepath.Join(dir, "exit.json")) && Exists(filepath.Join(dir, "started.json")) &&
			killShim(t, dir) == nil {
			ack["killed"][filepath.Base(filepath.Dir(filepath.Dir(dir)))] = []string{dir}
		}
	}
}

// checkCrashed checks one acknowledged task against what its agent said it had done.
func (s *server) checkCrashed(t *testing.T, ack acknowledged, marks, id, name string) {
	t.Helper()
	_, err := s.GetTask(ctx, me, board.TaskArgs{TaskID: id})
	deleting, deleted := ack["deleting"][id] != nil, ack["deleted"][id] != nil
	testkit.Need(t, deleted == (err != nil) || deleting && err != nil, "task %s: deleting %v, deleted %v, and: %v", id,
		deleting, deleted, err)
	if ack["attempt"][id] == nil {
		return
	}
	attempt := ack["attempt"][id][0]

	// What an agent said it had written is in its worktree, or under the ref; while a
	// deletion that was begun goes on, beside all else, it may be on its way there.
	look := func(file string) string {
		copies, _ := filepath.Glob(filepath.Join(s.State().Worktrees(), "*", "shop", file))
		for _, path := range copies {
			text, err := os.ReadFile(path)
			if err == nil && worktree.Owner(s.State().Worktrees(),
				filepath.Base(filepath.Dir(filepath.Dir(path)))) == attempt {
				return strings.TrimSpace(string(text))
			}
		}
		kept, _ := testkit.TryGit(s.o.Root, "show", "refs/deepwork/rescue/"+attempt+":"+file)
		return kept
	}
	read := func(file string) string {
		for end := time.Now().Add(time.Minute); deleting && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if text := look(file); text != "" {
				return text
			}
		}
		return look(file)
	}
	for _, file := range []string{"committed", "loose"} {
		if Exists(filepath.Join(marks, file+"-"+name)) {
			testkit.Equal(t, read(file), name, "attempt %s of task %s has lost %s", attempt, id, file)
		}
	}
	for _, file := range ack["followed"][attempt] {
		testkit.True(t, !Exists(filepath.Join(marks, file)) || read(file) == file, "attempt %s has lost %s",
			attempt, file)
	}
	if Exists(filepath.Join(marks, "committed-"+name)) {
		testkit.Equal(t, testkit.Git(t, s.o.Root, "log", "--branches=deepwork/*", "--format=%s", "--grep=^"+name+"$"),
			name, "the commit")
	}

	if deleting {
		return
	}

	states := map[task.AttemptState]bool{}
	for _, x := range testkit.Get(s.store().Executions(ctx, attempt)).Must(t) {
		states[x.State] = true
	}

	if ack["killed"][attempt] == nil {
		testkit.True(t, len(states) == 1 && states[task.Completed], "attempt %s ended as %v", attempt, states)
		for _, file := range ack["followed"][attempt] {
			testkit.Equal(t, read(file), file, "the follow-up of attempt %s did not run", attempt)
		}
	} else {
		delete(states, task.Completed)
		delete(states, task.Interrupted)
		testkit.Equal(t, len(states), 0, "attempt %s ended as %v", attempt, states)
	}
}
