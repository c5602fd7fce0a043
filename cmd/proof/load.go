package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/cmd/proof/fault"
)

// A load is many real clients that use servers at once, an editor that saves the jobs meanwhile,
// and a judge that compares every session in the store with the replies to the clients.
type load struct {
	*world
	connections, depth, serverCount, idle int
	duration                              time.Duration
	edit, bench                           bool
	out                                   io.Writer

	alternation

	moves   atomic.Int64
	took    time.Duration
	memory  []float64 // of the first server, in each second
	checked int       // sessions
}

func newLoad(out io.Writer) *load {
	l := &load{world: newWorld("", "", 0), out: out}
	l.strict, l.people = true, make(chan struct{}, peopleAtOnce)
	return l
}

// flags are the flags of the subcommand.
func (l *load) flags() *flag.FlagSet {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.IntVar(&l.connections, "connections", 64, "clients at work at once")
	f.IntVar(&l.depth, "depth", 8, "sessions in each stack")
	f.DurationVar(&l.duration, "duration", time.Minute, "for how long work is begun, or connections are idle")
	f.IntVar(&l.serverCount, "servers", 0,
		"servers on the project: 1, or 2, between which work moves; with --alternate 1 to 3, and 2 if it is not given")
	f.BoolVar(&l.edit, "edit", false, "save every job.yml ten times a second meanwhile")
	f.Float64Var(&l.lose, "lose", 0, "part of the replies that are lost, 0 to 0.5; the calls are repeated")
	f.BoolFunc("stateless", "speak the newest protocol, which has no sessions: nothing moves", func(string) error {
		l.version = ""
		return nil
	})
	f.BoolVar(&l.bench, "bench", false, "compare throughput with the bare SDK's and the disk's")
	f.IntVar(&l.idle, "idle", 0, "measure so many connections that do nothing, and nothing else")
	f.Uint64Var(&l.seed, "seed", 0, "makes the choices; 0 takes one from the clock")
	l.alternation.flags(f)
	return f
}

// valid checks the flags, and sets the number of servers if it was not given.
func (l *load) valid() error {
	most, usual := 2, 1
	if l.on {
		most, usual = 3, 2
	}
	l.serverCount = cmp.Or(l.serverCount, usual)
	switch {
	case l.serverCount < 1 || l.serverCount > most:
		return fmt.Errorf("--servers is 1 to %d", most)
	case l.on && (l.idle > 0 || l.bench || l.lose > 0):
		return errors.New("--idle, --bench and --lose are not for --alternate")
	case l.lose < 0 || l.lose > 0.5:
		return errors.New("--lose is 0 to 0.5")
	}

	return l.alternation.valid()
}

// errWrong is the error of a load whose report has faults.
var errWrong = errors.New("something is wrong")

// runLoad is the subcommand load.
func runLoad(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	l := newLoad(stdout)
	if err := parse(l.flags(), args, stderr, l.valid); err != nil {
		return err
	}
	if l.dir, err = os.MkdirTemp("", "deepwork-load-"); err != nil {
		return fmt.Errorf("making a folder for the load: %w", err)
	}
	return errors.Join(l.run(ctx), os.RemoveAll(l.dir))
}

// loadConfig is the configuration of the project: room for many connections, which may be idle for
// as long as a machine is suspended.
const loadConfig = "version: \"1.0\"\ntoolsets: [workflows]\nhttp:\n  idle_timeout: 1h\n  max_connections: 120000\n  " +
	"max_requests: 20000\n"

// run builds the program, puts the load on, judges and reports.
func (l *load) run(ctx context.Context) (err error) {
	if l.seed == 0 {
		l.seed = uint64(time.Now().UnixNano())
	}
	l.root = filepath.Join(l.dir, "project")
	if l.program, err = build(ctx, l.dir); err != nil {
		return err
	}

	config := loadConfig
	if l.on {
		l.version = ""
		if config, err = l.alternateConfig(); err != nil {
			return err
		}
		if err = l.openStore(); err != nil {
			return fmt.Errorf("opening the store: %w", err)
		}

		if l.db != nil {
			defer l.db.Close()
		}
	}
	err = l.writeProject(config)
	if err == nil && l.store != "" { // a database binds its name to a repository
		err = l.gitAll(ctx, "init -q -b main", "remote add origin https://git.example.com/"+l.project()+".git")
	}
	if err != nil {
		return fmt.Errorf("laying out the project: %w", err)
	}

	ceiling := 0.0
	if l.bench {
		if ceiling, err = l.measureCeiling(ctx); err != nil {
			return err
		}
	}

	err = l.startServers(ctx)
	began := time.Now()
	switch {
	case err != nil:
	case l.idle > 0:
		err = l.measureIdle(ctx)
	case l.on:
		l.relay(ctx)
	default:
		l.work(ctx)
	}
	l.took = time.Since(began)
	l.stopServers()
	if err != nil {
		return err
	}

	l.verify(context.WithoutCancel(ctx), "at the end")
	if l.on {
		err = l.judgeAlternation(context.WithoutCancel(ctx))
	} else {
		export := l.whole
		if len(l.servers) == 1 {
			export = l.agrees
		}
		l.checked, err = l.judge(context.WithoutCancel(ctx), export)
	}
	if err != nil {
		return fmt.Errorf("judging the sessions: %w", err)
	}
	l.report(ceiling)
	if ctx.Err() != nil {
		return fmt.Errorf("the load was cut short: %w", context.Cause(ctx))
	}
	if len(l.history.faults) > 0 {
		return errWrong
	}

	return nil
}

