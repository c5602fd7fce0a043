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
				testkit.Must(b, f(c, n))
				count.Add(1)
			}
		})
	}
	all.Wait()
	return float64(count.Load()) / time.Since(began).Seconds()
}

// text is one that does not compress to nothing.
func text(size int) (all string) {
	for len(all) < size {
		all += fmt.Sprintf("step wrote output_%x.md; ", rand.Uint64())
	}
	return all[:size]
}

// moving returns a function that makes transitions of a session of each caller, as workflows of 25 steps do: each ends a step,
// begins the next one, stores its reply, with a request id, and drops the reply before the last one.
func moving(b *testing.B, s *Store, callers int) func(caller, n int) error {
	sessions := sessionsOf(s)
	frame, step, reply := text(1024), text(300), text(1200)
	count := make([]int64, callers) // of transitions
	return func(caller, _ int) error {
		n := count[caller]
		count[caller]++
		at := n % 25
		w := transition(fmt.Sprintf("01%02x%04x", caller, n/25), at+1)
		w.Goal, w.Frame, w.UpdatedAt = "A goal of a few words", frame, time.Now()
		w.Put = []store.SessionPart{{Kind: "step", Key: fmt.Sprint(at), Position: at, Body: step},
			{Kind: "step", Key: fmt.Sprint(at + 1), Position: at + 1, Body: step[:100]}, {Kind: "reply", Key: fmt.Sprint(at), Position: at, Body: reply}}
		if at > 1 {
			w.Gone = []store.SessionPart{{Kind: "reply", Key: fmt.Sprint(at - 2)}}
		}
		w.Request = &store.Key{1, byte(caller)}
		binary.BigEndian.PutUint64(w.Request[2:], uint64(n))
		written, err := sessions.WriteSession(b.Context(), w)
		if err == nil && !written {
			err = fmt.Errorf("transition %d of %s was not made", n, w.ID)
		}
		return err
	}
}

// BenchmarkTransitions compares the transitions per second of 64 callers with bare updates of rows by as many: rows as large as
// a whole session, which a transition would replace if a session was one row, and as large as what a transition writes.
func BenchmarkTransitions(b *testing.B) {
	const callers = 64
	server := pgtest.New(b, "max_connections=200")
	s := openAt(b, server.URL())
	config := testkit.Get(pgx.ParseConfig(server.At(""))).Must(b)
	config.DefaultQueryExecMode, config.StatementCacheCapacity, config.DescriptionCacheCapacity = pgx.QueryExecModeExec, 0, 0
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
			return second(bare[caller].Exec(b.Context(), `UPDATE bare SET body = $2, version = version + 1 WHERE id = $1`, caller, bodies[n%2]))
		}
	}
	kinds := map[string]func(caller, n int) error{"whole": updating(7000), "bare": updating(2600), "transitions": moving(b, s, callers)}
	rate, spent := map[string]float64{}, map[string]float64{}
	for _, f := range kinds { // they connect
		perSecond(b, callers, f)
	}
	for b.Loop() {
		for kind, f := range kinds {
			before := processorTime(server.PID())
			n := perSecond(b, callers, f)
			rate[kind] += n
			spent[kind] += float64((processorTime(server.PID()) - before).Microseconds()) / n / benchTime.Seconds()
		}
	}
	for kind := range kinds {
		b.ReportMetric(rate[kind]/float64(b.N), kind+"/s")
		b.ReportMetric(spent[kind]/float64(b.N), kind+"-server-µs")
		b.ReportMetric(rate["transitions"]/rate[kind], "of-"+kind)
	}
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
