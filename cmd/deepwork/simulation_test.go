//go:build unix

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/cmd/deepwork/internal/sim"
)

var (
	simSeed    = flag.Uint64("sim.seed", 0, "the `seed` of TestSimulation; 0: another one each time")
	simTime    = flag.Duration("sim.time", 8*time.Second, "how long its clients work")
	simClients = flag.Int("sim.clients", 8, "how many there are")
)

// TestSimulation has clients work at servers that are killed, lose power, have a
// full disk and a wrong clock, and holds every answer against a model (package
// sim). For hours of it: go test ./cmd/deepwork -run '^TestSimulation$' -timeout 0
// -sim.time 3h.
func TestSimulation(t *testing.T) {
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	length := *simTime
	if testing.Short() {
		length = min(length, 2*time.Second)
	}
	dir := t.TempDir()
	r, err := sim.Run(t.Context(), sim.Options{
		Seed: seed, Time: length, Clients: *simClients, Dir: dir,
		Server: []string{"deepwork-sim"}, Check: []string{"deepwork"}, Source: []string{"deepwork-sim-source"},
	})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	t.Logf("seed %d: %d sessions (%d histories too tangled), %d tasks (%d attempts left, %d agents began, %d rescues), %d runs; %d calls (%d lost, %d without effect), %d kills, %d power cuts, %d files damaged, %d journals of runs (the last record of %d runs)",
		seed, r.Sessions, r.Tangled, r.Tasks, r.Attempts, r.Agents, r.Rescues, r.Runs, r.Calls, r.Lost, r.Refused, r.Kills, r.PowerCuts, r.Damaged, r.Journals, r.Losers)
	if r.Sessions == 0 || r.Calls == 0 {
		t.Error("nothing was done")
	}
	if len(r.Faults) == 0 {
		return
	}
	kept, err := os.MkdirTemp("", "simulation-")
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(dir))
	}
	if err != nil {
		t.Errorf("keeping what happened: %v", err)
	}
	t.Errorf("%s\n\nThe project, the servers' logs and drawings of the histories are in %s. To repeat it (timing may differ, so perhaps more than once):\n\ngo test ./cmd/deepwork -count=1 -run '^TestSimulation$' -sim.seed=%d -sim.time=%v -sim.clients=%d",
		strings.ReplaceAll(strings.Join(r.Faults, "\n"), dir, kept), kept, seed, length, *simClients)
}

// simulatedServer is the command, with what the simulation does to it.
func simulatedServer() {
	if err := sim.Suffer(); err != nil {
		fmt.Fprintln(os.Stderr, "deepwork-sim:", err)
		os.Exit(1)
	}
	main()
}

// simulatedSource is a source of workflows of the simulation.
func simulatedSource() {
	if err := sim.Source(); err != nil {
		fmt.Fprintln(os.Stderr, "deepwork-sim-source:", err)
		os.Exit(1)
	}
}
