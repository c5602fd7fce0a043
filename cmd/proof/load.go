package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/cmd/proof/fault"
)

// A load is many real clients that work on servers at once, an editor that saves the jobs
// meanwhile, and a judge that compares every session file with what the clients were told.
type load struct {
	*world
	Connections, Depth, Servers, Sessions, Idle int
	Duration                                    time.Duration
	Edit, Bench, Strict                         bool
	out                                         io.Writer
	figures                                     map[string]float64 // the numbers of the report, by what they are

	deadline time.Time
	owners   map[int]string // by server, as session files name them

	begun                         atomic.Int64 // sessions
	crashes, moves, spots, heldUp atomic.Int64
}

// flags are the flags of the subcommand.
func (l *load) flags() *flag.FlagSet {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.IntVar(&l.Connections, "connections", 64, "clients at work at once")
	f.IntVar(&l.Depth, "depth", 8, "sessions in each stack")
	f.IntVar(&l.group, "group", 4, "concurrent steps in each workflow")
	f.DurationVar(&l.Duration, "duration", time.Minute, "for how long work is begun")
	f.IntVar(&l.Sessions, "sessions", 0, "after how many sessions no more are begun; 0 is no limit")
	f.IntVar(&l.Servers, "servers", 1, "servers on the project, 1 or 2; with 2, work moves between them")
	f.BoolVar(&l.Edit, "edit", false, "save every job file ten times a second meanwhile")
	f.Float64Var(&l.lose, "lose", 0, "part of the replies that are lost, 0 to 0.5; the calls are repeated")
	f.BoolVar(&l.stateless, "stateless", false, "speak the newest protocol, which has no sessions")
	f.BoolVar(&l.Bench, "bench", false, "compare throughput with the bare SDK's and the disk's")
	f.BoolVar(&l.Strict, "strict", false, "fail, too, where a figure misses its bound")
	f.IntVar(&l.Idle, "idle", 0, "measure so many connections that do nothing, and nothing else")
	f.Uint64Var(&l.seed, "seed", 0, "makes the choices; 0 takes one from the clock")
	return f
}

// valid says what of the flags makes no sense.
func (l *load) valid() error {
	for _, n := range []struct {
		name             string
		value, low, high float64
	}{
		{"connections", float64(l.Connections), 1, 10_000}, {"depth", float64(l.Depth), 1, 64}, {"group", float64(l.group), 1, mostSteps - 2},
		{"servers", float64(l.Servers), 1, 2}, {"lose", l.lose, 0, 0.5}, {"idle", float64(l.Idle), 0, 50_000},
		{"sessions", float64(l.Sessions), 0, 1e9}, {"duration", l.Duration.Seconds(), 0.001, 1e9},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("--%s %v: %v to %v is possible", n.name, n.value, n.low, n.high)
		}
	}
	if l.Idle == 0 && l.stateless && l.Servers > 1 {
		return errors.New("--stateless and --servers 2 do not go together: work moves when a connection ends, and there is none")
	}
	return nil
}

// errWrong is the error of a load that has found something wrong, which its report says.
var errWrong = errors.New("something is wrong")

func newLoad(out io.Writer) *load {
	l := &load{world: newWorld("", "", 0, 0), out: out, figures: map[string]float64{}, owners: map[int]string{}}
	l.strict = true
	return l
}

// prepare builds the program, and chooses a seed and a project.
func (l *load) prepare(ctx context.Context) (err error) {
	if l.seed == 0 {
		l.seed = uint64(time.Now().UnixNano())
	}
	l.saves, l.root = newSaves(l.group), filepath.Join(l.dir, "project")
	l.program, err = build(ctx, l.dir)
	return err
}

