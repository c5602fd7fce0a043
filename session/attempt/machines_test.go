package attempt

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/presence"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
	files "deepwork/session/store/local"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/transfer"
)

// A fleet is the store of a project that several machines share, in a test: in a folder, or in PostgreSQL.
type fleet struct {
	t   *testing.T
	dir string   // the folder, and the name of the schema
	ago sync.Map // for how long no process has used the project, by place
}

func newFleet(t *testing.T) *fleet { return &fleet{t: t, dir: t.TempDir()} }

// machines returns the folders of two machines, of which the first lacks the executor TEST.
func machines(t *testing.T) (one, two *project, f *fleet) {
	one, two = newProject(t), newProject(t)
	one.without()
	return one, two, newFleet(t)
}

// stores returns the stores for a process at a place. The test closes them.
func (f *fleet) stores(place task.Place) *store.Stores {
	if pgtest.OnPostgres() {
		s := attempttest.StoresIn(f.dir, place)
		s.Env = []string{"SHARED=yes"}
		return s
	}
	member := presence.New(presence.Options{Dir: filepath.Join(f.dir, "servers")})
	db := sqlite.New(sqlite.Options{Path: filepath.Join(f.dir, "board.db")})
	return &store.Stores{Members: member, Database: db, Project: "shop", Place: &place, Env: []string{"SHARED=yes"},
		GoneFor: func(_ context.Context, p task.Place) (time.Duration, error) {
			ago, _ := f.ago.LoadOrStore(p, time.Duration(0))
			return ago.(time.Duration), nil
		},
		Close: func(context.Context) error { return errors.Join(db.Close(), member.Leave()) },
	}
}

// gone makes a place look as if no process had used the project there for a time.
func (f *fleet) gone(place task.Place, since time.Duration) {
	f.ago.Store(place, since)
	if !pgtest.OnPostgres() || since == 0 {
		return // the next process of the place touches its row
	}
	u := testkit.Get(url.Parse(attempttest.SchemaURL(f.dir))).Must(f.t)
	q := u.Query()
	schema := q.Get("schema")
	q.Del("schema")
	u.RawQuery = q.Encode()
	db := testkit.Get(sql.Open("pgx", u.String())).Must(f.t)
	defer db.Close()
	testkit.Get(db.ExecContext(ctx,
		`UPDATE `+schema+`.places SET until = clock_timestamp() - make_interval(secs => $1) WHERE machine = $2`,
		since.Seconds(), place.MachineID)).Must(f.t)
}

// A machine is a project folder with a server, as on a machine of its own.
type machine struct {
	*server
	place task.Place
}

// machine starts a server on another machine.
func (p *project) machine(name string, f *fleet, change ...func(*Options)) *machine {
	p.T.Helper()
	place := task.Place{MachineID: name + name, MachineName: name, Root: p.Root}
	s := f.stores(place)
	m := &machine{p.open(append([]func(*Options){func(o *Options) { o.Stores = s }}, change...)...), place}
	m.stores = s
	return m
}

// deletes deletes a task, if need be by repeated calls: a busy machine may not answer in time.
func (m *machine) deletes(id string) *DeleteReply {
	m.t.Helper()
	for tries := 0; ; tries++ {
		gone, err := m.DeleteTask(ctx, me, DeleteArgs{TaskID: id})
		if session.CodeOf(err) != codes.NotRemoved || tries == 5 {
			must(m.t, err)
			return gone
		}
	}
}

// onFiles opens the project's board in files.
func (p *project) onFiles() *server {
	s := files.Stores(state.Of(p.Root), false, nil)
	old := p.open(func(o *Options) { o.Stores = s })
	old.stores = s
	return old
}

// without takes the executor TEST from a machine.
func (p *project) without() {
	p.Configure(func(c *config.Config) { c.Executors[0].Command = []string{"./not-installed"} })
}

