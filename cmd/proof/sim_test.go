package main

import (
	"bytes"
	"cmp"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
)

var (
	simSeed    = flag.Uint64("sim.seed", 0, "the `seed` of TestSimulation; 0: another one each time")
	simTime    = flag.Duration("sim.time", 2*time.Second, "how long its clients work")
	simClients = flag.Int("sim.clients", 8, "how many there are")
)

// seedOf is a seed for a test.
func seedOf() uint64 { return cmp.Or(*simSeed, rand.Uint64N(1<<32)) }

// TestSimulation has clients work at servers that are killed, one or all at once, have a
// full disk and a wrong clock, and checks every answer against a model.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there are no inodes and no signals there")
	}
	seed := seedOf()
	dir := t.TempDir()
	s := newSimulation(dir, seed, *simTime, *simClients)
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
	testkit.True(t, err == nil, "keeping what happened: %v", err)
	t.Errorf("%s\nThe project and the servers' logs are in %s. To repeat it (timing may differ, so perhaps more than once):\n\ngo test ./cmd/proof -count=1 -run '^TestSimulation$' -sim.seed=%d -sim.time=%v -sim.clients=%d",
		strings.ReplaceAll(faults, dir, kept), kept, seed, *simTime, *simClients)
}

// What a reply says of its definition is of one save, and of none that is too old.
func TestSavesFindWhatIsMixed(t *testing.T) {
	b := newWorld("", "", 0).saves
	for range 3 {
		b.begin(0)
		b.end(0)
	}
	b.begin(0)
	step := func(last int, change func(*stepInfo)) (int, error) {
		i := stepInfo{Step: "s0", Info: infoText(3), Instructions: instructionsText("load_0", "s0")}
		i.Outputs = slices.Grow(i.Outputs, 3)[:3]
		i.Outputs[0].Name, i.Outputs[0].Description = "report", outputText("s0", 3)
		change(&i)
		return b.step(0, last, i)
	}
	serve := func(save int) func(*stepInfo) {
		return func(i *stepInfo) { i.Info, i.Outputs[0].Description = infoText(save), outputText("s0", save) }
	}
	for last := range 4 {
		testkit.Equal(t, testkit.Get(step(last, serve(3))).Must(t), 3)
	}
	for what, change := range map[string]func(*stepInfo){
		"the info of another save":      func(i *stepInfo) { i.Info = infoText(4) },
		"an output of another save":     func(i *stepInfo) { i.Outputs[0].Description = outputText("s0", 4) },
		"half of the instructions":      func(i *stepInfo) { i.Instructions = i.Instructions[:100] },
		"no instructions":               func(i *stepInfo) { i.Instructions = "" },
		"another step":                  func(i *stepInfo) { i.Step = "s1" },
		"half of the info":              func(i *stepInfo) { i.Info = i.Info[:12] },
		"an older save than had ended":  serve(2),
		"a save that was never written": serve(5),
	} {
		testkit.Fails(t, testkit.Get(step(b.last(0), change)).Err(), "", "%s", what)
	}
	testkit.Equal(t, b.last(0), 3, "the last save that has ended")
	testkit.Equal(t, testkit.Get(step(3, serve(4))).Must(t), 4, "one that goes on may be served")
}

// TestMain makes this test binary the command proof for the child processes that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"echo", "source", "step", "reviewer"}, os.Args[1]) {
		main()
	}
	dir, err := os.MkdirTemp("", "proof-")
	if err != nil {
		panic(err)
	}
	buildIn = dir
	code := statetest.Main(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// What the subcommand load prints and how it ends: with two servers on one project, an
// editor at work and replies that get lost; with the newest protocol; with connections
// that do nothing; and if it is called wrongly.
func TestLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"--duration 1s --connections 8 --depth 3 --edit --servers 2 --lose 0.05", 0, []string{
			`(?m)^8 connections, stacks 3 deep, 2 servers`, `(?m)^finished_step +[0-9]+ `,
			`(?m)^all is well: no call failed, and the store has what was acknowledged`}},
		{"--duration 1s --connections 4 --depth 2 --stateless --lose 0.05", 0, []string{
			`(?m)^ +[0-9.]+ transitions +acknowledged$`, `(?m)^all is well`}},
		{"--idle 20 --duration 1s", 0, []string{`(?m)^ +[0-9.-]+ idle-KB +each of 20 idle connections with deepwork`, `(?m)^ +[0-9.-]+ more-KB `}},
		{"--servers 3", 2, []string{`^proof: --servers is 1 to 2`}},
		{"--calls 5", 2, []string{`--calls, --store and --machines need --alternate`}},
		{"--lose 0.9", 2, []string{`--lose is 0 to 0.5`}},
		{"now", 2, []string{`takes no arguments, found "now"`}},
	} {
		var out bytes.Buffer
		testkit.Equal(t, run(t.Context(), append([]string{"load"}, strings.Fields(c.args)...), &out, &out), c.code, "%s: exit code", c.args)
		for _, want := range c.want {
			testkit.True(t, regexp.MustCompile(want).MatchString(out.String()), "%s: no %s in\n%s", c.args, want, out.String())
		}
	}
}

// Calls that go to two servers in turn are refused nothing that one server alone would not have refused, and
// nothing is done twice.
func TestAlternate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("people answer at terminals, which are made only on Linux")
	}
	var out bytes.Buffer
	code := run(t.Context(), strings.Fields("load --alternate --connections 8 --review 400ms --calls 200"), &out, &out)
	for _, want := range []string{`(?m)^ +0\.00 refused `, `(?m)^ +[1-9][0-9]*\.00 reviews +by the reviewer$`, `(?m)^ +[1-9][0-9]*\.00 decisions `, `(?m)^all is well`} {
		testkit.True(t, regexp.MustCompile(want).MatchString(out.String()), "no %s", want)
	}
	testkit.True(t, code == 0 && !t.Failed(), "exit code %d:\n%s", code, out.String())
}
