package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	folder "deepwork/session/state"
	"deepwork/session/state/statetest"
)

// A simulation sends random calls of clients to real server processes on one folder, while servers are killed, one or
// all at once, the disk is full or slow, the clock jumps, editors save, and somebody hostile edits .deepwork. Every
// history is checked for linearizability against a model of the workflow tools, or of a task of the board: what was
// acknowledged is never lost and never done twice; what was not is seen whole or not at all. No agent and no workflow
// of another system is started twice, and their work is not lost. At the end `deepwork check` judges, too.
//
// The same seed makes the same choices of clients and faults. The timing of processes matters too, so a failed seed may
// have to be run more than once.
type simulation struct {
	*world
	length     time.Duration // how long clients work
	operations int           // the clients end after so many answered calls, even before; 0 means no bound
	clients    int           // of workflows; a quarter as many each for the board and for executions
	count      int           // servers; 0 means that the seed chooses
	random     *rand.Rand    // of the faults

	tasks   map[string]*task // acknowledged tasks of the board; guarded by the history
	stops   map[string]bool  // attempts that must be stopped; likewise
	landed  map[string]int   // outcomes of merging, rebasing and pushing; likewise
	clerks  []*clerk
	callers []*caller

	states func() []*folder.Folder // of each clone of the project

	config string       // the granted one
	edits  atomic.Int64 // of the hostile ones
	hiding sync.Mutex   // held while the folder of sessions is another

	source        *process // of workflows
	sourceAddress string

	kills, crashes int // of one server, of all at once
	// attempts that there were in the end, agents that ever began, refs that keep work of deleted attempts
	attempts, agents, rescues int
	executions                int // received by the source
}

func newSimulation(dir string, seed uint64, length time.Duration, clients int) *simulation {
	s := &simulation{world: newWorld(filepath.Join(dir, "project"), dir, seed), length: length, clients: clients,
		random: rand.New(rand.NewPCG(seed, 0)), sourceAddress: "127.0.0.1:0",
		tasks: map[string]*task{}, stops: map[string]bool{}, landed: map[string]int{}}
	s.lose = 0.08
	s.states = func() []*folder.Folder { return []*folder.Folder{stateOf(s.root)} }
	return s
}

// simulate runs a simulation in an empty folder. It blocks for slightly longer than
// its length, and until something was done. Faults found are in the history; the error is one of the
// simulation itself.
func (s *simulation) simulate(ctx context.Context) error {
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return fmt.Errorf("simulating: %w", err)
	}

	err := s.layOut(ctx)
	if err == nil {
		err = s.live(ctx)
	}

	err = errors.Join(err, s.killRunning()) // some are left only after an error
	if s.source != nil {
		err = errors.Join(err, s.source.kill())
	}
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}

	return nil
}

// String describes what happened.
func (s *simulation) String() string {
	h := s.history
	return fmt.Sprintf("seed %d: %d sessions (%d histories too tangled), %d tasks (%d attempts left, %d agents "+
		"began, %d rescues, branches %v), %d executions; %d calls (%d lost, %d without effect), %d kills, %d "+
		"crashes, %d hostile edits",
		s.seed, len(h.sessions), h.tangled, len(s.tasks), s.attempts, s.agents, s.rescues, s.landed, s.executions,
		h.calls, h.lost, h.refused, s.kills, s.crashes, s.edits.Load())
}

