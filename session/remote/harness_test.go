package remote

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/presence"
	"deepwork/actor/testkit"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/work"

	"go.uber.org/goleak"
	moderncsqlite "modernc.org/sqlite"
)

// patience is how long a test waits for what must come, on a machine that is busy
// with other things too; it never waits that long for what does not.
const patience = time.Minute

func TestMain(m *testing.M) {
	// The clock of the database is that of a bubble in it.
	moderncsqlite.MustRegisterScalarFunction("unixepoch", 1,
		func(*moderncsqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			return float64(time.Now().UnixMicro()) / 1e6, nil
		})

	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	os.Exit(pgtest.Twice(onPostgres, func() int { return statetest.Main(m, goleak.Find) }))
}

// onPostgres are the tests that run with PostgreSQL, too: those of several servers outside of a bubble of
// synctest, whose clock is not the database's.
const onPostgres = `TestASuspendedServerOverwritesNothing TestACancelOutlivesTheServerThatWasAsked ` +
	`TestAStoppedServersRunIsTakenUpAtOnce
	TestAKilledServersRunIsTakenUpAtOnce TestARunThatIsLostBeforeItsStartIsNotStarted TestCancelOfAnotherServersRun`

// A plant is a system that runs workflows: any number at once, each for as long as its workflow says. It
// counts what was ever started.
type plant struct {
	mu        sync.Mutex
	jobs      map[string]*job // by run id
	started   map[string]int  // by the workflow's id
	inputs    []string        // in the order of their starts
	busy      int             // synchronous runs now
	most      int             // runs that ever were here at once
	polls     int
	cancelled []string

	away     error // what every call gets
	statuses bool  // it has a status tool
	cancels  bool  // it has a cancel tool
	hangs    int   // polls that do not return before their context ends
	onStart  func()
	onStatus func(id string) (*source.Answer, error)
	onCancel func(id string) (*source.Answer, error)
}

type job struct {
	until  time.Time
	answer source.Answer // once it is over
	told   *source.Progress
}

type script struct {
	lasts    time.Duration
	answer   source.Answer // at the end
	err      error
	accepted *source.Answer // what an asynchronous start answers; nil means as usual
	progress []source.Progress
	deaf     bool // does not end with its context
	panics   bool
}

func newPlant() *plant {
	return &plant{jobs: map[string]*job{}, started: map[string]int{}, statuses: true, cancels: true}
}

var scripts sync.Map // of *script, by workflow id

func workflow(t testing.TB, id string, async bool, l script) *source.Workflow {
	t.Helper()
	id = t.Name() + "/" + id
	scripts.Store(id, &l)
	t.Cleanup(func() { scripts.Delete(id) })
	return &source.Workflow{Source: "plant", ID: id, Name: id[strings.LastIndex(id, "/")+1:], Async: async}
}

func (p *plant) count() int {
	n := p.busy
	for _, j := range p.jobs {
		if time.Now().Before(j.until) {
			n++
		}
	}
	return n
}

func (p *plant) Execute(
	ctx context.Context, w *source.Workflow, input json.RawMessage, progress func(source.Progress),
) (*source.Answer, error) {
	v, _ := scripts.Load(w.ID)
	l := v.(*script)
	if p.onStart != nil {
		defer p.onStart()
	}
	p.mu.Lock()
	if p.away != nil {
		defer p.mu.Unlock()
		return nil, p.away
	}
	p.started[w.Name]++
	p.inputs = append(p.inputs, string(input))
	if l.panics {
		defer p.mu.Unlock()
		panic("the source's answer is cursed")
	}
	if w.Async {
		defer p.mu.Unlock()
		if l.err != nil || l.accepted != nil {
			return l.accepted, l.err
		}
		id := fmt.Sprintf("x-%d", len(p.jobs)+1)
		p.jobs[id] = &job{until: time.Now().Add(l.lasts), answer: l.answer}
		p.most = max(p.most, p.count())
		return &source.Answer{ExecutionID: id, State: source.Running}, nil
	}
	p.busy++
	p.most = max(p.most, p.count())
	p.mu.Unlock()
	defer func() { p.with(func() { p.busy-- }) }()
	for _, pr := range l.progress {
		progress(pr)
	}
	if l.deaf {
		ctx = context.Background()
	}
	if err := wait.For(ctx, l.lasts); err != nil {
		return nil, err
	}
	return &l.answer, l.err
}

