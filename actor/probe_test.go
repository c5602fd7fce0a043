package actor_test

import (
	"context"
	"io"
	"log/slog"
	"sync"
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

// asking asks from another goroutine, in a bubble, and returns when the message waits or has been handled. The channel gets
// the error.
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