// layOut creates the project, a repository with jobs, agents and a source of workflows, and defines
// the servers.
func (s *simulation) layOut(ctx context.Context) (err error) {
	if err := errors.Join(s.build(ctx), s.startSource(ctx)); err != nil {
		return err
	}

	// Executions have no timeout, since clocks are wrong, and few slots, so that some wait.
	s.config = fmt.Sprintf("attempts: {max_concurrent: 4}\n%s"+
		"workflow_tools:\n  execution_timeout: 0\n  reply_within: 150ms\n  status_interval: 20ms\n  "+
		"max_concurrent_executions: 2\n  refresh_interval: 0\n  sources:\n    - {name: sim, url: %q}\n",
		s.executors(), s.source.url)
	err = errors.Join(s.layRepo(ctx, s.config, "config user.name Sim", "config user.email sim@example.com"),
		s.layTrap(ctx))
	if err == nil {
		err = s.gitAll(ctx, "clone -q --bare . "+s.mirror(), "remote add mirror "+s.mirror())
	}
	if err != nil {
		return err
	}

	// Up to three servers, the first usually over stdio, so that each kind occurs.
	for n := range cmp.Or(s.count, 1+s.random.IntN(3)) {
		s.servers = append(s.servers,
			&server{number: n, http: n > 0 && s.random.IntN(3) > 0 || n == 0 && s.random.IntN(4) == 0})
	}
	return s.guard()
}

// build builds the program with faults. It applies one command in ten twice, which finds effects outside of the state.
func (s *simulation) build(ctx context.Context) (err error) {
	s.env = append(s.env, "DEEPWORK_FAULT_OVERTAKEN=0.1")
	s.program, err = build(ctx, s.dir, "-tags", "faults")
	return err
}

func (s *simulation) agentFile() string { return filepath.Join(s.dir, "agent.sh") }

// executors is the part of a config with the agent.
func (s *simulation) executors() string {
	return fmt.Sprintf("executors:\n  SIM: {command: [sh, %q, %q]}\n", s.agentFile(), s.agentLog())
}

// layRepo writes the project with a config and the agent, and makes a repository of it without .deepwork, after running
// some commands of git.
func (s *simulation) layRepo(ctx context.Context, config string, commands ...string) error {
	err := errors.Join(s.writeProject(config), os.WriteFile(s.agentFile(), []byte(agentScript), 0o644))
	if err == nil {
		err = s.gitAll(ctx, slices.Concat([]string{"init -q -b main"}, commands,
			[]string{"add README load_outputs", "commit -q -m first"})...)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.root, ".git", "info", "exclude"), []byte("/.deepwork/\n"), 0o644)
}

// mirror is a repository that branches are pushed to.
func (s *simulation) mirror() string { return filepath.Join(s.dir, "mirror.git") }

// live runs clients, faults and editors, stops them, and judges.
func (s *simulation) live(ctx context.Context) error {
	if err := s.startAll(ctx); err != nil {
		return err
	}

	working, done := context.WithCancel(ctx)
	defer done()
	var clients sync.WaitGroup
	clients.Go(func() {
		defer done()
		s.await(working)
		// On a busy machine, servers may be killed before they have answered anything.
		for until := time.Now().Add(settleTime); working.Err() == nil && len(s.history.known()) == 0 &&
			time.Now().Before(until); {
			_ = wait.For(working, 50*time.Millisecond)
		}
	})
	s.rove(working, &clients, 1)
	s.keepBoard(working, &clients, false)
	for n := range s.clerks {
		c := &caller{agent: s.agent(s.clients + 2*n + 1)}
		s.callers = append(s.callers, c)
		work(working, &clients, c.agent, c.act, 120)
	}
	for n, edits := range [][]func(*hostile,
		context.Context) error{{(*hostile).alterExport, (*hostile).alterExport, (*hostile).alterExport,
		(*hostile).litter, (*hostile).hideExports}, {(*hostile).editConfig}} {
		clients.Go(func() { s.plot(working, n, edits) })
	}
	stranger := &stranger{agent: s.agent(2*s.clients + 1), sim: s}
	stranger.home = s.guarded
	work(working, &clients, stranger.agent, stranger.act, 100)
	clients.Go(func() { s.edit(working, time.Second, slices.Concat(wholeWays, roughWays)) })
	err := s.rage(working)

	done()
	clients.Wait()
	return errors.Join(err, s.end(ctx))
}

