package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"

	"github.com/jackc/pgx/v5"
)

const benchTime = time.Second / 2

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

// text is one that does not compress to nothing.
func text(size int) string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "step wrote output_%x.md; ", rand.Uint64())
	}
	return b.String()[:size]
}

// What a workflow of 25 steps has, in bytes: a transition writes the frame, two steps and a reply.
const (
	benchSteps                                = 25
	frameSize, stepSize, begunSize, replySize = 1 << 10, 300, 100, 1200
	movedSize                                 = frameSize + stepSize + begunSize + replySize
	wholeSize                                 = frameSize + benchSteps/2*stepSize + 2*replySize
)

// moving returns a function that makes transitions of a session of each caller: each ends a step, begins
// the next one, stores its reply, with a request id if asked to, and drops the reply before the last one.
func moving(b *testing.B, s *Store, prefix, callers int, requests bool) func(caller, n int) error {
	b.Helper()
	sessions := sessionsOf(s)
	frame, step, reply := text(frameSize), text(stepSize), text(replySize)
	count := make([]int64, callers) // of transitions
	return func(caller, _ int) error {
		ctx, cancel := context.WithTimeout(b.Context(), callTime)
		defer cancel()
		n := count[caller]
		count[caller]++
		at := n % benchSteps
		w := transition(fmt.Sprintf("%02x%02x%04x", prefix, caller, n/benchSteps), at+1)
		w.Goal, w.Frame, w.UpdatedAt = "A goal of a few words", frame, time.Now()
		w.Put = []store.SessionPart{
			{Kind: "step", Key: fmt.Sprint(at), Position: at, Body: step},
			{Kind: "step", Key: fmt.Sprint(at + 1), Position: at + 1, Body: step[:begunSize]},
			{Kind: "reply", Key: fmt.Sprint(at), Position: at, Body: reply},
		}
		if at > 1 {
			w.Gone = []store.SessionPart{{Kind: "reply", Key: fmt.Sprint(at - 2)}}
		}
		if requests {
			w.Request = &store.Key{byte(prefix), byte(caller)}
			binary.BigEndian.PutUint64(w.Request[2:], uint64(n))
		}
		if written, err := sessions.WriteSession(ctx, w); err != nil || !written {
			return fmt.Errorf("transition %d of %s: %v, %w", n, w.ID, written, err)
		}
		return nil
	}
}

// BenchmarkTransitions compares the transitions per second of 64 callers with bare updates of rows by as
// many: rows as large as a whole session, which a transition would replace if a session was one row, and as
// large as what a transition writes.
func BenchmarkTransitions(b *testing.B) {
	const callers = 64
	server := pgtest.New(b, "max_connections=200")
	s := openAt(b, server.URL())
	config := testkit.Get(pgx.ParseConfig(server.At(""))).Must(b)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 0, 0
	bare := make([]*pgx.Conn, callers)
	for i := range bare {
		bare[i] = testkit.Get(pgx.ConnectConfig(b.Context(), config)).Must(b)
		defer bare[i].Close(context.Background())
	}
	testkit.Get(bare[0].Exec(b.Context(), `CREATE TABLE bare (id bigint PRIMARY KEY, version bigint NOT NULL, body text NOT NULL) WITH (fillfactor = 60)`)).Must(b)
	testkit.Get(bare[0].Exec(b.Context(), `INSERT INTO bare SELECT n, 0, '' FROM generate_series(0, $1) n`, callers-1)).Must(b)
	updating := func(size int) func(caller, n int) error {
		bodies := []string{text(size), text(size)}
		return func(caller, n int) error {
			_, err := bare[caller].Exec(b.Context(), `UPDATE bare SET body = $2, version = version + 1 WHERE id = $1`, caller, bodies[n%2])
			return err
		}
	}
	kinds := []struct {
		name string
		f    func(caller, n int) error
	}{
		{"whole", updating(wholeSize)}, {"bare", updating(movedSize)},
		{"transitions", moving(b, s, 1, callers, false)}, {"requests", moving(b, s, 2, callers, true)},
	}
	rate, spent := map[string]float64{}, map[string]float64{}
	for _, kind := range kinds {
		perSecond(b, callers, kind.f)
	}
	for b.Loop() {
		for _, kind := range kinds {
			before := processorTime(server.PID())
			n := perSecond(b, callers, kind.f)
			rate[kind.name] += n
			spent[kind.name] += float64((processorTime(server.PID()) - before).Microseconds()) / n / benchTime.Seconds()
		}
	}
	for _, kind := range kinds {
		b.ReportMetric(rate[kind.name]/float64(b.N), kind.name+"/s")
		b.ReportMetric(spent[kind.name]/float64(b.N), kind.name+"-server-µs")
	}
	b.ReportMetric(rate["transitions"]/rate["whole"], "of-whole")
	b.ReportMetric(rate["transitions"]/rate["bare"], "of-bare")
}

// processorTime returns that of the processes of a server, on Linux.
func processorTime(pid int) (spent time.Duration) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		data, _ := os.ReadFile(name)
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 12 && f[1] == fmt.Sprint(pid) {
			for _, ticks := range f[11:13] {
				n, _ := strconv.Atoi(ticks)
				spent += time.Duration(n) * time.Second / 100
			}
		}
	}
	return spent
}
