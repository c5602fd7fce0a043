package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"deepwork/actor/wait"
	"deepwork/cmd/proof/fault"
	folder "deepwork/session/state"
	"deepwork/session/state/statetest"
	"deepwork/session/store/postgres/pgtest"
)

// A fleet is a simulation of machines. Each has its own clone of the project, its own home and
// state, and a server; all keep sessions and the board in one PostgreSQL database, which each
// reaches over its own network. Servers are killed and suspended past their lease, clocks jump,
// networks are cut and delayed at any message, also between a commit and its reply, and the
// database is killed and has no connections left. Histories are checked as those of a simulation.
type fleet struct {
	*simulation
	machines   []*machine
	count      int    // of machines
	operations int    // it ends after so many answered calls; 0 means after its length
	plain      bool   // no agents are started
	pooler     bool   // PgBouncer is between the machines and the database
	broken     string // the check that servers do not make, see faults.go of package postgres; "" means none

	db      *pgtest.Server
	bouncer *pgtest.Pooler

	suspensions, cutOff, outages atomic.Int64 // servers, networks, of the database
}

// A machine is a server with its own folders and network.
type machine struct {
	*server
	proxy  *pgtest.Proxy
	state  string     // the folder with its state
	random *rand.Rand // of its faults
}

// connections is how many the database takes.
const connections = 60

func newFleet(dir string, seed uint64, length time.Duration, clients int) *fleet {
	s := newSimulation(dir, seed, length, clients)
	s.lose = 0.04
	f := &fleet{simulation: s, count: 3}
	s.board, s.states = f.board, f.states
	return f
}