// An attempt is made on one machine, which lacks its executor, and runs on another, where it is
// stopped, followed up, read and deleted from the first.
func TestAnAttemptOnAnotherMachine(t *testing.T) {
	p1, p2, f := machines(t)
	m1, gate := p1.machine("aaaa", f), filepath.Join(t.TempDir(), "gate")
	made := m1.begin(m1.newTask("! write note.txt from afar", "! env SHARED", "! say it works", "! await "+gate))
	testkit.Need(t, made.State == board.Queued && strings.Contains(deref(made.Notice), "executor TEST"),
		"it was not left to another machine: %+v", made)

	away := new(atomic.Bool)
	m2 := p2.machine("bbbb", f, func(o *Options) {
		o.Stores.Database = fadingStore{o.Stores.Database, new(atomic.Bool), away}
	})
	got := m1.reaches(made.AttemptID, task.Running)
	testkit.True(t, strings.Contains(deref(got.Notice), m2.place.Describe()) &&
		strings.HasPrefix(got.Repos[0].WorktreePath, m2.State().Worktrees()), "it does not say where it is: %s, %+v",
		deref(got.Notice), got.Repos)
	a := testkit.Get(m1.store().Attempt(ctx, made.AttemptID)).Must(t)
	testkit.True(t, a.Place == m2.place && a.Repos[0].RepoPath == p2.Root, "the attempt: %+v", a)
	m1.prints(made.AttemptID, "it works", "SHARED=yes")
	testkit.Equal(t, m1.stopAttempt(made.AttemptID).State, board.Stopped)
	testkit.Fails(t, testkit.Get(os.Stat(filepath.Join(p1.Root, "note.txt"))).Err(), "", "it ran on the first machine")

	away.Store(true) // also at the end of the follow-up, whose changes are saved nevertheless
	r := m1.follow(FollowUpArgs{
		Target: the(made.AttemptID),
		Action: ActionSend,
		Prompt: new("! say once more\n! write more.txt later"),
	})
	testkit.Equal(t, r.Status, FollowUpStarted)
	end := m1.reaches(made.AttemptID, task.Completed)
	testkit.True(t, end.ExitCode != nil && *end.ExitCode == 0, "the follow-up: %+v", end)
	testkit.ContainsAll(t, m1.output(made.AttemptID), []string{"it works", "agent resumed", "once more", "done"})
	tail, err := m1.TailAttempt(ctx, me, TailArgs{Target: the(made.AttemptID), Limit: new(1), Raw: new(true)})
	testkit.Need(t, err == nil, "the last line: %+v, %v", tail, err)
	testkit.Need(t, len(tail.Entries) == 1, "the last line: %+v, %v", tail, err)
	testkit.Need(t, tail.NextIndex == tail.Entries[0].Index, "the last line: %+v, %v", tail, err)
	tail, err = m1.TailAttempt(ctx, me,
		TailArgs{Target: the(made.AttemptID), AfterIndex: &tail.NextIndex, Raw: new(true)})
	testkit.True(t, err == nil && len(tail.Entries) == 0, "after the last line: %+v, %v", tail, err)
	a = testkit.Get(m1.store().Attempt(ctx, made.AttemptID)).Must(t)
	diffs, notice, err := SavedDiff(ctx, m1.store(), a, 10_000)
	testkit.Need(t, err == nil, "the changes: %+v, %q, %v", diffs, notice, err)
	testkit.Need(t, len(diffs) == 1, "the changes: %+v, %q, %v", diffs, notice, err)
	testkit.True(t, containsAll(diffs[0].Diff, "+from afar", "+later"), "the changes: %+v, %q, %v", diffs, notice, err)
	testkit.Contains(t, notice, m2.place.Describe(), "the changes: %+v, %q, %v", diffs, notice, err)
	diffs, _, err = SavedDiff(ctx, m1.store(), a, 30)
	testkit.Need(t, err == nil, "a part of the changes: %+v, %v", diffs, err)
	testkit.True(t, diffs[0].Truncated, "a part of the changes: %+v, %v", diffs, err)
	testkit.True(t, len(diffs[0].Diff) <= 30, "a part of the changes: %+v, %v", diffs, err)

	p2.Git(p2.Root, "worktree", "lock", "--reason", "I work here", got.Repos[0].WorktreePath)
	refused(t, testkit.Get(m1.DeleteTask(ctx, me, DeleteArgs{TaskID: made.TaskID})).Err(), session.StateError,
		"worktree_in_use", "I work here")
	p2.Git(p2.Root, "worktree", "unlock", got.Repos[0].WorktreePath)
	gone := m1.deletes(made.TaskID)
	testkit.Need(t, len(gone.Rescued) == 1, "deleting: %+v", gone)
	testkit.Need(t, gone.Rescued[0].RepoPath == p2.Root, "deleting: %+v", gone)
	testkit.Need(t, gone.Notice == nil, "deleting: %+v", gone)
	testkit.True(t, !Exists(got.Repos[0].WorktreePath) && !Exists(m2.records(made.AttemptID)),
		"the worktree or the log is still there")
}

