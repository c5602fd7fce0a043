package actor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor"
	"deepwork/actor/testkit"
)

// A tally is what one key of the stress test leaves behind.
type tally struct {
	alive   atomic.Int32 // incarnations between newBehavior and the end of Stop
	handled atomic.Int64
	lives   atomic.Int64
	seen    sync.Map // message number -> true
}

// A visitor counts what it is given; asks that are odd it answers from another
// goroutine, so that passivation meets open asks.
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

// Invariants: a key never has two incarnations; every message that was accepted
// is handled exactly once; everyone who asks is answered.
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
							got, err := actor.Ask(t.Context(), r.For(k), func(reply actor.Reply[int64]) visit { return visit{n, crash, false, reply} })
							// A crash fails the asks that are open beside it.
							testkit.True(t, err == nil && got == n || crashes && errors.Is(err, errTorn), "ask %d: %d, %v", n, got, err)
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
	r := actor.NewRegistry(newSystem(t, nil), actor.Options{}, func(int) (actor.Behavior[visit], error) { return visitor{all, new(atomic.Int64), &async}, nil })
	// The runtime keeps a descriptor of as many goroutines as there ever were at
	// once (some 400 bytes each); those are not what is measured.
	var crowd sync.WaitGroup
	gate := make(chan struct{})
	for range keys + 100 {
		crowd.Go(func() { <-gate })
	}
	close(gate)
	crowd.Wait()
	before := heap()
	for k := range keys {
		testkit.Get(actor.Ask(t.Context(), r.For(k), func(r actor.Reply[int64]) visit { return visit{reply: r} })).Must(t)
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