// await waits until clients have worked long enough, or made enough calls.
func (s *simulation) await(ctx context.Context) {
	enough := false
	for until := time.Now().Add(s.length); !enough && time.Now().Before(until) &&
		wait.For(ctx, min(50*time.Millisecond, time.Until(until))) == nil; {
		s.history.with(func() { enough = s.operations > 0 && s.history.calls-s.history.lost >= s.operations })
	}
}

// work has a client act until ctx ends, with pauses of up to so many milliseconds.
func work(ctx context.Context, all *sync.WaitGroup, a *agent, act func(context.Context), rest int) {
	all.Go(func() {
		for ctx.Err() == nil {
			act(ctx)
			_ = wait.For(ctx, time.Duration(a.below(rest))*time.Millisecond)
		}
		_ = a.leave() // their servers have ended, or will
	})
}

// rove starts the clients of workflows, of which each two share their sessions.
func (s *simulation) rove(ctx context.Context, all *sync.WaitGroup, rest int) {
	var open map[string]bool
	for n := range s.clients {
		if n%2 == 0 {
			open = map[string]bool{}
		}
		a := &rover{agent: s.agent(n), open: open}
		work(ctx, all, a.agent, a.act, rest)
	}
}

// keepBoard starts the clients of the board. Agents and sources cost more than sessions: there are a
// quarter as many clients each.
func (s *simulation) keepBoard(ctx context.Context, all *sync.WaitGroup, plain bool) {
	for n := range (s.clients + 3) / 4 {
		c := &clerk{agent: s.agent(s.clients + 2*n), sim: s, plain: plain}
		s.clerks = append(s.clerks, c)
		work(ctx, all, c.agent, c.act, 60)
	}
}

// runSim is the subcommand sim: a fleet of machines, or one folder with so many servers.
func runSim(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var (
		given  = newFleet("", 0, 0, 0)
		folder int
	)
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.IntVar(&given.count, "machines", 3, "machines, each with a server")
	flags.IntVar(&folder, "folder", 0,
		"simulate one folder with so many servers instead of machines, with a disk and clocks that fail")
	flags.Uint64Var(&given.seed, "seed", 0, "makes the choices; 0 takes one from the clock")
	flags.IntVar(&given.operations, "operations", 0,
		"end after so many answered calls, even before the duration is over; 0 means no bound")
	flags.DurationVar(&given.length, "duration", time.Minute, "for how long clients work")
	flags.IntVar(&given.clients, "clients", 48, "clients at work at once")
	flags.BoolVar(&given.plain, "plain", false, "start no agents on machines")
	flags.BoolVar(&given.pooler, "pooler", false, "put PgBouncer in transaction mode before the database of machines")
	err := parse(flags, args, stderr, func() error {
		if given.count < 1 || folder < 0 {
			return errors.New("--machines is at least 1, and --folder not below 0")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if given.seed == 0 {
		given.seed = uint64(time.Now().UnixNano())
	}

	dir, err := os.MkdirTemp("", "deepwork-sim-")
	if err != nil {
		return err
	}
	f := newFleet(dir, given.seed, given.length, given.clients)
	f.count = given.count
	f.operations = given.operations
	f.plain = given.plain
	f.pooler = given.pooler
	var s interface {
		simulate(context.Context) error
		String() string
	} = f
	if folder > 0 {
		if err := statetest.Prepare(filepath.Join(dir, "user"), dir); err != nil { // its state is kept with the rest
			return err
		}
		alone := newSimulation(dir, given.seed, given.length, given.clients)
		alone.count, alone.operations = folder, given.operations
		f.simulation, s = alone, alone
	}

	if err := s.simulate(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}

	fmt.Fprintln(stdout, s)
	n, what := f.history.found()
	if n == 0 {
		return os.RemoveAll(dir)
	}
	fmt.Fprintf(stdout, "%s\nThe project and the servers' logs are in %s.\n", what, dir)
	return errWrong
}
