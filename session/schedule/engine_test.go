package schedule

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// A clock is set by a test.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

// hourly is a schedule that is due first at firstMinute.
func hourly(name string) *store.Schedule {
	return &store.Schedule{Name: name, Cron: "@hourly", Overlap: OverlapAllow, CatchUp: CatchUpLatest}
}

// opened opens an engine with a clock, which shows firstMinute.
func opened(t *testing.T, p *attempttest.Project, machine string, change ...func(*attempt.Options)) (*Engine, *clock) {
	t.Helper()
	c := &clock{firstMinute}
	e := open(t, p, machine, change...)
	e.Now = c.now
	e.Attempts.Here.MachineName = machine
	return e, c
}

// without is the config of a machine on which no agent can be started.
func without(p *attempttest.Project) func(*attempt.Options) {
	return func(o *attempt.Options) {
		lacking := *p.Config.Load()
		lacking.Executors = nil
		o.Config = func(context.Context) (*config.Config, error) { return &lacking, nil }
	}
}

func fires(t *testing.T, e *Engine, s *store.Schedule) (runs []string) {
	t.Helper()
	runs, _, err := e.Fire(t.Context(), s.ID)
	testkit.Must(t, err)
	return runs
}

// history returns what became of due times, oldest first.
func history(t *testing.T, e *Engine, s *store.Schedule) (lines []string) {
	t.Helper()
	for _, d := range testkit.Get(e.Rows.History(t.Context(), s.ID, 100)).Must(t) {
		line := d.DueAt.Format("02 15:04 ") + d.Outcome
		if d.Until != nil {
			line += d.Until.Format(" until 02 15:04")
		}
		lines = append([]string{line}, lines...)
	}
	return lines
}

func stateOf(t *testing.T, e *Engine, s *store.Schedule) *store.ScheduleState {
	t.Helper()
	return testkit.Get(e.Named(t.Context(), me, s.Name)).Must(t)
}

// ends ends a run that no process leads.
func ends(t *testing.T, e *Engine, run string, how task.AttemptState) {
	t.Helper()
	b := testkit.Get(e.Attempts.Store(t.Context())).Must(t)
	x := testkit.Get(b.LatestExecution(t.Context(), run)).Must(t)
	_, ended, err := b.EndExecution(t.Context(), x.ID, task.Ending{State: how})
	testkit.Must(t, err)
	testkit.True(t, ended, "the run %s had ended", run)
}

func TestTheGoalHasTheDateAndTheDueTime(t *testing.T) {
	p := attempttest.New(t)
	e, _ := opened(t, p, "here")
	s := hourly("notes")
	s.Zone = "UTC"
	run := fires(t, e, add(t, e, s, firstMinute, 0, "Notes of {date}, {due}"))
	testkit.Need(t, len(run) == 1, "runs: %v", run)
	of := testkit.Get(e.Attempts.GetRun(t.Context(), me, board.RunArgs{RunID: run[0]})).Must(t)
	testkit.Equal(t, of.Goal, "Notes of 2026-03-02, 2026-03-02T00:00:00Z")
}

