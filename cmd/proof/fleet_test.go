package main

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/session/store/postgres/pgtest"
)

var fleetTime = flag.Duration("fleet.time", 5*time.Second, "how long the clients of TestMachines and TestBreaksAreNoticed work")

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
	for _, pooler := range []bool{false, true} {
		seed := *simSeed
		if seed == 0 {
			seed = rand.Uint64N(1 << 32)
		}
		f, what := ran(t, seed, *fleetTime, func(f *fleet) { f.pooler, f.plain = pooler, true })
		if what != "" || len(f.history.sessions) == 0 || len(f.tasks) == 0 {
			t.Errorf("%s\nTo repeat it (timing may differ, so perhaps more than once):\n\ngo run ./cmd/proof sim -seed %d -duration %v -plain -pooler=%t", what, seed, f.length, pooler)
		}
	}
}

// Each check of the database that keeps machines from overwriting each other is needed: a program
// without it is found out.
func TestBreaksAreNoticed(t *testing.T) {
	if *fleetTime < 15*time.Second {
		t.Skip("it takes minutes: -fleet.time=15s runs it")
	}
	for _, broken := range []string{"term", "version", "reread"} {
		t.Run(broken, func(t *testing.T) {
			for seed := range uint64(5) {
				if _, what := ran(t, seed, *fleetTime, func(f *fleet) { f.broken, f.plain, f.clients = broken, true, 64 }); what != "" {
					t.Logf("%.600s", strings.TrimSpace(what))
					return
				}
			}
			t.Errorf("nothing is wrong with a program that does not check the %s", broken)
		})
	}
}
