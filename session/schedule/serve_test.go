package schedule

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/work"
)

// counted counts what is asked for the sake of schedules.
type counted struct {
	store.Database
	queries *atomic.Int32
}

type countedWork struct {
	store.Work
	queries *atomic.Int32
}

type countedRows struct {
	store.Schedules
	queries *atomic.Int32
}

func (d counted) Work() store.Work           { return countedWork{d.Database.Work(), d.queries} }
func (d counted) Schedules() store.Schedules { return countedRows{d.Database.Schedules(), d.queries} }

func (w countedWork) Open(ctx context.Context) ([]store.WorkRow, error) {
	w.queries.Add(1)
	return w.Work.Open(ctx)
}

func (w countedWork) Claim(ctx context.Context, c store.WorkClaim) ([]store.WorkRow, error) {
	w.queries.Add(1)
	return w.Work.Claim(ctx, c)
}

func (r countedRows) Fire(
	ctx context.Context, id string, now time.Time, decide func(*store.ScheduleState) store.Decision,
	plan *store.PlannedRun,
) (store.Decision, error) {
	r.queries.Add(1)
	return r.Schedules.Fire(ctx, id, now, decide, plan)
}

// serve returns the engine of a server whose schedules are fired, and the number of its queries for them.
func serve(t *testing.T, p *attempttest.Project) (*Engine, *work.Loop, *atomic.Int32) {
	t.Helper()
	queries := &atomic.Int32{}
	var loop *work.Loop
	e := open(t, p, "0a1b2c3d", func(o *attempt.Options) {
		if o.Stores == nil {
			o.Stores = local.Stores(state.Of(p.Root), false, nil)
		}
		copied := *o.Stores
		copied.Database = counted{o.Stores.Database, queries}
		o.Stores = &copied
		loop = work.New(context.Background(), work.Options{Stores: o.Stores})
		o.Work = loop
	})
	New(e.Attempts).Serve(loop)
	t.Cleanup(func() { testkit.Equal(t, len(loop.Close(context.Background())), 0, "work that does not stop") })
	return e, loop, queries
}

// A due time fires within a second, by the work that wakes it.
func TestAServerFiresInTime(t *testing.T) {
	e, loop, _ := serve(t, attempttest.New(t))
	loop.Start()
	due := time.Now().Add(1500 * time.Millisecond)
	s := add(t, e, hourly("notes"), due, 0, "Do it.")
	var of []store.FiredTime
	testkit.Until(t, "it is started", func() bool {
		of = testkit.Get(e.Rows.History(t.Context(), s.ID, 9)).Must(t)
		return len(of) > 0
	})
	b := testkit.Get(e.Attempts.Store(t.Context())).Must(t)
	at := testkit.Get(b.Attempt(t.Context(), *of[0].RunID)).Must(t)
	late := at.CreatedAt.Sub(due)
	t.Logf("%v late", late)
	testkit.True(t, late >= 0 && late < time.Second, "it was started %v after its due time", late)
	testkit.Equal(t, len(of), 1, "records")
	row := testkit.Get(e.Attempts.Database.Work().Row(t.Context(), store.ScheduleWork, s.ID)).Must(t)
	testkit.True(t, row.In > 0, "it is looked at again in %v", row.In)
}

// With 1,000 schedules, of which a hundred are paused, an idle server asks nothing until the first one is due: in
// less than a minute it asks once at most.
func TestAnIdleServerOfAThousandSchedules(t *testing.T) {
	p := attempttest.New(t)
	e, loop, queries := serve(t, p)
	for i := range 1000 {
		s := &store.Schedule{Name: "notes" + time.Duration(i).String(), Cron: "0 9 * * mon", Overlap: OverlapSkip,
			CatchUp: CatchUpLatest, Paused: i%10 == 0}
		next := time.Now().Add(time.Hour + time.Duration(i)*time.Second)
		if s.Paused { // which is found at its due time
			next = time.Now()
		}
		add(t, e, s, next, 3, "Do it.")
	}
	loop.Start()
	testkit.Until(t, "the paused ones are not looked at any more", func() bool {
		open := testkit.Get(e.Attempts.Database.(counted).Database.Work().Open(t.Context())).Must(t)
		return len(open) == 1 && open[0].In > 50*time.Minute
	})
	time.Sleep(time.Second) // for the loop's last look
	before := queries.Load()
	time.Sleep(10 * time.Second) // for what must not happen
	testkit.True(t, queries.Load()-before <= 1, "%d queries in 10 s", queries.Load()-before)
}

// A machine that cannot start a run leaves it to another one, which starts it at once.
func TestAServerLeavesWhatItCannotStart(t *testing.T) {
	p := attempttest.New(t)
	e, loop, _ := serve(t, p)
	p.Configure(func(c *config.Config) { c.Executors = nil })
	s := add(t, e, hourly("notes"), time.Now(), 0, "Do it.")
	loop.Start()
	testkit.Until(t, "it is refused", func() bool { return stateOf(t, e, s).Refusals != nil })
	rows := e.Attempts.Database.Work()
	testkit.Until(t, "it is left to others", func() bool {
		row := testkit.Get(rows.Row(t.Context(), store.ScheduleWork, s.ID)).Must(t)
		return row.Runner == "" && row.In <= 0
	})
	p.Configure(func(*config.Config) {}) // as at another machine
	testkit.Equal(t, len(fires(t, e, s)), 1, "runs")
	ended := testkit.Get(e.Rows.History(t.Context(), s.ID, 9)).Must(t)
	testkit.Equal(t, ended[0].State, task.Waiting)
}