func (l *load) startServers(ctx context.Context) error {
	for n := range l.serverCount {
		s := &server{number: n, http: true}
		if l.machines {
			var err error
			if s, _, err = l.machine(n, storeEnv(l.store, l.project())...); err != nil {
				return fmt.Errorf("making machine %d: %w", n+1, err)
			}
		}
		l.servers = append(l.servers, s)
		if err := l.world.run(ctx, s, fault.Plan{}, "--toolsets", "workflows"); err != nil {
			return fmt.Errorf("starting server %d: %w", n+1, err)
		}
		if s.current() == nil {
			said, err := os.ReadFile(s.process.log)
			return errors.Join(fmt.Errorf("server %d has ended at once: %s", n+1, said), err)
		}
	}

	return nil
}

// stopServers stops the servers and reads their logs.
func (l *load) stopServers() {
	for _, s := range l.servers {
		p := s.current()
		if p == nil {
			l.history.fault("a server that ended without being asked", "server %d", s.number+1)
			continue
		}
		err := p.stop()
		text, lerr := os.ReadFile(p.log)
		if err = errors.Join(err, p.err, lerr); err != nil {
			l.history.fault("a server that did not stop as it should", "server %d: %v", s.number+1, err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "panic:") {
				l.history.fault("an error in a server's log", "%.500s", line)
			}
		}
	}
}

// work runs the walkers and editors until the time is over.
func (l *load) work(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, l.duration)
	defer done()
	var all sync.WaitGroup
	all.Go(func() { l.memory = l.watchMemory(ctx, l.servers[0]) })
	if l.edit {
		all.Go(func() { l.world.edit(ctx, 100*time.Millisecond, wholeWays) })
	}
	for i := range l.connections {
		a := &walker{agent: l.agent(i), load: l}
		all.Go(func() { a.work(ctx) })
	}
	all.Wait()
}

// number writes a number of the report, on a line that figures reads.
func (l *load) number(x float64, unit, what string) {
	fmt.Fprintf(l.out, "%12.2f %-14s %s\n", x, unit, what)
}

// report writes the results of the load. ceiling is the throughput to compare with, or 0.
func (l *load) report(ceiling float64) {
	h := l.history
	print := func(format string, args ...any) { fmt.Fprintf(l.out, format, args...) }
	print("%d connections, stacks %d deep, %d servers, seed %d: %.1f s\n", l.connections, l.depth, len(l.servers),
		l.seed, l.took.Seconds())
	print("\n%-16s %9s %9s %9s %9s\n", "tool", "calls", "p50 ms", "p99 ms", "max ms")

	transitions, spread := 0, 0.0
	all := maps.Clone(h.took)
	all["~all"] = slices.Concat(slices.Collect(maps.Values(h.took))...) // after the others
	for _, tool := range slices.Sorted(maps.Keys(all)) {
		took := slices.Sorted(slices.Values(all[tool]))
		n := len(took)
		if n == 0 {
			continue
		}
		if tool != "~all" && tool != "get_step" {
			transitions += n
		}

		ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
		p50, p99 := ms(took[n/2]), ms(took[n*99/100])
		spread = p99 / p50
		print("%-16s %9d %9.1f %9.1f %9.1f\n", strings.TrimPrefix(tool, "~"), n, p50, p99, ms(took[n-1]))
	}
	perSecond := float64(transitions) / l.took.Seconds()
	print("\n")
	l.number(float64(transitions), "transitions", "acknowledged")
	l.number(perSecond, "transitions/s", "")
	l.number(spread, "p99/p50", "of all calls")
	l.number(float64(len(h.sessions)), "sessions", "")
	l.number(float64(l.checked), "checked", "sessions at the end")
	l.number(float64(l.saves.total()), "saves", "of job.yml files")
	l.number(float64(h.lost), "lost", "replies")
	l.number(float64(l.moves.Load()), "moves", "between servers")
	if l.on {
		l.reportAlternation()
	}
	if then, end, settled := growth(l.memory); settled {
		l.number(then, "settled-MB", fmt.Sprintf("memory of server 1 after %v", settledAfter))
		l.number(end, "end-MB", "and at the end")
	}
	if ceiling > 0 {
		l.number(perSecond/ceiling, "of-ceiling", "throughput by 1/(1/e + 1/w)")
	}

	wrong, what := h.found()
	print("\n%s", what)
	l.number(float64(wrong), "wrong", "")
	if wrong == 0 {
		print("all is well: no call failed, and the store has what was acknowledged\n")
	}
}
