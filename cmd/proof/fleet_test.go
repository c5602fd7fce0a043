package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

var fleetTime = flag.Duration("fleet.time", 5*time.Second, "how long the clients of TestMachines work; from 15s on, TestBreaksAreNoticed and TestStandby run too")

// ran runs a simulation of machines, which it returns with what is wrong.
func ran(t *testing.T, seed uint64, length time.Duration, choose func(*fleet)) (*fleet, string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("processes cannot be suspended there")
	}
	f := newFleet(t.TempDir(), seed, length, 24)
	choose(f)
	pgtest.Need(t, f.simulate(t.Context()))
	t.Log(f)
	_, what := f.history.found()
	return f, what
}

// TestMachines has clients work at the servers of three machines with one database, with PgBouncer
// and without, while all of them fail, and checks every answer against a model.
func TestMachines(t *testing.T) {
	for name, pooler := range map[string]bool{"directly": false, "PgBouncer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := *simSeed
			if seed == 0 {
				seed = rand.Uint64N(1 << 32)
			}
			f, what := ran(t, seed, *fleetTime, func(f *fleet) { f.pooler, f.plain = pooler, true })
			if what != "" || len(f.history.sessions) == 0 || len(f.tasks) == 0 {
				t.Errorf("%s\nTo repeat it (timing may differ, so perhaps more than once):\n\ngo run ./cmd/proof sim -seed %d -duration %v -plain -pooler=%t", what, seed, f.length, pooler)
			}
		})
	}
}

// Each check that keeps machines from overwriting each other is needed: a program without it answers
// or stores something wrong when just the fault that it is for occurs, and the model notices. A program
// with all checks stands the same faults.
func TestBreaksAreNoticed(t *testing.T) {
	if *fleetTime < 15*time.Second || runtime.GOOS == "windows" {
		t.Skip("it takes half a minute: -fleet.time=15s runs it")
	}
	breaks := []struct {
		check  string // see faults.go of packages postgres and record
		strike func(*fleet, context.Context) error
	}{{"revision", (*fleet).writeLate}, {"request", (*fleet).startTwice}, {"reread", (*fleet).loseReply}, {"look", (*fleet).readAfter}}
	struck := func(t *testing.T, broken string, strikes ...func(*fleet, context.Context) error) string {
		f := newFleet(t.TempDir(), *simSeed, 0, 0)
		f.count, f.broken, f.lose, f.strict = 2, broken, 0, true
		defer func() { testkit.Must(t, f.close()) }()
		pgtest.Need(t, f.layOut(t.Context()))
		for _, strike := range strikes {
			for _, m := range f.machines {
				if m.current() == nil {
					testkit.Must(t, f.serve(t.Context(), m, 0))
				}
			}
			testkit.Must(t, strike(f, t.Context()))
		}
		for _, p := range f.running() {
			f.kill(p)
		}
		testkit.Must(t, f.judge(t.Context()))
		t.Log(f)
		_, what := f.history.found()
		return strings.TrimSpace(what)
	}
	t.Run("none", func(t *testing.T) {
		if what := struck(t, "", (*fleet).writeLate, (*fleet).startTwice, (*fleet).loseReply, (*fleet).readAfter); what != "" {
			t.Error(what)
		}
	})
	for _, b := range breaks {
		t.Run(b.check, func(t *testing.T) {
			for range 5 { // on a busy machine, a fault may come too early or too late
				if what := struck(t, b.check, b.strike); what != "" {
					t.Logf("%.600s", what)
					return
				}
			}
			t.Errorf("nothing is wrong with a program that leaves out the check %q", b.check)
		})
	}
}
