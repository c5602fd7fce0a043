package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"deepwork/actor/wait"
	"deepwork/cmd/proof/fault"
	folder "deepwork/session/state"
	"deepwork/session/store/postgres/pgtest"
)

// A fleet is a simulation of machines. Each has its own clone of the project, its own home and
// state, and a server; all keep sessions and the board in one PostgreSQL database, which each
// reaches over its own network. Servers are killed and suspended for seconds, clocks jump,
// networks are cut and delayed at any message, also between a commit and its reply, and the
// database is killed and has no connections left. Histories are checked as those of a simulation.
type fleet struct {
	*simulation
	machines []*machine
	plain    bool   // no agents are started
	pooler   bool   // PgBouncer is between the machines and the database
	broken   string // the check that servers do not make, see faults.go of packages postgres and record; "" means none

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
	s.count = 3
	f := &fleet{simulation: s}
	s.board, s.states = f.board, f.states
	return f
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
	return fmt.Sprintf("seed %d, %d machines: %d sessions and %d tasks (%d histories too tangled); %d calls (%d "+
		"lost, %d without effect); %d kills, %d suspensions, %d faults of a network, %d of the database",
		f.seed, f.count, len(h.sessions), len(f.tasks), h.tangled, h.calls, h.lost, h.refused, f.kills,
		f.suspensions.Load(), f.cutOff.Load(), f.outages.Load())
}

// layOut starts the database and makes the machines.
func (f *fleet) layOut(ctx context.Context) (err error) {
	if f.db, err = pgtest.Start(fmt.Sprintf("max_connections=%d", connections)); err != nil {
		return err
	}
	config := "attempts: {max_concurrent: 3}\n" + f.executors()
	if err := errors.Join(f.build(ctx),
		f.layRepo(ctx, config, "remote add origin https://git.example.com/sim.git")); err != nil {
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
		m := &machine{random: rand.New(rand.NewPCG(f.seed, 1<<32+uint64(n)))}
		if m.proxy, err = pgtest.StartProxy(to); err != nil {
			return err
		}
		m.server, m.state, err = f.machine(n, append(storeEnv(m.proxy.URL, "sim"), "DEEPWORK_FAULT_BREAK="+f.broken)...)
		if err != nil {
			return err
		}
		f.machines, f.servers = append(f.machines, m), append(f.servers, m.server)
	}

	return nil
}

// live runs clients and faults, stops them, and judges.
func (f *fleet) live(ctx context.Context) error {
	working, done := context.WithCancel(ctx)
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
	f.await(working)
	done()
	all.Wait()
	return errors.Join(errors.Join(errs...), f.end(ctx))
}

// serve starts a machine's server, whose clock is wrong by some time.
func (f *fleet) serve(ctx context.Context, m *machine, clock time.Duration) error {
	return f.run(ctx, m.server, fault.Plan{Tied: true, Clock: clock})
}

// end stops all servers, starts new ones that finish what is left of the board, reads each session and task at one of
// them, and judges.
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
	for _, id := range f.history.known() {
		t := answer{kind: lost}
		for until := time.Now().Add(2 * longest); t.kind != given && time.Now().Before(until); { // it may roam
			if t = a.perform(ctx, input{Tool: "get_step", Session: id}); t.kind != given {
				_ = wait.For(ctx, 50*time.Millisecond)
			}
		}
		if t.kind != given {
			f.history.fault("a session that cannot be read", "session %s: %s", id, t.text)
			break
		}
	}

	a.goOn(ctx)
	(&clerk{agent: a, sim: f.simulation}).readTasks(ctx)
	if err := f.settleBoard(ctx); err != nil { // other machines have yet to remove what they have of deleted tasks
		return err
	}

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
	_, err := f.world.judge(ctx, f.whole)
	if err = errors.Join(err, f.judgeBoard(ctx)); err != nil {
		return err
	}
	f.verify(ctx, "at the end")
	return nil
}
