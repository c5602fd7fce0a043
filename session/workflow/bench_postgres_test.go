package workflow

import (
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"

	"github.com/jackc/pgx/v5"
)

// At 64 callers a server that shares a database makes at least 0.6 times as many transitions per second
// as pgx updates bare rows of the same sizes in the same mode, in one run. The database has a
// processor of its own, and the callers have one, as on two machines: where both share two, the ratio
// says which of them the work is on, and not whether the server holds the database up.
func BenchmarkTransitionsOnPostgres(b *testing.B) {
	const callers = 64
	defer debug.SetGCPercent(debug.SetGCPercent(200)) // as `deepwork serve` has it
	server := pgtest.New(b, "max_connections=200")
	separate := apart(b, server)
	p := newProject(b)
	p.url = server.URL()
	steps := make([]testStep, 25)
	ids := make([]string, len(steps))
	for i := range steps {
		ids[i] = fmt.Sprint("s", i)
		steps[i] = testStep{id: ids[i], outputs: oneFile}
	}
	p.job("alpha", steps, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	p.write("r.md", "x")
	engine := p.open()

	type caller struct {
		*Conn
		session string
		left    int // steps
		bare    *pgx.Conn
		updates int
	}
	transition := func(c *caller) error {
		if c.left == 0 {
			reply, err := c.Start(ctx, StartArgs{Goal: "again", JobName: "alpha", WorkflowName: "main"})
			if err == nil {
				c.session, c.left = reply.BeginStep.SessionID, len(steps)
			}
			return err
		}
		c.left--
		_, err := c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &c.session})
		return err
	}
	check := func(err error) {
		b.Helper()
		testkit.Must(b, err)
	}
	config, err := pgx.ParseConfig(server.At(""))
	check(err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 0, 0
	all := make([]*caller, callers)
	for i := range all {
		all[i] = &caller{Conn: engine.Connect(fmt.Sprint("caller ", i))}
		all[i].bare, err = pgx.ConnectConfig(ctx, config)
		check(err)
		defer all[i].bare.Close(ctx)
	}

	var bodies []string // of a session after each transition
	size := 0
	for c := all[0]; len(bodies) <= len(steps); {
		check(transition(c))
		body, err := p.record(c.session).Encode()
		check(err)
		bodies = append(bodies, string(body))
		size += len(body)
	}
	_, err = all[0].bare.Exec(ctx, `CREATE TABLE bare (id bigint PRIMARY KEY, version bigint NOT NULL, body text NOT NULL) WITH (fillfactor = 60)`)
	check(err)
	for i := range all {
		_, err := all[0].bare.Exec(ctx, `INSERT INTO bare VALUES ($1, 0, '')`, i)
		check(err)
	}
	update := func(i int, c *caller) error {
		c.updates++
		tag, err := c.bare.Exec(ctx, `UPDATE bare SET body = $2, version = version + 1 WHERE id = $1`, i, bodies[(i+c.updates)%len(bodies)])
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("%v", tag)
		}
		return err
	}

	perSecond := func(f func(i int, c *caller) error) float64 {
		var running sync.WaitGroup
		var count atomic.Int64
		began := time.Now()
		for i, c := range all {
			running.Go(func() {
				for time.Since(began) < time.Second {
					if err := f(i, c); err != nil {
						b.Error(err)
						return
					}
					count.Add(1)
				}
			})
		}
		running.Wait()
		return float64(count.Load()) / time.Since(began).Seconds()
	}
	moved := func() float64 { return perSecond(func(_ int, c *caller) error { return transition(c) }) }
	moved()
	var transitions, updates float64
	for b.Loop() {
		updates += perSecond(update)
		transitions += moved()
	}
	b.ReportMetric(transitions/float64(b.N), "transitions/s")
	b.ReportMetric(updates/float64(b.N), "bare/s")
	b.ReportMetric(float64(size/len(bodies)), "bytes")
	b.ReportMetric(transitions/updates, "ratio")
	if separate && transitions/updates < 0.6 {
		b.Errorf("transitions are %.2f of bare updates, want 0.6", transitions/updates)
	}
}
