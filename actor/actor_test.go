package actor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor"
	"deepwork/actor/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A task is the tests' message: a function that runs on the actor's goroutine.
type task func(ctx context.Context, p *probe) error

// A disk is what survives incarnations, and what the tests learn of them.
type disk struct {
	mu                sync.Mutex
	value             int // durable state
	made, began, over int // calls of newBehavior, Start, Stop
	makeErr, startErr error
	// called at the same moments, without the lock
	onMake, onStart, onStop func()
}

// A probe keeps a value in memory, loaded from its disk by Start.
type probe struct {
	disk    *disk
	value   int
	pending []actor.Reply[int] // replies kept for later
}

func (d *disk) newProbe() (actor.Behavior[task], error) {
	d.call(&d.made, &d.onMake)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.makeErr != nil {
		return nil, d.makeErr
	}
	return &probe{disk: d}, nil
}

func (p *probe) Start(context.Context) error {
	p.disk.call(&p.disk.began, &p.disk.onStart)
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	p.value = p.disk.value
	return p.disk.startErr
}

func (p *probe) Stop(context.Context) { p.disk.call(&p.disk.over, &p.disk.onStop) }

func (d *disk) call(count *int, hook *func()) {
	d.mu.Lock()
	*count++
	f := *hook
	d.mu.Unlock()
	if f != nil {
		f()
	}
}

func (p *probe) Receive(ctx context.Context, t task) error { return t(ctx, p) }

// lived checks how many incarnations were made and how many were stopped.
func (d *disk) lived(t *testing.T, made, over int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	testkit.Equal(t, [2]int{d.made, d.over}, [2]int{made, over}, "incarnations made and stopped")
}

func (d *disk) set(f func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// add1 adds one to the value, durably, and answers with the sum.
func add1(r actor.Reply[int]) task {
	return func(_ context.Context, p *probe) error {
		p.value++
		p.disk.set(func(d *disk) { d.value = p.value })
		r.Send(p.value)
		return nil
	}
}

func keepReply(r actor.Reply[int]) task {
	return func(_ context.Context, p *probe) error {
		p.pending = append(p.pending, r)
		return nil
	}
}

// with makes a task of what is done with its reply.
func with(do func(actor.Reply[int])) func(actor.Reply[int]) task {
	return func(r actor.Reply[int]) task {
		return func(context.Context, *probe) error {
			do(r)
			return nil
		}
	}
}

func rest(context.Context, *probe) error { return actor.ErrRest }

func answerKept(_ context.Context, p *probe) error {
	for _, r := range p.pending {
		r.Send(p.value)
	}
	p.pending = nil
	return nil
}

// block keeps an actor busy until release is closed.
func block(t *testing.T, to actor.Address[task]) (release chan struct{}) {
	t.Helper()
	begun, release := make(chan struct{}), make(chan struct{})
	testkit.Must(t, to.Tell(t.Context(), func(context.Context, *probe) error {
		close(begun)
		<-release
		return nil
	}))
	<-begun
	return release
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// newSystem is stopped at the end of the test, which fails if an actor is stuck.
func newSystem(t *testing.T, logger *slog.Logger) *actor.System {
	s := actor.NewSystem(logger)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stuck := s.Stop(ctx)
		testkit.True(t, stuck == nil, "did not stop: %v", stuck)
	})
	return s
}

// registry makes a registry whose keys each have a disk.
func registry(s *actor.System, o actor.Options) (*actor.Registry[string, task], func(key string) *disk) {
	var mu sync.Mutex
	disks := make(map[string]*disk)
	of := func(key string) *disk {
		mu.Lock()
		defer mu.Unlock()
		if disks[key] == nil {
			disks[key] = &disk{}
		}
		return disks[key]
	}
	return actor.NewRegistry(s, o, func(key string) (actor.Behavior[task], error) { return of(key).newProbe() }), of
}

// ask fails the test where the answer is not the one wanted.
func ask(t *testing.T, to actor.Address[task], build func(actor.Reply[int]) task, want int) {
	t.Helper()
	got, err := actor.Ask(t.Context(), to, build)
	testkit.True(t, err == nil && got == want, "asked: %d, %v; want %d", got, err, want)
}

// asking asks from another goroutine, in a bubble, and returns when the message waits or has been handled.
// The channel gets the error.
func asking(ctx context.Context, to actor.Address[task], build func(actor.Reply[int]) task) <-chan error {
	done := make(chan error, 1)
	go func() { done <- testkit.Get(actor.Ask(ctx, to, build)).Err() }()
	synctest.Wait()
	return done
}

