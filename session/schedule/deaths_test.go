package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/board"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
)

// TestMain: the test binary is also a process that fires, and kills itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fire" {
		os.Exit(fireMain(os.Args[2:]))
	}
	attempttest.Main(m, onPostgres)
}

// onPostgres are the tests that run again on PostgreSQL: those of several processes, and of what fires in time.
const onPostgres = `TestEveryDueTimeIsOneRunOrOneSkipWhateverDies TestOneOfTwoMachinesStartsIt
	TestAServerFiresInTime TestARunThatEndsWakesTheQueuedDueTime`

const (
	minute  = 200 * time.Millisecond // of the clock of the processes that die
	firers  = 4
	wholeOf = "DEEPWORK_TEST_DEATHS" // how many rounds of 400 due times there are; else one of 60
)

// A fastClock shows the minutes from 2026-03-02 until an end, each in 200 ms.
type fastClock struct {
	began time.Time
	due   int // minutes
}

var firstMinute = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func (c fastClock) now() time.Time {
	passed := time.Duration(float64(time.Since(c.began)) / float64(minute) * float64(time.Minute))
	return firstMinute.Add(min(passed, time.Duration(c.due)*time.Minute-time.Second))
}

// policies are what the schedules of the proof do.
var policies = []store.Schedule{
	{Name: "all", Overlap: OverlapAllow, CatchUp: CatchUpAll},
	{Name: "latest", Overlap: OverlapAllow, CatchUp: CatchUpLatest},
	{Name: "skip", Overlap: OverlapSkip, CatchUp: CatchUpLatest},
	{Name: "queue", Overlap: OverlapQueue, CatchUp: CatchUpSkip},
}

// fireMain fires what is due, ends runs of some schedules so that others may begin, and kills itself at a random
// moment. It exits with 0 when no due time is left.
func fireMain(args []string) int {
	began, due := orFail(time.Parse(time.RFC3339Nano, args[2])), orFail(strconv.Atoi(args[3]))
	clock := fastClock{began, due}
	p := &attempttest.Project{Root: args[0]}
	p.Configure(func(*config.Config) {})
	attempts := orFail(attempt.Open(context.Background(), options(p, args[1])))
	e := New(attempts)
	e.Now = clock.now
	self := orFail(os.FindProcess(os.Getpid()))
	time.AfterFunc(time.Duration(30+rand.IntN(1500))*time.Millisecond, func() { _ = self.Kill() })
	for ctx := context.Background(); ; time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) {
		if _, err := e.FireDue(ctx); err != nil && !board.Passing(err) {
			fmt.Println(err)
			return 2
		}
		states, err := e.Rows.States(ctx)
		if board.Passing(err) {
			continue
		}
		left := false
		for _, s := range orFail(states, err) {
			left = left || s.Queued != nil || s.Next.Before(firstMinute.Add(time.Duration(due)*time.Minute))
			if s.OpenRun != "" && s.Overlap != OverlapAllow && rand.IntN(3) == 0 {
				stop := attempt.AttemptArgs{Target: board.Target{AttemptID: &s.OpenRun}}
				_, _ = attempts.StopAttempt(ctx, me, stop) // another process may have stopped it
			}
		}
		if !left {
			return 0
		}
	}
}

var me = session.LocalCaller(session.ChannelTerminal)

// options are those of an engine of a process that fires, on a machine with this id if the tests run on PostgreSQL.
func options(p *attempttest.Project, machine string) attempt.Options {
	o := attempt.Options{Options: board.Options{
		Root:   p.Root,
		Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil },
	}, Passive: true}
	if pgtest.OnPostgres() {
		o.Stores = attempttest.StoresIn(p.Root, task.Place{MachineID: machine, MachineName: machine, Root: p.Root})
	}
	return o
}

func orFail[T any](value T, err error) T {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(2)
	}
	return value
}

// Four processes fire the due times of four schedules and die at random moments. Each due time is in one record; each
// record that says so has its run; and there is no other run.
func TestEveryDueTimeIsOneRunOrOneSkipWhateverDies(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	rounds, due := 1, 15
	if whole, err := strconv.Atoi(os.Getenv(wholeOf)); err == nil {
		rounds, due = whole, 100
	}
	for range rounds {
		fireAndDie(t, due)
	}
}

