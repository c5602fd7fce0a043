package main

import (
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
// and a judge that compares every session file with the replies to the clients.
type load struct {
	*world
	connections, depth, serverCount, idle int
	duration                              time.Duration
	edit, bench                           bool
	out                                   io.Writer

	moves   atomic.Int64
	took    time.Duration
	memory  []float64 // of the first server, in each second
	checked int       // session files
}

func newLoad(out io.Writer) *load {
	l := &load{world: newWorld("", "", 0), out: out}
	l.strict = true
	return l
}

// flags are the flags of the subcommand.
func (l *load) flags() *flag.FlagSet {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.IntVar(&l.connections, "connections", 64, "clients at work at once")
	f.IntVar(&l.depth, "depth", 8, "sessions in each stack")
	f.DurationVar(&l.duration, "duration", time.Minute, "for how long work is begun, or connections are idle")
	f.IntVar(&l.serverCount, "servers", 1, "servers on the project, 1 or 2; with 2, work moves between them")
	f.BoolVar(&l.edit, "edit", false, "save every job.yml ten times a second meanwhile")
	f.Float64Var(&l.lose, "lose", 0, "part of the replies that are lost, 0 to 0.5; the calls are repeated")
	f.BoolFunc("stateless", "speak the newest protocol, which has no sessions: nothing moves", func(string) error {
		l.version = ""
		return nil
	})
	f.BoolVar(&l.bench, "bench", false, "compare throughput with the bare SDK's and the disk's")
	f.IntVar(&l.idle, "idle", 0, "measure so many connections that do nothing, and nothing else")
	f.Uint64Var(&l.seed, "seed", 0, "makes the choices; 0 takes one from the clock")
	return f
}

// valid checks the flags.
func (l *load) valid() error {
	switch {
	case l.serverCount != 1 && l.serverCount != 2:
		return errors.New("--servers is 1 or 2")
	case l.lose < 0 || l.lose > 0.5:
		return errors.New("--lose is 0 to 0.5")
	}
	return nil
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
const loadConfig = "version: \"1.0\"\ntoolsets: [workflows]\nhttp:\n  idle_timeout: 1h\n  max_connections: 120000\n  max_requests: 20000\n"

// run builds the program, puts the load on, judges and reports.
func (l *load) run(ctx context.Context) (err error) {
	if l.seed == 0 {
		l.seed = uint64(time.Now().UnixNano())
	}
	l.root = filepath.Join(l.dir, "project")
	if l.program, err = build(ctx, l.dir); err != nil {
		return err
	}
	if err = l.writeProject(loadConfig); err != nil {
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
	default:
		l.work(ctx)
	}
	l.took = time.Since(began)
	l.stopServers()
	if err != nil {
		return err
	}
	l.verify(context.WithoutCancel(ctx), "at the end")
	if l.checked, err = l.judge(); err != nil {
		return fmt.Errorf("judging the session files: %w", err)
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
		l.servers = append(l.servers, s)
		if err := l.world.run(ctx, s, fault.Plan{}, "--toolsets", "workflows"); err != nil {
			return fmt.Errorf("starting server %d: %w", n+1, err)
		}
		if p := s.current(); p == nil {
			return fmt.Errorf("server %d has ended at once", n+1)
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
	print("%d connections, stacks %d deep, %d servers, seed %d: %.1f s\n", l.connections, l.depth, len(l.servers), l.seed, l.took.Seconds())
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
	l.number(float64(l.checked), "checked", "session files at the end")
	l.number(float64(l.saves.total()), "saves", "of job.yml files")
	l.number(float64(h.lost), "lost", "replies")
	l.number(float64(l.moves.Load()), "moves", "between servers")
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
		print("all is well: no call failed, and every file contains what was acknowledged\n")
	}
}