// runLoad is the subcommand load. It returns the numbers of the report.
func runLoad(ctx context.Context, args []string, stdout, stderr io.Writer) (figures map[string]float64, err error) {
	l := newLoad(stdout)
	if err := parse(l.flags(), args, stderr, l.valid); err != nil {
		return nil, err
	}
	if l.dir, err = os.MkdirTemp("", "deepwork-load-"); err != nil {
		return nil, fmt.Errorf("making a folder for the load: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	if l.Idle > 0 {
		return l.figures, l.idle(ctx)
	}
	return l.figures, l.run(ctx)
}

const (
	// idleTimeout is after what time without a call the servers close a connection.
	idleTimeout = 3 * time.Second
	// forgottenAfter is when a server has surely let go of what a client that
	// vanished had: after that, and some time for the work.
	forgottenAfter = 2 * idleTimeout
)

// loadConfig is the configuration of the project: room for many connections, and an
// idle timeout for those whose client has vanished.
func loadConfig(idle time.Duration) string {
	return fmt.Sprintf("version: \"1.0\"\ntoolsets: [workflows]\nhttp:\n  idle_timeout: %v\n  max_connections: 120000\n  max_requests: 20000\n", idle)
}

// run puts the load on, judges and reports.
func (l *load) run(ctx context.Context) error {
	err := errors.Join(layOut(l.root, loadConfig(idleTimeout)), l.writeJobs())
	if err != nil {
		return fmt.Errorf("laying out the project: %w", err)
	}
	var before, after yardstick
	if l.Bench {
		if before, err = l.measureYard(ctx); err != nil {
			return err
		}
	}
	if err := l.startServers(ctx); err != nil {
		return errors.Join(err, l.stopServers())
	}
	rep := l.work(ctx)
	if err := l.stopServers(); err != nil {
		l.history.fault("a server that did not stop as it should", "%v", err)
	}
	if l.Bench && ctx.Err() == nil {
		// Once more, since a machine that others use is not the same all the time.
		if after, err = l.measureYard(ctx); err != nil {
			return err
		}
		rep.yard = yardstick{(before.echoes + after.echoes) / 2, (before.writes + after.writes) / 2}
	}
	l.verify(context.WithoutCancel(ctx), "at the end")
	if rep.checked, err = l.judge(l.dir); err != nil {
		return fmt.Errorf("judging the session files: %w", err)
	}
	l.report(rep)
	if ctx.Err() != nil {
		return fmt.Errorf("the load was cut short: %w", context.Cause(ctx))
	}
	if len(l.history.found()) > 0 {
		return errWrong
	}
	return nil
}

func (l *load) startServers(ctx context.Context) error {
	for n := range l.Servers {
		s := newServer(n, true)
		l.servers = append(l.servers, s)
		if err := l.world.run(ctx, s, fault.Plan{}, "--toolsets", "workflows"); err != nil {
			return fmt.Errorf("starting server %d: %w", n+1, err)
		}
		if p, _ := s.current(); p == nil {
			return fmt.Errorf("server %d has ended at once", n+1)
		}
	}
	return nil
}

// stopServers stops those that were started here, and reads their logs.
func (l *load) stopServers() error {
	var errs []error
	for _, s := range l.servers {
		p, _ := s.current()
		if p == nil {
			errs = append(errs, fmt.Errorf("server %d has ended by itself", s.number+1))
			continue
		}
		errs = append(errs, p.stop())
		text, err := p.logged()
		if p.err != nil {
			err = fmt.Errorf("server %d: %w", s.number+1, p.err)
		}
		errs = append(errs, err)
		for line := range strings.Lines(text) {
			if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "panic:") {
				l.history.fault("an error in a server's log", "%.500s", line)
			}
		}
	}
	return errors.Join(errs...)
}

// work has the walkers and the editors at it until the time is over.
func (l *load) work(ctx context.Context) *report {
	aside, stop := context.WithCancel(ctx)
	rep := &report{}
	var beside sync.WaitGroup
	for _, s := range l.servers {
		m := &memory{}
		rep.memory = append(rep.memory, m)
		beside.Go(func() { l.watch(aside, s, m) })
	}
	edited := func() {}
	if l.Edit {
		edited = l.edits(aside, 100*time.Millisecond)
	}
	began := time.Now()
	l.deadline = began.Add(l.Duration)
	var working sync.WaitGroup
	for i := range l.Connections {
		a := &walker{agent: l.agent(i), load: l}
		working.Go(func() { a.work(ctx) })
	}
	working.Wait()
	rep.took = time.Since(began)
	stop()
	beside.Wait()
	edited()
	return rep
}

// over reports whether no more work is to be begun.
func (l *load) over(ctx context.Context) bool {
	return ctx.Err() != nil || time.Now().After(l.deadline)
}

// another reports whether another session may be begun, and counts it.
func (l *load) another() bool {
	n := l.begun.Add(1)
	return l.Sessions == 0 || n <= int64(l.Sessions)
}

// saw checks that each server writes one owner into the files, and each its own.
func (l *load) saw(server int, id, owner string) (err error) {
	l.history.with(func() {
		for n, o := range l.owners {
			if owner == "" || (n == server) != (o == owner) {
				err = wrongf("two owners", "session %s was in use on server %d and its file names %q as its owner; server %d is %q", id, server+1, owner, n+1, o)
			}
		}
		l.owners[server] = owner
	})
	return err
}