func fireAndDie(t *testing.T, due int) {
	t.Helper()
	p := attempttest.New(t)
	e := open(t, p, "0a1b2c3d")
	for _, s := range policies {
		s.Cron = "* * * * *"
		add(t, e, &s, firstMinute, 0, "Do it: {due}")
	}

	began := time.Now().Format(time.RFC3339Nano)
	var deaths atomic.Int32
	var firing sync.WaitGroup
	for i := range firers {
		firing.Go(func() {
			for machine := []string{"0a1b2c3d", "11111111", "22222222"}[i%3]; t.Context().Err() == nil; deaths.Add(1) {
				out, err := exec.Command(os.Args[0], "fire", p.Root, machine, began, strconv.Itoa(due)).CombinedOutput()
				exit, ended := errors.AsType[*exec.ExitError](err)
				if err == nil || ended && exit.ExitCode() > 1 || !ended {
					testkit.True(t, err == nil, "a process that fires has failed: %v\n%s", err, out)
					return
				}
			}
		})
	}
	firing.Wait()
	testkit.True(t, deaths.Load() > 0, "no process has died")

	started, skipped := 0, 0
	runOf := runsByGoal(t, e)
	for _, s := range testkit.Get(e.Rows.States(t.Context())).Must(t) {
		next := firstMinute
		history := testkit.Get(e.Rows.History(t.Context(), s.ID, 2*due)).Must(t)
		for i := range history { // they are the newest first
			d := history[len(history)-1-i]
			testkit.True(t, d.DueAt.Equal(next), "%s: a record begins at %v, want %v", s.Name, d.DueAt, next)
			next = d.DueAt.Add(time.Duration(d.Count) * time.Minute)
			if d.Until != nil {
				testkit.True(t, d.Until.Equal(next.Add(-time.Minute)), "%s: %d due times from %v until %v", s.Name,
					d.Count, d.DueAt, d.Until)
			}
			goal := "Do it: " + d.DueAt.Format(time.RFC3339)
			switch d.Outcome {
			case store.DueStarted:
				started++
				ids := runOf[s.Name+" "+goal]
				delete(runOf, s.Name+" "+goal)
				testkit.True(t, len(ids) == 1 && d.RunID != nil && ids[0] == *d.RunID,
					"%s: the record of %v has the run %v, and its runs are %v", s.Name, d.DueAt, d.RunID, ids)
			case store.DueSkipped:
				skipped += d.Count
			default:
				t.Errorf("%s: %v is still %s", s.Name, d.DueAt, d.Outcome)
			}
		}
		end := firstMinute.Add(time.Duration(due) * time.Minute)
		testkit.True(t, next.Equal(end) && s.Next.Equal(end), "%s: records until %v, next %v, want %v", s.Name, next,
			s.Next, end)
	}
	testkit.Equal(t, started+skipped, due*len(policies), "due times with a record")
	testkit.Equal(t, len(runOf), 0, "runs without a record of their due time: %v", runOf)
	t.Logf("%d due times: %d runs, %d skips; %d processes died", due*len(policies), started, skipped, deaths.Load())
}

// runsByGoal returns the ids of runs by the variant of their agents, which is the schedule's name, and their goals.
func runsByGoal(t *testing.T, e *Engine) map[string][]string {
	t.Helper()
	b := testkit.Get(e.Attempts.Store(t.Context())).Must(t)
	of := map[string][]string{}
	for _, a := range testkit.Get(b.AllAttempts(t.Context())).Must(t) {
		v := testkit.Get(b.Task(t.Context(), a.TaskID)).Must(t)
		key := *v.WorkflowName + " " + *v.Description
		of[key] = append(of[key], a.ID)
	}
	return of
}

// open returns the engine of a process on a machine.
func open(t testing.TB, p *attempttest.Project, machine string, change ...func(*attempt.Options)) *Engine {
	t.Helper()
	o := options(p, machine)
	for _, f := range change {
		f(&o)
	}
	attempts := testkit.Get(attempt.Open(context.Background(), o)).Must(t)
	t.Cleanup(func() {
		testkit.Equal(t, len(attempts.Close(context.Background())), 0, "parts of the engine that do not stop")
		if o.Stores != nil {
			testkit.Must(t, o.Stores.Close(context.Background()))
		}
	})
	return New(attempts)
}

// add adds a schedule whose runs are of a workflow with its name, and returns it.
func add(t testing.TB, e *Engine, s *store.Schedule, next time.Time, pauseAfter int, goal string) *store.Schedule {
	t.Helper()
	testkit.Must(t, e.Attempts.Database.Open(t.Context()))
	s.ID, s.Zone, s.CatchUpWithin, s.PauseAfter = s.Name+"-id", "UTC", 7*24*time.Hour, pauseAfter
	s.Next, s.CreatedAt, s.Identity = next, time.Now(), session.LocalIdentity
	s.Args = testkit.Get(json.Marshal(attempt.RunWorkflowArgs{JobName: "texts", WorkflowName: s.Name, Goal: goal,
		Executor: new("TEST")})).Must(t)
	testkit.Must(t, e.Rows.Add(t.Context(), s))
	return s
}
