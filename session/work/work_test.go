package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"deepwork/actor/presence"
	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/state/statetest"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"
)

// onPostgres are the tests that run again on PostgreSQL: those of several processes.
const onPostgres = `
	TestWorkOfTwoLoopsIsBegunOnce TestWorkOfAProcessThatIsGoneGoesOnAtOnce
	TestWorkOfAnotherPlaceGoesOnWhenItsTimeIsOver TestWorkOfTheProcessThatPutIt
	TestWorkOfAProcessThatClosesGoesOnAtOnce TestWorkThatIsLeftToOthers`

func TestMain(m *testing.M) {
	os.Exit(pgtest.Twice(onPostgres, func() int { return statetest.Main(m, pgtest.Leaks) }))
}

var here, there = &task.Place{MachineID: "0a1b2c3d", Root: "/srv/a"}, &task.Place{MachineID: "11111111", Root: "/srv/a"}

// A project is a database of a test.
type project struct {
	dir, url string
}

func newProject(t *testing.T) project {
	t.Parallel()
	p := project{dir: t.TempDir()}
	if pgtest.OnPostgres() {
		p.url = pgtest.URL(t)
	}
	return p
}

// server is a process that serves the project at a place, with the loop not started yet.
func (p project) server(t *testing.T, at *task.Place, life time.Duration) (*Loop, *presence.Member) {
	m := presence.New(presence.Options{Dir: filepath.Join(p.dir, at.MachineID)})
	testkit.Must(t, m.Enter(t.Context()))
	s := &store.Stores{Members: m, Place: at}
	closing := func() error { return s.Database.Close() }
	if p.url == "" {
		s.Database = sqlite.New(sqlite.Options{Path: filepath.Join(p.dir, "board.db")})
	} else {
		pg := testkit.Get(postgres.Open(postgres.Options{URL: p.url, Project: "p", Machine: at.MachineID, Root: p.dir,
			Repository: postgres.Repository{RootCommit: "aa"}})).Must(t)
		testkit.Must(t, pg.Enter(t.Context()))
		s.Database = pg.Database()
		closing = func() error { return pg.Close(context.Background()) }
	}
	testkit.Must(t, s.Database.Open(t.Context()))
	l := New(context.Background(), Options{Stores: s, Life: life})
	t.Cleanup(func() {
		if stuck := l.Close(context.Background()); stuck != nil {
			t.Errorf("stuck: %v", stuck)
		}
		testkit.Must(t, errors.Join(closing(), m.Leave()))
	})
	return l, m
}

// A counter is a kind of work that records what is done.
type counter struct {
	mu    sync.Mutex
	began map[string]int // by key
}

func (c *counter) Do(_ context.Context, t *Task) (store.Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began == nil {
		c.began = map[string]int{}
	}
	c.began[t.Key]++
	return store.Outcome{Result: json.RawMessage(fmt.Sprint(t.Claims))}, nil
}

func (c *counter) of(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began[key]
}

// waiting is a kind of work that lasts until it is ended, which it reports.
func waiting(ended chan<- error) Kind {
	return Kind{Name: "wait", Do: func(ctx context.Context, t *Task) (store.Outcome, error) {
		t.Report(json.RawMessage(`"begun"`))
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return store.Outcome{}, context.Cause(ctx)
	}}
}

func rowOf(t testing.TB, l *Loop, kind, key string) *store.WorkRow {
	t.Helper()
	r, err := l.rows.Row(t.Context(), kind, key)
	testkit.True(t, err == nil || errors.Is(err, store.ErrNotFound), "%v", err)
	return r
}

func put(t testing.TB, l *Loop, rows ...store.WorkRow) {
	t.Helper()
	for _, r := range rows {
		testkit.Must(t, l.rows.Put(t.Context(), &r))
	}
}

func untilDone(t testing.TB, l *Loop, kind, key, result string) {
	t.Helper()
	testkit.Until(t, kind+" "+key+" is done", func() bool {
		r := rowOf(t, l, kind, key)
		return r != nil && string(r.Result) == result
	})
}

// A cold test: this is all that a new kind of work takes.
type greeting struct{}

func (greeting) Do(_ context.Context, t *Task) (store.Outcome, error) {
	return store.Outcome{Result: json.RawMessage(`"hello ` + t.Key + `"`)}, nil
}