// The machine that cannot start the run logs that once, and leaves it to another one.
func TestOneOfTwoMachinesStartsIt(t *testing.T) {
	p := attempttest.New(t)
	var log bytes.Buffer
	one, c := opened(t, p, "11111111", without(p), func(o *attempt.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	two, _ := opened(t, p, "22222222")
	s := add(t, one, hourly("notes"), firstMinute, 0, "Do it.")
	for range 3 {
		runs, _, err := one.Fire(t.Context(), s.ID)
		attempttest.Refused(t, err, session.ToolError, codes.UnknownExecutor)
		testkit.Equal(t, len(runs), 0, "runs of a machine without an agent")
		c.Time = c.Add(5 * time.Second)
	}
	testkit.Equal(t, strings.Count(log.String(), "cannot start the run"), 1, "lines in the log: %s", log.String())
	testkit.Equal(t, len(fires(t, two, s)), 1, "runs of the machine with an agent")
	testkit.Same(t, history(t, two, s), []string{"02 00:00 started"})
	testkit.Equal(t, len(stateOf(t, two, s).Refusals), 0, "what is left of the refusal")
}

// When nobody could start it for five minutes, it is skipped with each machine's reason.
func TestWhatNoMachineCanStartIsASkip(t *testing.T) {
	p := attempttest.New(t)
	one, c := opened(t, p, "one", without(p))
	two, d := opened(t, p, "two", without(p))
	s := add(t, one, hourly("notes"), firstMinute, 0, "Do it.")
	for _, e := range []*Engine{one, two, one} {
		_, _, err := e.Fire(t.Context(), s.ID)
		attempttest.Refused(t, err, session.ToolError, codes.UnknownExecutor)
		c.Time = firstMinute.Add(giveUpAfter - time.Second)
		d.Time = c.Time
	}
	testkit.Same(t, history(t, one, s), []string(nil))
	c.Time = firstMinute.Add(giveUpAfter)
	testkit.Equal(t, len(fires(t, one, s)), 0, "runs")
	testkit.Same(t, history(t, one, s), []string{"02 00:00 skipped"})
	reason := testkit.Get(one.Rows.History(t.Context(), s.ID, 1)).Must(t)[0].Reason
	for _, want := range []string{"Nothing could start it for 5 minutes. ", "one: ", "two: ", "TEST"} {
		testkit.True(t, strings.Contains(reason, want), "%q is not in the reason: %s", want, reason)
	}
}

func TestWithoutBudgetItIsASkipAtOnce(t *testing.T) {
	p := attempttest.New(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxCostUSD = &config.Limit{File: "config.yml"} })
	e, _ := opened(t, p, "here")
	s := add(t, e, hourly("notes"), firstMinute, 1, "Do it.")
	testkit.Equal(t, len(fires(t, e, s)), 0, "runs")
	d := testkit.Get(e.Rows.History(t.Context(), s.ID, 1)).Must(t)[0]
	testkit.Equal(t, d.Outcome, store.DueSkipped)
	testkit.True(t, strings.Contains(d.Reason, "a budget of this project is reached"), "reason: %s", d.Reason)
	testkit.True(t, !stateOf(t, e, s).Failing, "a budget is no failure")
}

// After two failed runs it is paused and needs a person, also when the failed runs are gone, until it is resumed.
func TestASchedulePausesAfterFailures(t *testing.T) {
	p := attempttest.New(t)
	e, c := opened(t, p, "here")
	s := add(t, e, hourly("notes"), firstMinute, 2, "Do it.")
	var tasks []string
	for i, how := range []task.AttemptState{task.Failed, task.Completed, task.Failed, task.Failed} {
		c.Time = firstMinute.Add(time.Duration(i) * time.Hour)
		run := fires(t, e, s)
		testkit.Need(t, len(run) == 1, "%v: runs: %v", c.Time, run)
		ends(t, e, run[0], how)
		of := testkit.Get(e.Attempts.GetRun(t.Context(), me, board.RunArgs{RunID: run[0]})).Must(t)
		tasks = append(tasks, of.TaskID)
	}

	item := needed(t, e)
	testkit.Need(t, item != nil, "no item says that the schedule is failing")
	testkit.Equal(t, *item.Why, "It is paused: its last runs (2) failed.")
	testkit.Equal(t, item.Command, "deepwork schedule resume notes")
	testkit.Equal(t, item.Page(), "/schedules/notes")
	testkit.Equal(t, testkit.Get(e.View(t.Context(), stateOf(t, e, s), 9)).Must(t).State, "failing")
	c.Time = firstMinute.Add(5 * time.Hour)
	_, wait, err := e.Fire(t.Context(), s.ID)
	testkit.Must(t, err)
	testkit.Equal(t, wait, 0, "it looks again while it is paused")
	for _, id := range tasks {
		testkit.Get(e.Attempts.DeleteTask(t.Context(), me, attempt.DeleteArgs{TaskID: id})).Must(t)
	}
	testkit.Equal(t, len(fires(t, e, s)), 0, "runs of a schedule whose failed runs were deleted")

	testkit.Must(t, e.Resume(t.Context(), s))
	now := stateOf(t, e, s)
	testkit.True(t, !now.Paused && !now.Failing && now.Next.After(now.Now), "after resume: %+v", now)
	testkit.True(t, needed(t, e) == nil, "the item is still there")
	all := testkit.Get(e.Rows.History(t.Context(), s.ID, 1)).Must(t)
	testkit.Equal(t, all[0].Reason, "The schedule was paused.")
	testkit.True(t, all[0].DueAt.Equal(firstMinute.Add(4*time.Hour)), "the skip begins at %v", all[0].DueAt)
	row := testkit.Get(e.Attempts.Database.Work().Row(t.Context(), store.ScheduleWork, s.ID)).Must(t)
	testkit.True(t, row.In > 0 && row.In <= time.Hour, "it is looked at in %v", row.In)

	testkit.Must(t, e.Rows.Pause(t.Context(), s.ID))
	_, wait, err = e.Fire(t.Context(), s.ID)
	testkit.Must(t, err)
	testkit.Equal(t, wait, 0, "it looks again while it is paused")
	testkit.Equal(t, testkit.Get(e.View(t.Context(), stateOf(t, e, s), 9)).Must(t).State, "paused")
	testkit.Must(t, e.Rows.Remove(t.Context(), s.ID))
	_, _, err = e.Fire(t.Context(), s.ID)
	testkit.FailsWith(t, err, store.ErrNotFound)
	testkit.FailsWith(t, testkit.Get(e.Attempts.Database.Work().Row(t.Context(), store.ScheduleWork, s.ID)).Err(),
		store.ErrNotFound)
}

// needed returns the item about a schedule that is failing, or nil.
func needed(t *testing.T, e *Engine) *board.Attention {
	t.Helper()
	all := testkit.Get(e.Attempts.NeedsAttention(t.Context(), me)).Must(t).Items
	for i := range all {
		if all[i].Kind == board.AttentionSchedule {
			return &all[i]
		}
	}
	return nil
}

// A queued due time starts when the open run has ended, whose end makes it due. Only one waits.
func TestARunThatEndsWakesTheQueuedDueTime(t *testing.T) {
	p := attempttest.New(t)
	e, c := opened(t, p, "0a1b2c3d")
	s := hourly("notes")
	s.Overlap = OverlapQueue
	add(t, e, s, firstMinute, 0, "Do it.")
	open := fires(t, e, s)
	for hour := range 2 {
		c.Time = firstMinute.Add(time.Duration(1+hour) * time.Hour)
		testkit.Equal(t, len(fires(t, e, s)), 0, "runs while one is open")
	}
	testkit.Same(t, history(t, e, s), []string{"02 00:00 started", "02 01:00 queued", "02 02:00 skipped"})
	rows := e.Attempts.Database.Work()
	testkit.Must(t, rows.Put(t.Context(), &store.WorkRow{Kind: store.ScheduleWork, Key: s.ID, In: time.Hour}))
	ends(t, e, open[0], task.Completed)
	row := testkit.Get(rows.Row(t.Context(), store.ScheduleWork, s.ID)).Must(t)
	testkit.True(t, row.In <= 0, "the due time that waits is looked at in %v", row.In)
	testkit.Equal(t, len(fires(t, e, s)), 1, "runs after the open one has ended")
	testkit.Same(t, history(t, e, s), []string{"02 00:00 started", "02 01:00 started", "02 02:00 skipped"})
}

// A clock that jumps an hour ahead makes one hour late, which is caught up; one that jumps back starts nothing twice.
func TestAClockThatJumps(t *testing.T) {
	p := attempttest.New(t)
	e, c := opened(t, p, "here")
	s := add(t, e, hourly("notes"), firstMinute, 0, "Do it.")
	for _, at := range []time.Duration{0, 59 * time.Minute, 119 * time.Minute, 60 * time.Minute, 61 * time.Minute,
		119 * time.Minute, 120 * time.Minute, 181 * time.Minute} {
		c.Time = firstMinute.Add(at)
		fires(t, e, s)
	}
	testkit.Same(t, history(t, e, s), []string{"02 00:00 started", "02 01:00 started", "02 02:00 started",
		"02 03:00 started"})
	testkit.Equal(t, len(runsByGoal(t, e)["notes Do it."]), 4, "runs")
}

func TestALaptopThatSleepsForTwoDays(t *testing.T) {
	p := attempttest.New(t)
	e, c := opened(t, p, "here")
	s := add(t, e, hourly("notes"), firstMinute, 0, "Do it.")
	testkit.Equal(t, len(fires(t, e, s)), 1, "runs")
	c.Time = firstMinute.Add(48*time.Hour + 5*time.Minute)
	testkit.Equal(t, len(fires(t, e, s)), 1, "runs after two days")
	testkit.Same(t, history(t, e, s),
		[]string{"02 00:00 started", "02 01:00 skipped until 03 23:00", "04 00:00 started"})
	reason := testkit.Get(e.Rows.History(t.Context(), s.ID, 2)).Must(t)[1].Reason
	testkit.Equal(t, reason,
		"Nothing could start them within a minute, and only the latest one of the last 168h is caught up.")
}

// A database that does not answer at the due time delays the run, and nothing else.
func TestADatabaseThatIsAwayAtTheDueTime(t *testing.T) {
	p := attempttest.New(t)
	e, c := opened(t, p, "here")
	s := add(t, e, hourly("notes"), firstMinute, 0, "Do it.")
	away := &awayRows{Schedules: e.Rows, calls: 3}
	e.Rows = away
	for range 3 {
		_, _, err := e.Fire(t.Context(), s.ID)
		testkit.FailsWith(t, err, store.ErrUnavailable)
		c.Time = c.Add(10 * time.Second)
	}
	testkit.Equal(t, len(fires(t, e, s)), 1, "runs when it answers again")
	testkit.Same(t, history(t, e, s), []string{"02 00:00 started"})
}

// awayRows do not answer the first calls.
type awayRows struct {
	store.Schedules
	calls int
}

func (r *awayRows) Fire(
	ctx context.Context, id string, now time.Time, decide func(*store.ScheduleState) store.Decision,
	plan *store.PlannedRun,
) (store.Decision, error) {
	if r.calls--; r.calls < 0 {
		return r.Schedules.Fire(ctx, id, now, decide, plan)
	}
	return store.Decision{}, store.ErrUnavailable
}