// bubble runs a part of a test on a clock that moves only when all else waits.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestAskEndsWithItsContextAndTheMessageIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{Name: "slow"}, (&disk{}).newProbe)
		release := block(t, ref)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		_, err := actor.Ask(ctx, ref, add1)
		testkit.True(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "actor slow"),
			"err = %v", err)
		testkit.Equal(t, time.Since(before), time.Second, "waited")

		close(release)
		ask(t, ref, add1, 2) // the write of the asker who left is the first
		r, of := registry(s, actor.Options{Name: "key"})
		testkit.FailsWith(t, testkit.Get(actor.Ask(ctx, r.For("a"), add1)).Err(), context.DeadlineExceeded,
			"over before it is asked")

		of("a").lived(t, 0, 0)
		testkit.Equal(t, r.Len(), 0, "awake")
	})
}

func TestFirstAnswerCounts(t *testing.T) {
	ref := actor.Spawn(newSystem(t, nil), actor.Options{}, (&disk{}).newProbe)
	cause := errors.New("refused")
	for range 100 {
		ask(t, ref, with(func(r actor.Reply[int]) {
			r.Send(1)
			r.Send(2)
			r.Fail(cause)
		}), 1)
	}
	_, err := actor.Ask(t.Context(), ref, with(func(r actor.Reply[int]) {
		r.Fail(cause)
		r.Send(1)
	}))
	testkit.Equal(t, err, cause, "not unchanged")
	testkit.Fails(t, testkit.Get(actor.Ask(t.Context(), ref, with(func(r actor.Reply[int]) { r.Fail(nil) }))).Err(), "",
		"Fail(nil) was taken for an answer")

	var none actor.Reply[int]
	none.Send(1)
	none.Fail(cause)
}

func TestKeptReplyIsAnsweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ref := actor.Spawn(newSystem(t, nil), actor.Options{}, (&disk{value: 7}).newProbe)
		later := asking(t.Context(), ref, keepReply)
		ask(t, ref, add1, 8) // the actor goes on receiving
		testkit.Must(t, ref.Tell(t.Context(), answerKept))
		testkit.Must(t, <-later)

		// The same from another goroutine, while the asker may have left.
		for _, wait := range []time.Duration{time.Minute, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := actor.Ask(ctx, ref,
				with(func(r actor.Reply[int]) { time.AfterFunc(10*time.Second, func() { r.Send(1) }) }))
			cancel()
			testkit.Equal(t, errors.Is(err, context.DeadlineExceeded), wait < 10*time.Second, "%v %v", wait, err)
		}
		time.Sleep(time.Minute)
		ask(t, ref, add1, 9)
	})
}

func TestFullMailboxHoldsSendersUntilTheirContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{Name: "narrow", Mailbox: 3}, (&disk{}).newProbe)
		release := block(t, ref)
		var seen []int
		note := func(n int) task { // on the actor's goroutine
			return func(context.Context, *probe) error {
				seen = append(seen, n)
				return nil
			}
		}
		for n := range 3 {
			testkit.Must(t, ref.Tell(t.Context(), note(n)))
		}

		// One who gives up between two who wait.
		told := make(chan error, 2)
		wait := func(n int) {
			go func() { told <- ref.Tell(t.Context(), note(n)) }()
			synctest.Wait()
		}
		wait(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := asking(ctx, ref, add1)
		wait(4)

		// The figures count every mailbox, and who waits for room in one.
		r, _ := registry(s, actor.Options{Name: "r"})
		releaseX := block(t, r.For("x"))
		testkit.Must(t, r.For("x").Tell(t.Context(), rest))
		testkit.Equal(t, s.Stats(), actor.Stats{Actors: 2, Waiting: 4, Deepest: 3, Blocked: 3})
		close(releaseX)
		err := <-gone
		testkit.True(t, errors.Is(err, context.DeadlineExceeded) &&
			strings.Contains(err.Error(), "actor narrow: its mailbox was full (3 messages)"), "err = %v", err)
		testkit.FailsWith(t, ref.Tell(ctx, note(99)), context.DeadlineExceeded)

		close(release)
		for range 2 {
			testkit.Must(t, <-told)
		}
		ask(t, ref, add1, 1) // not 2: the ask that timed out was never accepted
		testkit.Same(t, seen, []int{0, 1, 2, 3, 4})
		testkit.Equal(t, s.Stats(), actor.Stats{Actors: 1}, "when all is done")

		s.Stop(t.Context())
		testkit.Equal(t, s.Stats(), actor.Stats{}, "stopped")
	})
}

// A tally is what one key of the stress test leaves behind.
type tally struct {
	alive   atomic.Int32 // incarnations between newBehavior and the end of Stop
	handled atomic.Int64
	lives   atomic.Int64
	seen    sync.Map // message number -> true
}