func TestANewKindOfWork(t *testing.T) {
	l, _ := newProject(t).server(t, here, 0)
	l.Start()
	l.Register(Kind{Name: "greet", Do: greeting{}.Do})
	put(t, l, store.WorkRow{Kind: "greet", Key: "you"})
	untilDone(t, l, "greet", "you", `"hello you"`)
}

func TestWorkOfTwoLoopsIsBegunOnce(t *testing.T) {
	p := newProject(t)
	a, _ := p.server(t, here, 0)
	b, _ := p.server(t, here, 0)
	c := &counter{}
	for _, l := range []*Loop{a, b} {
		l.Register(Kind{Name: "count", Limit: 3, Do: c.Do})
		l.Start()
	}
	for i := range 40 {
		put(t, a, store.WorkRow{Kind: "count", Key: fmt.Sprint(i)})
	}
	for i := range 40 {
		untilDone(t, b, "count", fmt.Sprint(i), "1")
		testkit.Equal(t, c.of(fmt.Sprint(i)), 1, "how often %d was begun", i)
	}
}

// The kernel says that a process of this place is gone. Its row has a minute left.
func TestWorkOfAProcessThatIsGoneGoesOnAtOnce(t *testing.T) {
	p := newProject(t)
	a, member := p.server(t, here, time.Minute)
	b, _ := p.server(t, here, time.Minute)
	c := &counter{}
	b.Register(Kind{Name: "count", Do: c.Do})
	b.Start()
	put(t, a, a.Claimed("count", "x", nil), store.WorkRow{Kind: "count", Key: "y"})
	untilDone(t, b, "count", "y", "1")
	testkit.Equal(t, c.of("x"), 0, "what a living process does is taken over")
	time.Sleep(lockEvery) // then only the lock can tell
	member.Fall()
	untilDone(t, b, "count", "x", "2")
}

// A runner elsewhere has no lock file here, and is not taken for gone.
func TestWorkOfAnotherPlaceGoesOnWhenItsTimeIsOver(t *testing.T) {
	p := newProject(t)
	a, _ := p.server(t, there, time.Minute)
	b, _ := p.server(t, here, time.Minute)
	c := &counter{}
	b.Register(Kind{Name: "count", Place: here.Key(), Do: c.Do})
	b.Start()
	late := a.Claimed("count", "late", nil)
	late.Life = 300 * time.Millisecond
	only := store.WorkRow{Kind: "count", Key: "there", Place: there.Key()}
	mine := store.WorkRow{Kind: "count", Key: "here", Place: here.Key()}
	put(t, a, a.Claimed("count", "x", nil), only, mine, late)
	untilDone(t, b, "count", "here", "1")
	untilDone(t, b, "count", "late", "2")
	testkit.Equal(t, c.of("x")+c.of("there"), 0, "what another place does is taken over")
}

// The process that puts a row can begin it at once. It renews the row, with its progress, as long as it works.
func TestWorkOfTheProcessThatPutIt(t *testing.T) {
	p := newProject(t)
	const life = 5 * time.Second
	a, _ := p.server(t, here, life)
	b, _ := p.server(t, there, life)
	ended := make(chan error, 9)
	for _, l := range []*Loop{a, b} {
		l.Register(waiting(ended))
		l.Start()
	}
	row := a.Claimed("wait", "x", nil)
	put(t, a, row)
	for range 2 { // the second call finds that it runs
		testkit.True(t, a.Run(row), "it does not run")
	}
	testkit.Until(t, "it is renewed", func() bool { return rowOf(t, a, "wait", "x").Progress != nil })
	time.Sleep(life) // for what must not happen
	testkit.Equal(t, rowOf(t, a, "wait", "x").Claims, 1, "claims of work that is renewed")

	// It is put again: what was begun ends before the new one begins.
	again := a.Claimed("wait", "x", nil)
	put(t, a, again)
	a.Run(again)
	testkit.FailsWith(t, <-ended, ErrTaken)
	testkit.Equal(t, testkit.Get(a.rows.AskStop(t.Context(), "wait", "x")).Must(t), true)
	testkit.FailsWith(t, <-ended, ErrStopped)
	testkit.Until(t, "it is removed", func() bool { return rowOf(t, a, "wait", "x") == nil })
}

// A renewer is a store that cannot renew anything at first.
type renewer struct {
	store.Work
	failed bool
}