func (p *plant) Status(ctx context.Context, _, workflowID, id string) (*source.Answer, error) {
	hang := false
	p.with(func() { hang, p.hangs = p.hangs > 0, p.hangs-1 })
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polls++
	switch j := p.jobs[id]; {
	case p.away != nil:
		return nil, p.away
	case !p.statuses:
		return nil, source.ErrUnsupported
	case p.onStatus != nil:
		return p.onStatus(id)
	case j == nil:
		return nil, &source.RefusedError{Text: "no such execution: " + id}
	case time.Now().Before(j.until):
		return &source.Answer{ExecutionID: id, State: source.Running, Progress: j.told}, nil
	default:
		a := j.answer
		if a.State == "" {
			a.State = source.Completed
		}
		return &a, nil
	}
}

func (p *plant) Cancel(ctx context.Context, _, workflowID, id string) (*source.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.away != nil:
		return nil, p.away
	case !p.cancels:
		return nil, source.ErrUnsupported
	}
	p.cancelled = append(p.cancelled, id)
	if p.onCancel != nil {
		return p.onCancel(id)
	}
	if j := p.jobs[id]; j != nil {
		j.until, j.answer = time.Now(), source.Answer{State: source.Cancelled}
	}
	return &source.Answer{State: source.Cancelled}, nil
}