// A visitor counts what it is given; asks that are odd it answers from another goroutine, so that passivation
// meets open asks.
type visitor struct {
	*tally
	twice *atomic.Int64
	async *sync.WaitGroup
}

type visit struct {
	n     int64
	crash bool
	rests bool
	reply actor.Reply[int64]
}

func (v visitor) Receive(_ context.Context, m visit) error {
	if _, again := v.seen.LoadOrStore(m.n, true); again {
		v.twice.Add(1)
	}
	v.handled.Add(1)
	switch {
	case m.crash:
		v.alive.Add(-1) // Stop does not run
		return errTorn
	case m.rests:
		return actor.ErrRest
	case m.n%2 == 1:
		v.async.Go(func() { m.reply.Send(m.n) })
	default:
		m.reply.Send(m.n)
	}

	return nil
}

func (v visitor) Stop(context.Context) { v.alive.Add(-1) }

// Invariants: a key never has two incarnations; every message that was accepted is handled exactly once;
// everyone who asks is answered.
func TestStressPassivationUnderLoad(t *testing.T) {
	const keys, callers, visits = 20, 16, 3000
	for name, crashes := range map[string]bool{"without crashes": false, "with crashes": true} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, nil)
			tallies := make([]tally, keys)
			var two, twice, accepted, next atomic.Int64
			var async sync.WaitGroup

			// One nanosecond: each actor is passivated whenever its mailbox is empty.
			r := actor.NewRegistry(s, actor.Options{Mailbox: 2, Idle: time.Nanosecond, Restarts: 1 << 30},
				func(k int) (actor.Behavior[visit], error) {
					y := &tallies[k]
					if y.alive.Add(1) != 1 {
						two.Add(1)
					}
					y.lives.Add(1)
					return visitor{y, &twice, &async}, nil
				})
			var group sync.WaitGroup
			for range callers {
				group.Go(func() {
					for range visits {
						k, n := rand.IntN(keys), next.Add(1)
						crash := crashes && n%50 == 0
						switch n % 5 {
						case 0:
							testkit.Works(t, r.For(k).Tell(t.Context(), visit{n: n, crash: crash}))
						case 1:
							testkit.Works(t, r.For(k).Tell(t.Context(), visit{n: n, rests: true}))
						default:
							got, err := actor.Ask(t.Context(), r.For(k), func(reply actor.Reply[int64]) visit {
								return visit{n, crash, false, reply}
							})
							// A crash fails the asks that are open beside it.
							testkit.True(t, err == nil && got == n || crashes && errors.Is(err, errTorn),
								"ask %d: %d, %v", n, got, err)
						}

						accepted.Add(1)
					}
				})
			}
			group.Wait()
			testkit.Same(t, s.Stop(t.Context()), nil, "stuck")

			async.Wait()
			var handled, lives int64
			for k := range tallies {
				handled += tallies[k].handled.Load()
				lives += tallies[k].lives.Load()
				testkit.Equal(t, tallies[k].alive.Load(), 0, "incarnations left of key %d", k)
			}
			testkit.Equal(t, two.Load(), 0, "two alive")
			testkit.Equal(t, twice.Load(), 0, "handled twice")
			testkit.Equal(t, handled, accepted.Load(), "handled")
			testkit.Equal(t, r.Len(), 0, "awake")
			testkit.True(t, lives >= visits, "only %d incarnations: passivation was not exercised", lives)
		})
	}
}

// What is passivated leaves nothing behind, however many keys there were.
func TestPassivatedKeysCostNothing(t *testing.T) {
	const keys = 20_000
	var async sync.WaitGroup
	all := new(tally)
	r := actor.NewRegistry(newSystem(t, nil), actor.Options{}, func(int) (actor.Behavior[visit], error) {
		return visitor{all, new(atomic.Int64), &async}, nil
	})

	// The runtime keeps a descriptor of as many goroutines as there ever were at once (some 400 bytes each);
	// those are not what is measured.
	var crowd sync.WaitGroup
	gate := make(chan struct{})
	for range keys + 100 {
		crowd.Go(func() { <-gate })
	}
	close(gate)
	crowd.Wait()
	before := heap()
	for k := range keys {
		testkit.Get(actor.Ask(t.Context(), r.For(k), func(r actor.Reply[int64]) visit { return visit{reply: r} })).
			Must(t)
	}
	for k := range keys {
		testkit.Must(t, r.For(k).Tell(t.Context(), visit{rests: true}))
	}
	for r.Len() > 0 {
		runtime.Gosched()
	}

	grown := heap() - before
	testkit.True(t, grown <= 10*keys, "%d bytes remain of %d passivated keys", grown, keys)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
