package workflow

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/session/store/postgres/pgtest"

	"github.com/jackc/pgx/v5"
)

// At 64 callers a server that shares a database finishes steps at least 0.6 times as fast as bare rows
// of the same size are updated by pgx in the same mode, in one run.
func BenchmarkFinishOnPostgres(b *testing.B) {
	const callers, at = 64, time.Second
	server := pgtest.New(b, "max_connections=200")
	p := newProject(b)
	p.url = server.URL()
	var steps []testStep
	var ids []string
	for i := range 25 {
		ids = append(ids, fmt.Sprintf("s%d", i))
		steps = append(steps, testStep{id: ids[i], outputs: oneFile})
	}
	p.job("alpha", steps, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	p.write("r.md", "x")
	engine := p.open()
	conns := make([]*Conn, callers)
	sessions := make([]string, callers)
	for i := range callers {
		conns[i] = engine.Connect(fmt.Sprint("caller ", i))
		sessions[i] = p.start(conns[i], "alpha", "main").BeginStep.SessionID
	}
	done := make([]int, callers)
	finish := func(i int) error {
		if done[i] > 0 && done[i]%len(steps) == 0 {
			done[i] = 0
			reply, err := conns[i].Start(ctx, StartArgs{Goal: "again", JobName: "alpha", WorkflowName: "main"})
			if err != nil {
				return err
			}
			sessions[i] = reply.BeginStep.SessionID
		}
		done[i]++
		_, err := conns[i].Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &sessions[i]})
		return err
	}

	config, err := pgx.ParseConfig(server.At(""))
	if err != nil {
		b.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 0, 0
	direct := make([]*pgx.Conn, callers)
	for i := range callers {
		if direct[i], err = pgx.ConnectConfig(ctx, config); err != nil {
			b.Fatal(err)
		}
		defer direct[i].Close(ctx)
	}
	if _, err := direct[0].Exec(ctx, `CREATE TABLE bare (id bigint PRIMARY KEY, version bigint NOT NULL, body text NOT NULL) WITH (fillfactor = 60)`); err != nil {
		b.Fatal(err)
	}
	body := ""
	update := func(i int) error {
		_, err := direct[i].Exec(ctx, `UPDATE bare SET body = $2, version = version + 1 WHERE id = $1`, i, body)
		return err
	}
	perSecond := func(f func(i int) error) float64 {
		var all sync.WaitGroup
		var count atomic.Int64
		began := time.Now()
		for i := range callers {
			all.Go(func() {
				for time.Since(began) < at {
					if err := f(i); err != nil {
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

	perSecond(finish)
	size := 0
	for _, id := range sessions {
		encoded, err := p.record(id).Encode()
		if err != nil {
			b.Fatal(err)
		}
		if size += len(encoded); body == "" {
			body = string(encoded)
		}
	}
	size /= callers
	body = strings.Repeat(body, 1+size/len(body))[:size]
	for i := range callers {
		if _, err := direct[0].Exec(ctx, `INSERT INTO bare VALUES ($1, 0, $2)`, i, body); err != nil {
			b.Fatal(err)
		}
	}
	var finished, updated float64
	for b.Loop() {
		updated += perSecond(update)
		finished += perSecond(finish)
	}
	b.ReportMetric(finished/float64(b.N), "finished/s")
	b.ReportMetric(updated/float64(b.N), "bare/s")
	b.ReportMetric(float64(size), "bytes")
	b.ReportMetric(finished/updated, "ratio")
	if finished/updated < 0.6 {
		b.Logf("finishing steps is %.2f of bare updates, want 0.6", finished/updated)
	}
}