// runSim is the subcommand sim.
func runSim(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFleet("", 0, 0, 0)
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.IntVar(&f.count, "machines", 3, "machines, each with a server")
	flags.Uint64Var(&f.seed, "seed", 0, "makes the choices; 0 takes one from the clock")
	flags.IntVar(&f.operations, "operations", 0, "end after so many answered calls, even before the duration is over; 0 means no bound")
	flags.DurationVar(&f.length, "duration", time.Minute, "for how long clients work")
	flags.IntVar(&f.clients, "clients", 48, "clients at work at once")
	flags.BoolVar(&f.plain, "plain", false, "start no agents")
	flags.BoolVar(&f.pooler, "pooler", false, "put PgBouncer in transaction mode before the database")
	err := parse(flags, args, stderr, func() error {
		if f.count < 1 {
			return errors.New("--machines is at least 1")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano())
	}
	dir, err := os.MkdirTemp("", "deepwork-sim-")
	if err != nil {
		return err
	}
	s := newFleet(dir, f.seed, f.length, f.clients)
	s.count, s.operations, s.plain, s.pooler = f.count, f.operations, f.plain, f.pooler
	if err := s.simulate(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	fmt.Fprintln(stdout, s)
	n, what := s.history.found()
	if n == 0 {
		return os.RemoveAll(dir)
	}
	fmt.Fprintf(stdout, "%s\nThe machines and the servers' logs are in %s.\n", what, dir)
	return errWrong
}

// simulate runs the simulation. It blocks for slightly longer than its length. Faults found are in
// the history; the error is one of the simulation itself, or pgtest.ErrMissing.
func (f *fleet) simulate(ctx context.Context) error {
	err := f.layOut(ctx)
	if err == nil {
		err = f.live(ctx)
	}
	if err = errors.Join(err, f.close()); err != nil {
		return fmt.Errorf("simulating machines: %w", err)
	}
	return nil
}

// close ends all processes.
func (f *fleet) close() (err error) {
	err = f.killRunning()
	for _, m := range f.machines {
		if m.proxy != nil {
			m.proxy.Close()
		}
	}
	if f.bouncer != nil {
		f.bouncer.Close()
	}
	if f.db != nil {
		f.db.Close()
	}
	return err
}

// String describes what happened.
func (f *fleet) String() string {
	h := f.history
	return fmt.Sprintf("seed %d, %d machines: %d sessions and %d tasks (%d histories too tangled); %d calls (%d lost, %d without effect); %d kills, %d suspensions, %d faults of a network, %d of the database",
		f.seed, f.count, len(h.sessions), len(f.tasks), h.tangled, h.calls, h.lost, h.refused, f.kills, f.suspensions.Load(), f.cutOff.Load(), f.outages.Load())
}

// layOut starts the database and makes the machines.
func (f *fleet) layOut(ctx context.Context) (err error) {
	if f.db, err = pgtest.Start(fmt.Sprintf("max_connections=%d", connections)); err != nil {
		return err
	}
	config := "attempts: {max_concurrent: 3}\n" + f.executors()
	if err := errors.Join(f.build(ctx), f.layRepo(ctx, config, "remote add origin https://git.example.com/sim.git")); err != nil {
		return err
	}
	to := f.db.At("sim")
	if f.pooler {
		if f.bouncer, err = pgtest.StartBouncer(to); err != nil {
			return err
		}
		to = f.bouncer.URL
	}
	for n := range f.count {
		home := filepath.Join(f.dir, fmt.Sprint("machine", n))
		env, err := statetest.Write(home, home)
		if err != nil {
			return err
		}
		m := &machine{server: &server{number: n, http: true, root: filepath.Join(home, "project")}, random: rand.New(rand.NewPCG(f.seed, 1<<32+uint64(n)))}
		if err := os.CopyFS(m.root, os.DirFS(f.root)); err != nil {
			return err
		}
		if m.proxy, err = pgtest.StartProxy(to); err != nil {
			return err
		}
		m.state = env[folder.Env]
		env["HOME"], env["DEEPWORK_STORE"], env["DEEPWORK_PROJECT"], env["DEEPWORK_FAULT_BREAK"] = home, m.proxy.URL, "sim", f.broken
		for name, value := range env {
			m.env = append(m.env, name+"="+value)
		}
		f.machines, f.servers = append(f.machines, m), append(f.servers, m.server)
	}
	return nil
}

// live runs clients and faults, stops them, and judges.
func (f *fleet) live(ctx context.Context) error {
	working, done := context.WithTimeout(ctx, f.length)
	defer done()
	if err := f.serve(ctx, f.machines[0], 0); err != nil { // it makes the schema
		return err
	}
	var all sync.WaitGroup
	f.rove(working, &all, 1)
	f.keepBoard(working, &all, f.plain)
	errs := make([]error, f.count+1)
	for n, m := range f.machines {
		all.Go(func() { errs[n] = f.torment(working, m) })
	}
	all.Go(func() { errs[f.count] = f.tormentDatabase(working) })
	for f.operations > 0 && working.Err() == nil {
		f.history.with(func() {
			if f.history.calls-f.history.lost >= f.operations {
				done()
			}
		})
		_ = wait.For(working, 50*time.Millisecond)
	}
	all.Wait()
	return errors.Join(errors.Join(errs...), f.end(ctx))
}

// serve starts a machine's server, whose clock is wrong by some time.
func (f *fleet) serve(ctx context.Context, m *machine, clock time.Duration) error {
	return f.run(ctx, m.server, fault.Plan{Tied: true, Clock: clock})
}

// end stops all servers, lets new ones end what is left of the board, reads each session and task at
// one of them, and judges.
func (f *fleet) end(ctx context.Context) error {
	for _, p := range f.running() {
		f.stop(p)
	}
	for _, m := range f.machines {
		if err := f.serve(ctx, m, 0); err != nil {
			return err
		}
	}
	if err := f.settleBoard(ctx); err != nil {
		return err
	}
	a := f.agent(2*f.clients + f.random.IntN(f.count))
	a.lose = 0
	for _, id := range f.history.known(false) {
		t := answer{kind: lost}
		for until := time.Now().Add(2 * longest); t.kind != given && time.Now().Before(until); { // it may roam, and leases of killed servers last
			if t = a.perform(ctx, input{Tool: "get_step", Session: id}); t.kind != given {
				_ = wait.For(ctx, 50*time.Millisecond)
			}
		}
		if t.kind != given {
			f.history.fault("a session that cannot be read", "session %s: %s", id, t.text)
			break
		}
	}
	(&clerk{agent: a, sim: f.simulation}).readTasks(ctx)
	for _, p := range f.running() {
		f.stop(p)
	}
	return f.judge(ctx)
}

// board is the database of all machines, as that of their project.
func (f *fleet) board() (driver, source string) {
	return "pgx", f.db.At("") + "&search_path=sim&deepwork.scope=1"
}

// states returns the state of the project on each machine.
func (f *fleet) states() (all []*folder.Folder) {
	own := os.Getenv(folder.Env)
	defer os.Setenv(folder.Env, own)
	for _, m := range f.machines {
		os.Setenv(folder.Env, m.state)
		all = append(all, stateOf(m.root))
	}
	return all
}

// judge compares the database and what agents have done with the histories, and checks those. No
// server may run.
func (f *fleet) judge(ctx context.Context) error {
	var id, body string
	goals := map[string][]string{} // sessions
	err := f.query(ctx, "SELECT id, body FROM session_records WHERE body IS NOT NULL", func() {
		var r record
		err := json.Unmarshal([]byte(body), &r)
		goal := f.compare(id, r, err)
		goals[goal] = append(goals[goal], id)
	}, &id, &body)
	if err != nil {
		return err
	}
	f.history.once("session", goals, func(_ string, e *effect) bool { return e.id != "" })
	if err := f.judgeBoard(ctx); err != nil {
		return err
	}
	f.history.check()
	for _, m := range f.machines {
		check := exec.CommandContext(ctx, f.program, "check", "--path", m.root)
		check.Env = append(os.Environ(), m.env...)
		if text, err := check.CombinedOutput(); err != nil {
			f.history.fault("deepwork check", "machine %d: %v\n%s", m.number, err, text)
		}
	}
	return nil
}
