package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
)

const (
	bodySize  = 6 << 10 // of a session with a few steps
	benchTime = time.Second / 2
)

// perSecond runs f at some callers for a time.
func perSecond(b *testing.B, callers int, f func(caller, n int) error) float64 {
	b.Helper()
	var all sync.WaitGroup
	var count atomic.Int64
	began := time.Now()
	for c := range callers {
		all.Go(func() {
			for n := 0; time.Since(began) < benchTime; n++ {
				if err := f(c, n); err != nil {
					b.Error(err)
					return
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	return float64(count.Load()) / time.Since(began).Seconds()
}

// benchBody is a record whose text does not compress to nothing.
func benchBody(s *Store, n int) []byte {
	var text strings.Builder
	for i := 0; text.Len() < bodySize; i++ {
		fmt.Fprintf(&text, "step %d of %d wrote output_%x.md; ", i, n, (i+7)*(n+13)*2654435761)
	}
	return fmt.Appendf(nil, "{\n  \"owner\": %q,\n  \"active\": true,\n  \"n\": %d,\n  \"text\": %q\n}", s.ID(), n, text.String())
}

// saving returns a function that saves the sessions of callers.
func saving(b *testing.B, s *Store, prefix, callers int) func(caller, n int) error {
	b.Helper()
	must(b, s.Enter(b.Context()))
	records, err := s.Records(store.RecordOptions{Head: func(body []byte) store.Head {
		return store.Head{Owner: s.ID(), Active: true, Caller: store.Key{1}}
	}})
	must(b, err)
	bodies := make([][]byte, callers)
	name := func(caller int) string { return fmt.Sprintf("%04x%04x", prefix, caller) }
	for c := range callers {
		bodies[c] = benchBody(s, c)
		must(b, records.Create(b.Context(), name(c), bodies[c]))
	}
	return func(caller, _ int) error {
		ctx, cancel := context.WithTimeout(b.Context(), callTime)
		defer cancel()
		return records.Write(ctx, name(caller), bodies[caller])
	}
}

// With commits that take 2 ms more, two servers save at least 1.5 times as many sessions as one: none
// waits for the other.
func BenchmarkTwoServers(b *testing.B) {
	const callers = 4 // of each
	_, url := openNew(b)
	proxy := pgtest.NewProxy(b, url)
	one, other := openAt(b, proxy.URL), openAt(b, proxy.URL)
	first, second := saving(b, one, 1, callers), saving(b, other, 2, callers)
	proxy.DelayCommits(2 * time.Millisecond)
	var alone, both float64
	for b.Loop() {
		alone += perSecond(b, callers, first)
		both += perSecond(b, 2*callers, func(caller, n int) error {
			if caller < callers {
				return first(caller, n)
			}
			return second(caller-callers, n)
		})
	}
	b.ReportMetric(alone/float64(b.N), "one/s")
	b.ReportMetric(both/float64(b.N), "two/s")
	b.ReportMetric(both/alone, "ratio")
	if both/alone < 1.5 {
		b.Errorf("two servers are %.2f times as fast as one, want 1.5", both/alone)
	}
}