func (r *renewer) Renew(ctx context.Context, life time.Duration, rows []store.WorkRow) ([]store.WorkRow, error) {
	if !r.failed {
		r.failed = true
		return nil, store.ErrUnavailable
	}
	return r.Work.Renew(ctx, life, rows)
}

func TestProgressIsStoredByTheNextRenewal(t *testing.T) {
	l, _ := newProject(t).server(t, here, 3*time.Second)
	rows := &renewer{Work: l.rows}
	l.rows = rows
	l.Register(waiting(make(chan error, 1)))
	row := l.Claimed("wait", "x", nil)
	put(t, l, row)
	l.Run(row)
	l.Start()
	testkit.Until(t, "it is stored", func() bool { return rowOf(t, l, "wait", "x").Progress != nil })
	testkit.True(t, rows.failed, "no renewal has failed")
}

func TestWorkOfAProcessThatClosesGoesOnAtOnce(t *testing.T) {
	p := newProject(t)
	a, _ := p.server(t, here, time.Minute)
	b, _ := p.server(t, there, time.Minute)
	ended, c := make(chan error, 1), &counter{}
	a.Register(waiting(ended))
	a.Start()
	row := a.Claimed("wait", "x", nil)
	put(t, a, row)
	a.Run(row)
	b.Register(Kind{Name: "wait", Do: c.Do})
	b.Start()
	testkit.Equal(t, len(a.Close(t.Context())), 0, "handlers that do not end")
	testkit.FailsWith(t, <-ended, ErrClosing)
	untilDone(t, b, "wait", "x", "1")
	testkit.True(t, !a.Run(row), "a closed loop begins work")
}

// A process that leaves a row to others leaves it at once, and takes it again only later, if nobody has done it.
func TestWorkThatIsLeftToOthers(t *testing.T) {
	p := newProject(t)
	a, _ := p.server(t, here, 0)
	b, _ := p.server(t, there, 0)
	c := &counter{}
	leaves := func(ctx context.Context, t *Task) (store.Outcome, error) {
		_, _ = c.Do(ctx, t)
		return store.Outcome{Again: 3 * time.Second, Yield: true}, nil
	}
	a.Register(Kind{Name: "count", Limit: 3, Do: leaves})
	a.Start()
	put(t, a, store.WorkRow{Kind: "count", Key: "x"})
	testkit.Until(t, "it is left", func() bool {
		row := rowOf(t, a, "count", "x")
		return c.of("x") == 1 && row.Runner == "" && row.In <= 0
	})
	put(t, a, store.WorkRow{Kind: "count", Key: "y"}) // which is not left yet
	testkit.Until(t, "another row is done", func() bool { return c.of("y") == 1 })
	testkit.Equal(t, c.of("x"), 1, "how often it was begun while it is left to others")
	testkit.Until(t, "it is taken again", func() bool { return c.of("x") == 2 })

	b.Register(Kind{Name: "count", Do: func(context.Context, *Task) (store.Outcome, error) {
		return store.Outcome{Result: json.RawMessage(`"there"`)}, nil
	}})
	b.Start()
	untilDone(t, a, "count", "x", `"there"`)
}

// A handler that fails is called again, and learns how often it was; a panic is a failure.
func TestWorkThatFailsIsDoneAgain(t *testing.T) {
	l, _ := newProject(t).server(t, here, 0)
	l.Register(Kind{Name: "fail", Do: func(_ context.Context, t *Task) (store.Outcome, error) {
		if t.Claims == 1 {
			panic("on purpose")
		}
		return store.Outcome{Result: json.RawMessage(`2`)}, nil
	}})
	l.Start()
	put(t, l, store.WorkRow{Kind: "fail", Key: "x"})
	untilDone(t, l, "fail", "x", "2")
}

// After the machine slept, its processes renew what they do, and take nothing over before others could.
func TestWorkAfterTheMachineSlept(t *testing.T) {
	l, _ := newProject(t).server(t, here, time.Minute)
	l.looked = time.Now()
	testkit.True(t, !l.slept() && l.mayTakeOver().IsZero(), "it slept")
	l.looked = time.Now().Round(0).Add(-31 * time.Second)
	testkit.True(t, l.slept() && l.overdue, "it did not notice that it slept")
	testkit.True(t, time.Until(l.mayTakeOver()) > 29*time.Second, "it takes over what others could not renew")
}