// A machine with several things of the board never takes what it cannot run.
func TestAMachineTakesOnlyWhatItHas(t *testing.T) {
	p1, p2, f := machines(t)
	m1 := p1.machine("aaaa", f)
	other := p2.machine("bbbb", f, func(o *Options) { o.Only = []string{"ARGUMENT"} })
	made := m1.begin(m1.newTask("! say hello"))
	taken := m1.begin(m1.newTask("! say hello"), func(a *StartArgs) { a.Executor = "ARGUMENT" })
	m1.reaches(taken.AttemptID, task.Completed)
	testkit.Equal(t, other.get(made.AttemptID).State, board.Queued, "at a machine that was not to run it")
}

// An attempt whose machine is gone is interrupted and says where its work is. When the machine is
// back, its agent is ended before another one works there.
func TestAMachineThatIsGone(t *testing.T) {
	f := newFleet(t)
	p1, p2 := newProject(t), newProject(t)
	p1.Configure(func(c *config.Config) {
		c.Executors[0].Command, c.Attempts.MachineLostAfter = []string{"./not-installed"}, 100*time.Second
	})
	m1, m2 := p1.machine("aaaa", f), p2.machine("bbbb", f)
	pid := filepath.Join(t.TempDir(), "pid")
	made := m1.begin(m1.newTask("! touch "+pid, "! await nothing"))
	appears(t, pid)
	m1.reaches(made.AttemptID, task.Running)
	m1.follow(FollowUpArgs{Target: the(made.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	m2.die()
	f.gone(m2.place, 50*time.Second)
	refused(t, testkit.Get(m1.StopAttempt(ctx, me, AttemptArgs{the(made.AttemptID)})).Err(), session.StateError,
		"machine_gone", "bbbb")
	x := m1.latest(made.AttemptID)
	testkit.True(t, x.State == task.Running && x.StopAsked == nil,
		"given up too early, or asked to stop by a call that was refused: %+v", x)

	m1.die() // the next one gives those time that have just got the database back
	f.gone(m2.place, 101*time.Second)
	m1, began := p1.machine("aaaa", f), time.Now()
	r := m1.reaches(made.AttemptID, task.Interrupted)
	testkit.True(t, time.Since(began) >= 3*time.Second, "a server that has just started has given it up")
	testkit.True(t, containsAll(deref(r.Error), m2.place.Describe(), r.Repos[0].WorktreePath, r.WorkspaceBranch,
		`was dropped: "! say never"`), "it does not say where its work is: %s", deref(r.Error))

	refused(t,
		testkit.Get(m1.FollowUp(ctx, me, FollowUpArgs{
			Target: the(made.AttemptID),
			Action: ActionSend,
			Prompt: new("go on"),
		})).Err(), session.StateError, "machine_gone", "bbbb")
	f.gone(m2.place, 0)
	away := new(atomic.Bool) // also when its server looks for agents
	away.Store(true)
	p2.machine("bbbb", f, func(o *Options) {
		o.Stores.Database = fadingStore{o.Stores.Database, new(atomic.Bool), away}
	})
	groupEnds(t, pid)
	testkit.Get(m1.FollowUp(ctx, me,
		FollowUpArgs{Target: the(made.AttemptID), Action: ActionSend, Prompt: new("! say back")})).Must(t)
	m1.reaches(made.AttemptID, task.Completed)
}

// A run that was given up stays interrupted, and says why, also when its machine is back, with the server
// that led it or another one. Its agents are ended there.
func TestARunWhoseMachineIsGone(t *testing.T) {
	for _, dies := range []bool{false, true} {
		f := newFleet(t)
		p1, p2 := newProject(t), newProject(t)
		p1.Configure(func(c *config.Config) {
			c.Executors[0].Command, c.Attempts.MachineLostAfter = []string{"./not-installed"}, 2*time.Second
		})
		pid, led := filepath.Join(t.TempDir(), "pid"), make(chan bool, 1)
		leads := func(o *Options) {
			o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
				_, _ = l.RunAgent(ctx, agentOf(l, "! touch "+pid+"\n! await nothing"))
				led <- true
				return board.RunEnd{State: board.Failed}
			}
		}
		m1, m2 := p1.machine("aaaa", f), p2.machine("bbbb", f, leads)
		made := m1.startRun(false)
		appears(t, pid)
		if dies {
			m2.die()
		}
		testkit.Until(t, "given up", func() bool {
			f.gone(m2.place, 3*time.Second)
			return m1.latest(made.RunID).State.Ended()
		})
		f.gone(m2.place, 0)
		if dies {
			m2 = p2.machine("bbbb", f, leads)
		}
		<-led
		groupEnds(t, pid)
		testkit.Until(t, "left alone", func() bool { return len(m2.ownExecutions()) == 0 })

		r := testkit.Get(m1.GetRun(ctx, me, board.RunArgs{RunID: made.RunID})).Must(t)
		testkit.True(t, r.State == board.Interrupted && strings.Contains(deref(r.Reason), m2.place.Describe()),
			"it is %s: %s", r.State, deref(r.Reason))
		m1.deletes(made.TaskID)
		logs, _ := filepath.Glob(filepath.Join(m2.State().Logs(), "attempts", "*"))
		testkit.Equal(t, len(logs), 0, "logs are left")
	}
}

// A stop that the server of the agent did not carry out, since it was suspended and then killed, is carried
// out by the next one on its machine, also if who asked has left; what was queued does not run. Calls in the
// meantime say so.
func TestAMachineStopsWhenItIsBack(t *testing.T) {
	p1, p2, f := machines(t)
	m1 := p1.machine("aaaa", f)
	made, m2 := m1.begin(m1.newTask("! sleep 1h")), p2.machine("bbbb", f, suspended)
	m1.reaches(made.AttemptID, task.Running)
	m1.follow(FollowUpArgs{Target: the(made.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	m1.givenUp(made.AttemptID)
	refused(t,
		testkit.Get(m1.FollowUp(ctx, me, FollowUpArgs{
			Target: the(made.AttemptID),
			Action: ActionQueue,
			Prompt: new("! say late"),
		})).Err(), session.StateError, "attempt_running", "is being stopped")

	refused(t,
		testkit.Get(m1.FollowUp(ctx, me, FollowUpArgs{
			Target: the(made.AttemptID),
			Action: ActionSend,
			Prompt: new("! say late"),
		})).Err(), session.StateError, "attempt_running", "is being stopped")

	m2.die()
	f.gone(m2.place, time.Minute)
	refused(t, testkit.Get(m1.StopAttempt(ctx, me, AttemptArgs{the(made.AttemptID)})).Err(), session.StateError,
		"machine_gone", "without another call")
	f.gone(m2.place, 0)
	p2.machine("bbbb", f)
	testkit.True(t, m1.reaches(made.AttemptID, task.Stopped).QueuedFollowUp == nil &&
		len(m1.executions(made.AttemptID)) == 1, "what was queued has run")
}

// A server looks at the board after each change by another one.
func TestABoardThatOthersChange(t *testing.T) {
	p1, p2, f := machines(t)
	m1, m2 := p1.machine("aaaa", f), p2.machine("bbbb", f, passive)
	m2.background.Go(m2.followBoard)
	kicked := func(after string) {
		t.Helper()
		select {
		case <-m2.wake:
		case <-time.After(time.Minute):
			t.Fatalf("it does not look after %s", after)
		}
	}
	kicked("the start")
	made := m1.begin(m1.newTask("! say hello"))
	kicked("an attempt")

	for began := time.Now(); time.Since(began) < time.Second; { // until it is quiet
		select {
		case <-m2.wake:
			began = time.Now()
		case <-time.After(time.Second):
		}
	}
	testkit.Get(m1.store().Stop(ctx, m1.latest(made.AttemptID).ID)).Must(t)
	kicked("a stop")
}

// Worktrees that a machine was asked to remove, and did not, stay when the task does: what the machine finds
// when it looks again is no longer asked for. A task can be deleted although the machine of an attempt seems
// to be gone: its worktrees are left there, and removed by its server, which keeps what was not committed. A
// server of another board leaves them alone.
func TestDeletingWhatIsOnAMachineThatIsGone(t *testing.T) {
	p1, p2, f := machines(t)
	m1, m2 := p1.machine("aaaa", f), p2.machine("bbbb", f)
	made := m1.begin(m1.newTask("! write note.txt here"))
	tree := m1.reaches(made.AttemptID, task.Completed).Repos[0].WorktreePath
	m2.stop()
	f.gone(m2.place, 0)
	silent := p2.machine("bbbb", f, passive)
	must(t, silent.Members.Enter(ctx))
	refused(t, testkit.Get(m1.DeleteTask(ctx, me, DeleteArgs{TaskID: made.TaskID})).Err(), session.StateError,
		"not_removed", "bbbb", "Try again")
	p2.machine("bbbb", f).ran("! say hello")
	testkit.True(t, Exists(tree), "the worktree of a task that stayed was removed")
	silent.stop()

	old := p2.onFiles() // whose board does not know the attempt
	old.newTask("something")
	old.recoverWorktrees(ctx, old.store(), p2.Config.Load())
	testkit.Need(t, Exists(tree), "a server of another board removed the worktree")
	old.stop()

	f.gone(m2.place, time.Hour)
	testkit.ContainsAll(t, deref(testkit.Get(m1.DeleteTask(ctx, me, DeleteArgs{TaskID: made.TaskID})).Must(t).Notice),
		[]string{m2.place.Describe(), tree})

	vanishes(t, tree)
	testkit.Contains(t, p2.Git(p2.Root, "for-each-ref", "refs/deepwork/rescue"), made.AttemptID,
		"its work was not kept")
}

// An inspection judges what is on its own machine: not the worktrees of another one, and not those of
// an attempt whose paths no server has chosen yet.
func TestInspectOnMachines(t *testing.T) {
	p1, p2, f := machines(t)
	m1, m2 := p1.machine("aaaa", f, passive), p2.machine("bbbb", f)
	finds := func(m *machine, want ...string) {
		t.Helper()
		m.stores.Others = func(context.Context) (bool, error) { return true, nil }
		eventually(t, func() string { // servers are at work, and may be writing a journal
			r := testkit.Get(Inspect(ctx, state.Of(m.p.Root), m.stores, m.p.Config.Load(), m.Log)).Must(t)
			if got := fmt.Sprint(r.Findings); len(r.Findings) != len(want) || !containsAll(got, want...) {
				return fmt.Sprintf("%s finds %s, want %q", m.place.MachineName, got, want)
			}
			return ""
		})
	}
	made := m1.begin(m1.newTask("! write note.txt from afar"))
	tree := m1.reaches(made.AttemptID, task.Completed).Repos[0].WorktreePath
	finds(m2)
	must(t, os.Rename(tree, tree+"-away"))
	finds(m1)
	finds(m2, "the worktree of attempt "+made.AttemptID+" is gone")
	must(t, os.Rename(tree+"-away", tree))
	gone := m1.deletes(made.TaskID)
	if pgtest.OnPostgres() { // a board in files has the paths of who wrote them last
		commit := gone.Rescued[0].Commit
		must(t, os.Remove(filepath.Join(p2.Root, ".git", "objects", commit[:2], commit[2:])))
		finds(m1)
		finds(m2, "what "+gone.Rescued[0].Ref+" keeps is not all there")
	}
	m2.stop()
	p1.Configure(func(*config.Config) {})
	made = m1.begin(m1.newTask("! say hello"))
	must(t, m1.Members.Enter(ctx))
	x := testkit.Get(m1.store().ClaimNext(ctx, m1.Members.ID(), 1, m1.claim(ctx, m1.store(), p1.Config.Load()),
		task.Limits{})).Must(t)
	testkit.Need(t, x != nil, "%+v", x)
	testkit.Need(t, x.AttemptID == made.AttemptID, "%+v", x)
	testkit.Need(t, x.Place == m1.place, "%+v", x)
	finds(m1)
	// Nor does anything else name a workspace that it does not have.
	m1.stop()
	f.gone(m1.place, time.Hour)
	m2 = p2.machine("bbbb", f)
	testkit.Contains(t, deref(m2.reaches(made.AttemptID, task.Interrupted).Error), "It has no workspace there yet; ",
		"given up")
	testkit.Equal(t, testkit.Get(m2.DeleteTask(ctx, me, DeleteArgs{TaskID: made.TaskID})).Must(t).Notice, nil)
}

// A fadingStore does not answer some calls, once, while it is away: after each change.
type fadingStore struct {
	store.Database
	away  *atomic.Bool // from calls
	board *atomic.Bool // from the server itself
}

type fadingBoard struct {
	store.Board
	of fadingStore
}

type fadingView struct {
	store.View
	away *atomic.Bool
}

func (f fadingStore) Board() store.Board { return fadingBoard{f.Database.Board(), f} }

func (f fadingBoard) For(who session.Caller) store.View {
	return fadingView{f.Board.For(who), f.of.away}
}

func (f fadingBoard) AllAttempts(ctx context.Context) ([]task.Attempt, error) {
	if f.of.board.Swap(false) {
		return nil, fmt.Errorf("listing: %w", store.ErrUnavailable)
	}
	return f.Board.AllAttempts(ctx)
}

func (f fadingBoard) SaveDiff(ctx context.Context, attempt string, diff json.RawMessage) error {
	if f.of.board.Swap(false) {
		return fmt.Errorf("saving: %w", store.ErrUnavailable)
	}
	return f.Board.SaveDiff(ctx, attempt, diff)
}

func (f fadingView) CreateAttempt(
	ctx context.Context, a task.Attempt, x task.Execution, r task.Request,
) (*task.Attempt, error) {
	defer f.away.Store(true)
	return f.View.CreateAttempt(ctx, a, x, r)
}

func (f fadingView) Stop(ctx context.Context, execution string) (task.AttemptState, error) {
	defer f.away.Store(true)
	return f.View.Stop(ctx, execution)
}

func (f fadingView) LatestExecution(ctx context.Context, attempt string) (*task.Execution, error) {
	if f.away.Swap(false) {
		return nil, fmt.Errorf("looking: %w", store.ErrUnavailable)
	}
	return f.View.LatestExecution(ctx, attempt)
}

func (f fadingView) AttemptDetails(ctx context.Context, attempt string) (*task.AttemptDetails, error) {
	if f.away.Swap(false) {
		return nil, fmt.Errorf("looking: %w", store.ErrUnavailable)
	}
	return f.View.AttemptDetails(ctx, attempt)
}

// A call that has changed something does not say that nothing has moved when the store is away since.
func TestTheStoreIsAwaySinceAChange(t *testing.T) {
	f, p := newFleet(t), newProject(t)
	m := p.machine("aaaa", f, func(o *Options) {
		o.Passive = true
		o.Stores.Database = fadingStore{o.Stores.Database, new(atomic.Bool), new(atomic.Bool)}
	})
	args := m.starting(m.newTask("! say hello"))
	args.RequestID = new("once")
	busy := func(err error) {
		t.Helper()
		refused(t, store.Refused(err), session.StateError, "board_busy", "get_attempt")
	}
	busy(testkit.Get(m.StartTaskAttempt(ctx, me, args)).Err())
	r := testkit.Get(m.StartTaskAttempt(ctx, me, args)).Must(t)
	busy(testkit.Get(m.StopAttempt(ctx, me, AttemptArgs{the(r.AttemptID)})).Err())
	testkit.Equal(t, m.stopAttempt(r.AttemptID).State, board.Stopped)
}

func claimAtTheEndOfTheCopy(p *project, f *fleet, place task.Place) {
	s := f.stores(place)
	must(p.T, errors.Join(Claim(ctx, state.Of(p.Root), s), s.Close(ctx)))
}

func claimByTheNextServer(p *project, f *fleet, _ task.Place) {
	m := p.machine("aaaa", f)
	journals := testkit.Get(filepath.Glob(filepath.Join(m.State().Worktrees(), ".journal", "*.json"))).Must(m.t)
	testkit.Until(m.t, "with the new board in the journal", func() bool {
		text, _ := os.ReadFile(journals[0])
		return strings.Contains(string(text), `"board"`)
	})
	m.stop()
}

// A copy into a database brings the worktrees: no server of the old board removes them, also if that
// board is gone, and one of the database does when the attempt is deleted.
func TestACopyBringsItsWorktrees(t *testing.T) {
	if !pgtest.OnPostgres() {
		t.Skip("with a database only")
	}

	for what, claim := range map[string]func(p *project, f *fleet, place task.Place){
		"at the end of the copy": claimAtTheEndOfTheCopy,
		"by the next server":     claimByTheNextServer,
	} {
		t.Run(what, func(t *testing.T) {
			p, f := newProject(t), newFleet(t)
			folder, place := state.Of(p.Root), task.Place{MachineID: "aaaaaaaa", MachineName: "aaaa", Root: p.Root}
			old := p.onFiles()
			made := old.begin(old.newTask("! write note.txt here"))
			tree := old.reaches(made.AttemptID, task.Completed).Repos[0].WorktreePath
			old.stop()
			pg := attempttest.OpenIn(f.dir, place)
			testkit.Get(transfer.Copy(ctx, files.NewFile(folder), pg.Side(place))).Must(t)
			gone := testkit.Get(pg.GoneFor(ctx, place)).Must(t)
			testkit.True(t, gone <= time.Minute, "the machine counts as gone for %v", gone)
			must(t, pg.Close(ctx))
			claim(p, f, place)
			must(t, os.Remove(folder.Database()))
			old = p.onFiles()
			old.newTask("something")
			must(t, old.recoverWorktrees(ctx, old.store(), p.Config.Load()))
			old.stop()
			testkit.Need(t, Exists(tree), "a server without the old board has removed the worktree")

			p2 := newProject(t)
			p2.without()
			m2 := p2.machine("bbbb", f)
			f.gone(place, time.Hour)
			testkit.Get(m2.DeleteTask(ctx, me, DeleteArgs{TaskID: made.TaskID})).Must(t)
			p.machine("aaaa", f)
			vanishes(t, tree)
			testkit.Contains(t, p.Git(p.Root, "for-each-ref", "refs/deepwork/rescue"), made.AttemptID,
				"its work was not kept")
		})
	}
}

// The end of the output that is saved is never more than a report may have, and as much as fits.
func TestTheEndOfTheOutput(t *testing.T) {
	entry := func(i int, text string) runner.Entry {
		return runner.Entry{Index: int64(i), Stream: runner.Stdout, Text: text}
	}
	var lines []runner.Entry
	for i := range runner.MaxTail {
		lines = append(lines, entry(i, strings.Repeat("x", i%100)))
	}
	for what, entries := range map[string][]runner.Entry{
		"lines":   lines,
		"one":     {entry(0, "hello")},
		"escapes": {entry(0, "before"), entry(1, strings.Repeat("\x01", runner.MaxLine))},
	} {
		data := testkit.Get(lastOf(slices.Clone(entries))).Must(t)
		var got []runner.Entry
		must(t, json.Unmarshal(data, &got))
		last, n := entries[len(entries)-1], len(got)
		testkit.Need(t, len(data) <= reportedOutput, "%s: %d entries in %d bytes", what, len(got), len(data))
		testkit.Need(t, (what == "one" || len(data) >= reportedOutput/2), "%s: %d entries in %d bytes", what, len(got),
			len(data))
		testkit.True(t, n != 0, "%s: %d entries in %d bytes", what, len(got), len(data))
		testkit.Equal(t, got[n-1].Index, last.Index, "%s: %d entries in %d bytes", what, len(got), len(data))
		testkit.True(t, strings.HasSuffix(last.Text, got[n-1].Text), "%s: %d entries in %d bytes", what, len(got),
			len(data))
	}
}
