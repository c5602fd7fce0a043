package actor_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"deepwork/actor"
)

type echo struct{ reply actor.Reply[int] }

type echoer struct{}

func (echoer) Receive(_ context.Context, m echo) error {
	m.reply.Send(1)
	return nil
}

func newEchoer() (actor.Behavior[echo], error) { return echoer{}, nil }

func askEcho(r actor.Reply[int]) echo { return echo{r} }

func BenchmarkAsk(b *testing.B) {
	for _, c := range []struct {
		name string
		idle time.Duration
	}{{"never idle", 0}, {"idle after 5m", 5 * time.Minute}} {
		b.Run(c.name, func(b *testing.B) {
			s := actor.NewSystem(nil)
			defer s.Stop(context.Background())
			ref := actor.Spawn(s, actor.Options{Idle: c.idle}, newEchoer)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := actor.Ask(ctx, ref, askEcho); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRegistryAsk asks ten keys in turn: of so many that the registry has
// had awake and passivated again, and of so many that are awake, where what
// grows is the garbage collector's work on their stacks.
func BenchmarkRegistryAsk(b *testing.B) {
	for _, keys := range []int{10, 100_000} {
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprintf("%08x", i)
		}
		for _, state := range []string{"known", "awake"} {
			b.Run(fmt.Sprintf("%d %s", keys, state), func(b *testing.B) {
				ctx := b.Context()
				s := actor.NewSystem(nil)
				defer s.Stop(context.Background())
				r := actor.NewRegistry(s, actor.Options{Idle: time.Hour},
					func(string) (actor.Behavior[echo], error) { return newEchoer() })
				ask := func(k string) {
					if _, err := actor.Ask(ctx, r.For(k), askEcho); err != nil {
						b.Fatal(err)
					}
				}
				for _, k := range names {
					ask(k)
				}
				if state == "known" {
					for _, k := range names {
						if err := r.Passivate(ctx, k); err != nil {
							b.Fatal(err)
						}
					}
				}
				runtime.GC()
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					ask(names[i%10])
					i++
				}
			})
		}
	}
}

// BenchmarkRegistryAskParallel shows what the registry's one lock costs.
func BenchmarkRegistryAskParallel(b *testing.B) {
	s := actor.NewSystem(nil)
	defer s.Stop(context.Background())
	r := actor.NewRegistry(s, actor.Options{}, func(int) (actor.Behavior[echo], error) { return newEchoer() })
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := actor.Ask(context.Background(), r.For(i%64), askEcho); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkRegistryWake is a whole life: wake, answer, passivate.
func BenchmarkRegistryWake(b *testing.B) {
	s := actor.NewSystem(nil)
	defer s.Stop(context.Background())
	r := actor.NewRegistry(s, actor.Options{Idle: time.Hour}, func(int) (actor.Behavior[echo], error) { return newEchoer() })
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := actor.Ask(ctx, r.For(1), askEcho); err != nil {
			b.Fatal(err)
		}
		if err := r.Passivate(ctx, 1); err != nil {
			b.Fatal(err)
		}
	}
}