func (p *plant) with(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// A server is an engine in a test, and what it is told.
type server struct {
	*Engine
	t      testing.TB
	log    *logbook
	config atomic.Pointer[config.Config]
	disk   *disk
	member *presence.Member
	closed bool
	leave  func() error // ends the membership and closes the disk
	root   string
	again  func() *server // opens another one like it
}

// A disk is a database that can be full: then nothing is written. While its lock is held, its server is like
// a suspended process. What others change is looked for at once only if told to: in days of a test's time that would
// be often.
type disk struct {
	store.Database
	full   atomic.Bool
	serve  atomic.Bool
	frozen sync.RWMutex
}

type diskRuns struct {
	store.RemoteRuns
	disk *disk
}

type diskWork struct {
	store.Work
	disk *disk
}

type diskChanges struct {
	store.Changes
	disk *disk
}

func (d *disk) RemoteRuns() store.RemoteRuns { return diskRuns{d.Database.RemoteRuns(), d} }
func (d *disk) Work() store.Work             { return diskWork{d.Database.Work(), d} }
func (d *disk) Changes() store.Changes       { return diskChanges{d.Database.Changes(), d} }

// on writes to a disk, unless it is full.
func on[T any](d *disk, write func() (T, error)) (none T, _ error) {
	d.frozen.RLock()
	full := d.full.Load()
	d.frozen.RUnlock()
	if full {
		return none, fmt.Errorf("%w: %w", task.ErrFull, syscall.ENOSPC)
	}
	return write()
}

func (e diskRuns) Add(ctx context.Context, x *store.RemoteRun, w store.WorkRow) error {
	return testkit.Get(on(e.disk, func() (any, error) { return nil, e.RemoteRuns.Add(ctx, x, w) })).Err()
}

func (e diskRuns) Save(ctx context.Context, x *store.RemoteRun, from State) error {
	return testkit.Get(on(e.disk, func() (any, error) { return nil, e.RemoteRuns.Save(ctx, x, from) })).Err()
}

func (w diskWork) Open(ctx context.Context) ([]store.WorkRow, error) {
	w.disk.frozen.RLock()
	defer w.disk.frozen.RUnlock()
	return w.Work.Open(ctx)
}

func (w diskWork) Claim(ctx context.Context, c store.WorkClaim) ([]store.WorkRow, error) {
	return on(w.disk, func() ([]store.WorkRow, error) { return w.Work.Claim(ctx, c) })
}

func (w diskWork) Renew(ctx context.Context, life time.Duration, rows []store.WorkRow) ([]store.WorkRow, error) {
	return on(w.disk, func() ([]store.WorkRow, error) { return w.Work.Renew(ctx, life, rows) })
}

func (w diskWork) End(ctx context.Context, row *store.WorkRow, o store.Outcome) (bool, error) {
	return on(w.disk, func() (bool, error) { return w.Work.End(ctx, row, o) })
}

// lookEvery is the time between two looks at a disk that is looked at rarely.
const lookEvery = 10 * time.Second

func (c diskChanges) Wait(ctx context.Context, position string) error {
	for !c.disk.serve.Load() {
		if news, err := c.Since(ctx, position); err != nil || news.Next != position {
			return err
		}
		if err := wait.For(ctx, lookEvery); err != nil {
			return err
		}
	}
	return c.Changes.Wait(ctx, position)
}

// gone is a server of which only its runs are left.
const gone = "0123456789abcdef"

func testID(n int) string { return fmt.Sprintf("019aa000-0000-7000-8000-00000000000%d", n) }

func written(n int, s State) *store.RemoteRun {
	x := &store.RemoteRun{
		ID: testID(n), Identity: "me", Source: "plant", WorkflowID: "w", WorkflowName: "wörk",
		State: s, StatusSupported: true, StartedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	switch s {
	case store.RemoteWaiting, store.RemoteStarting:
	case Running:
		x.SourceExecutionID = new("x-1")
	default:
		x.EndedAt = new(x.StartedAt.Add(time.Second))
		x.Result = json.RawMessage(fmt.Sprintf(`{"n":%d,"of":"<run>"}`, n))
	}
	return x
}

// kill stores runs in the project at root whose server, on another machine, was killed just after it had renewed them.
func kill(t testing.TB, root string, life time.Duration, all ...*store.RemoteRun) {
	t.Helper()
	synctest.Wait() // servers that open the database at the same time would wait for each other, and no time passes
	stores, _, end := openStore(t, root)
	defer end()
	testkit.Must(t, stores.Members.Enter(t.Context()))
	for _, x := range all {
		testkit.Must(t, stores.Database.RemoteRuns().Add(t.Context(), x, store.WorkRow{
			Kind:        store.RemoteWork,
			Key:         x.ID,
			Runner:      gone + "-1",
			RunnerPlace: "elsewhere",
			Life:        life,
		}))
	}
}

// oneSchema is that of all tests on PostgreSQL.
var oneSchema = "test_" + strings.ToLower(rand.Text()[:12])

// openStore opens the stores of the project at root as another process does.
func openStore(t testing.TB, root string) (*store.Stores, *presence.Member, func() error) {
	t.Helper()
	m := session.NewMember(state.Of(root), nil)
	if !pgtest.OnPostgres() {
		d := sqlite.New(sqlite.Options{Path: state.Of(root).Database()})
		return &store.Stores{Members: m, Database: d}, m, func() error { return errors.Join(d.Close(), m.Leave()) }
	}

	url := testkit.Get(pgtest.Shared()).Must(t).At(oneSchema)
	pg := testkit.Get(postgres.Open(postgres.Options{
		URL:        url,
		Project:    root,
		Repository: postgres.Repository{RootCommit: root},
		Machine:    "12345678",
		Root:       root,
	})).Must(t)
	stores := backend.Of(pg, m, &task.Place{MachineID: "12345678", Root: root}, root)
	return stores, m, func() error { return stores.Close(context.Background()) }
}

func stored(t testing.TB, s *server, id string) *store.RemoteRun {
	t.Helper()
	return testkit.Get(s.disk.RemoteRuns().RemoteRun(context.Background(), id)).Must(t)
}

type logbook struct{ testkit.Log }

func (j *logbook) has(parts ...string) bool {
	for line := range strings.Lines(j.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

func open(t testing.TB, root string, s Sources, edit func(*config.WorkflowTools)) *server {
	t.Helper()
	return openFor(t, root, s, edit, recordLife)
}

func openFor(t testing.TB, root string, s Sources, edit func(*config.WorkflowTools), life time.Duration) *server {
	t.Helper()
	srv := &server{t: t, root: root, log: &logbook{}, again: func() *server { return openFor(t, root, s, edit, life) }}
	srv.configure(edit)
	stores, member, leave := openStore(t, root)
	srv.member = member
	srv.disk = &disk{Database: stores.Database}
	stores.Database = srv.disk
	logger := slog.New(slog.NewTextHandler(srv.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	loop := work.New(context.Background(), work.Options{Stores: stores, Logger: logger, Life: life})
	srv.leave = func() error {
		if stuck := loop.Close(context.Background()); stuck != nil {
			return fmt.Errorf("did not stop: %v", stuck)
		}
		return leave()
	}
	srv.Engine = Open(Options{
		Stores:   stores,
		Work:     loop,
		Sources:  s,
		Logger:   logger,
		Settings: func(context.Context) (*config.Config, error) { return srv.config.Load(), nil },
	})
	loop.Start()
	t.Cleanup(srv.stop)
	return srv
}

func (s *server) configure(edit func(*config.WorkflowTools)) {
	c := config.Default()
	if edit != nil {
		edit(&c.WorkflowTools)
	}
	s.config.Store(c)
}

func (s *server) stop() {
	if s.closed {
		return
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	testkit.Same(s.t, s.Close(ctx), nil, "did not stop")
	testkit.Works(s.t, s.leave())
}

func (s *server) restart() *server {
	s.stop()
	return s.again()
}

func (s *server) run(w *source.Workflow) *Run {
	s.t.Helper()
	return testkit.Get(s.call(s.t.Context(), "me", w, nil, nil)).Must(s.t)
}

func (s *server) refuses(w *source.Workflow, code string, words ...string) {
	s.t.Helper()
	wantCode(s.t, testkit.Get(s.call(s.t.Context(), "me", w, nil, nil)).Err(), session.StateError, code, words...)
}

func (s *server) status(id string) *Run {
	s.t.Helper()
	return testkit.Get(s.Status(s.t.Context(), "me", id)).Must(s.t)
}

func (s *server) noStatus(who, id string, kind session.Kind, code string, words ...string) {
	s.t.Helper()
	wantCode(s.t, testkit.Get(s.Status(s.t.Context(), who, id)).Err(), kind, code, words...)
}

func (s *server) is(id string, state State, result string) *Run {
	s.t.Helper()
	r := s.status(id)
	testkit.True(s.t, r.State == state && string(r.Result) == result, "%+v with the result %s; want %s, %s", r,
		r.Result, state, result)
	return r
}

func (s *server) cancelled(id string) *Run {
	s.t.Helper()
	r := testkit.Get(s.Cancel(s.t.Context(), "me", id)).Must(s.t)
	testkit.Equal(s.t, r.State, Cancelled)
	return r
}

type pending struct {
	t      testing.TB
	cancel context.CancelCauseFunc
	done   chan struct{}
	run    *Run
	err    error

	mu   sync.Mutex
	told []Run // by progress
}

// start makes a call and returns when the engine has begun with it.
func (s *server) start(w *source.Workflow, input string) *pending {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(s.t.Context())
	p := &pending{t: s.t, cancel: cancel, done: make(chan struct{})}
	begun := make(chan struct{})
	go func() {
		defer close(p.done)
		p.run, p.err = s.call(ctx, "me", w, json.RawMessage(input), func(r Run) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.told = append(p.told, r); len(p.told) == 1 {
				close(begun)
			}
		})
	}()
	s.t.Cleanup(func() {
		cancel(nil)
		<-p.done
	})
	select {
	case <-begun:
	case <-p.done:
	}

	return p
}

func (s *server) does(async bool, l script) *pending {
	s.t.Helper()
	return s.start(workflow(s.t, "w", async, l), `{}`)
}

func (p *pending) progress() []Run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

func (p *pending) id() string {
	p.t.Helper()
	if told := p.progress(); len(told) > 0 {
		return told[0].ExecutionID
	}
	p.t.Fatalf("the call was refused: %v", p.err)
	return ""
}

func (p *pending) wait() (*Run, error) {
	<-p.done
	return p.run, p.err
}

func (p *pending) ends() *Run {
	p.t.Helper()
	return testkit.Get(p.wait()).Must(p.t)
}

// cancelled cancels the call after a second, and returns what it is told.
func (p *pending) cancelled() *session.Error {
	p.t.Helper()
	time.Sleep(time.Second)
	p.cancel(ErrCancelled)
	return p.over(Cancelled, "workflow_cancelled")
}

// over is wait for a call that ends in an error that holds its run.
func (p *pending) over(state State, code string) *session.Error {
	p.t.Helper()
	_, err := p.wait()
	return refusedAs(p.t, err, state, code)
}

func refusedAs(t testing.TB, err error, state State, code string) *session.Error {
	t.Helper()
	e, ok := errors.AsType[*session.Error](err)
	testkit.Need(t, ok, "err = %v, want a session.Error %s", err, code)

	r, _ := e.Details["run"].(*Run)
	testkit.Need(t, e.Kind == session.StateError, "%s %q, run %+v; want %s with state %s", e.Code, e, r, code, state)
	testkit.Need(t, e.Code == code, "%s %q, run %+v; want %s with state %s", e.Code, e, r, code, state)
	testkit.Need(t, r != nil, "%s %q, run %+v; want %s with state %s", e.Code, e, r, code, state)
	testkit.Need(t, r.State == state, "%s %q, run %+v; want %s with state %s", e.Code, e, r, code, state)
	testkit.Need(t, e.Details["execution_id"] == r.ExecutionID, "%s %q, run %+v; want %s with state %s", e.Code, e, r,
		code, state)
	return e
}

func wantCode(t testing.TB, err error, kind session.Kind, code string, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*session.Error](err)
	testkit.Need(t, ok, "err = %v, want %s %s", err, kind, code)
	testkit.Need(t, e.Kind == kind, "err = %v, want %s %s", err, kind, code)
	testkit.Need(t, e.Code == code, "err = %v, want %s %s", err, kind, code)
	testkit.ContainsAll(t, e.Error(), words)
}

// bubble runs a test with simulated time, a plant and a server.
func bubble(t *testing.T, edit func(*config.WorkflowTools), f func(t *testing.T, p *plant, s *server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		f(t, p, open(t, testkit.Dir(t), p, edit))
	})
}

// An opener opens a server, with an edit of the default settings.
type opener = func(edit func(*config.WorkflowTools)) *server

// bubbles runs several cases so; a case opens its server.
func bubbles[C any](t *testing.T, cases map[string]C, f func(t *testing.T, c C, p *plant, open opener)) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, root := newPlant(), testkit.Dir(t)
				f(t, c, p, func(edit func(*config.WorkflowTools)) *server { return open(t, root, p, edit) })
			})
		})
	}
}

var syncAndAsync = map[string]bool{"sync": false, "async": true}

func oneSlot(w *config.WorkflowTools) { w.MaxConcurrent = 1 }
func forEver(w *config.WorkflowTools) { w.ExecutionTimeout = new(time.Duration(0)) }

func output(text string) source.Answer { return source.Answer{Output: json.RawMessage(text)} }
