package main

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

var (
	simSeed    = flag.Uint64("sim.seed", 0, "the `seed` of TestSimulation; 0: another one each time")
	simTime    = flag.Duration("sim.time", 5*time.Second, "how long its clients work")
	simClients = flag.Int("sim.clients", 8, "how many there are")
)

// TestSimulation has clients work at servers that are killed, one or all at once, have a
// full disk and a wrong clock, and checks every answer against a model.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there are no inodes and no signals there")
	}
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	length := *simTime
	if testing.Short() {
		length = min(length, 2*time.Second)
	}
	dir := t.TempDir()
	s := newSimulation(dir, seed, length, *simClients)
	if err := s.simulate(t.Context()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	t.Log(s)
	if len(s.history.sessions) == 0 || s.history.calls == 0 {
		s.history.fault("nothing", "was done")
	}
	_, faults := s.history.found()
	if faults == "" {
		return
	}
	kept, err := os.MkdirTemp("", "simulation-")
	if err == nil {
		err = exec.Command("cp", "-a", dir+"/.", stateOf(s.root).Dir, kept).Run() // named pipes too
	}
	if err != nil {
		t.Errorf("keeping what happened: %v", err)
	}
	t.Errorf("%s\nThe project and the servers' logs are in %s. To repeat it (timing may differ, so perhaps more than once):\n\ngo test ./cmd/proof -count=1 -run '^TestSimulation$' -sim.seed=%d -sim.time=%v -sim.clients=%d",
		strings.ReplaceAll(faults, dir, kept), kept, seed, length, *simClients)
}
