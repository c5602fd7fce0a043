package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/cmd/proof/fault"
	"deepwork/cmd/proof/tty"
	"deepwork/session/state/statetest"
)

var (
	simSeed    = flag.Uint64("sim.seed", 0, "the `seed` of TestSimulation; 0: another one each time")
	simTime    = flag.Duration("sim.time", 0, "how long its clients work; 0 skips it")
	simClients = flag.Int("sim.clients", 8, "how many there are")
)

// seedOf is a seed for a test.
func seedOf() uint64 { return cmp.Or(*simSeed, rand.Uint64N(1<<32)) }

// TestSimulation has clients work at servers that are killed, one or all at once, have a
// full disk and a wrong clock, and checks every answer against a model.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simTime == 0 || runtime.GOOS == "windows" {
		t.Skip("-sim.time=2s runs it, where there are inodes and signals")
	}
	seed := seedOf()
	dir := t.TempDir()
	s := newSimulation(dir, seed, *simTime, *simClients)
	err := s.simulate(t.Context())
	testkit.Need(t, err == nil, "seed %d: %v", seed, err)

	t.Log(s)
	if len(s.history.sessions) == 0 || s.history.calls == 0 {
		s.history.fault("nothing", "was done")
	}
	_, faults := s.history.found()
	if faults == "" {
		return
	}

	kept := testkit.Get(os.MkdirTemp("", "simulation-")).Must(t)
	// named pipes too
	testkit.Works(t, exec.Command("cp", "-a", dir+"/.", stateOf(s.root).Dir, kept).Run(), "keeping what happened")
	t.Errorf("%s\nThe project and the servers' logs are in %s. To repeat it (timing may differ, so perhaps more than "+
		"once):\n\ngo test ./cmd/proof -count=1 -run '^TestSimulation$' -sim.seed=%d -sim.time=%v -sim.clients=%d",
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

// What the subcommand load prints and how it ends: with two servers on one project, an editor at work and
// replies that get lost; with the newest protocol; with calls that go to two servers in turn, which are
// refused nothing that one server alone would not have refused; with connections that do nothing; and if it
// is called wrongly.
func TestLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"--duration 1s --connections 8 --depth 3 --edit --servers 2 --lose 0.05", 0,
			[]string{`(?m)^8 connections, stacks 3 deep, 2 servers`, `(?m)^finished_step +[0-9]+ `,
				`(?m)^all is well: no call failed, and the store has what was acknowledged`}},
		{"--duration 1s --connections 4 --depth 2 --stateless --lose 0.05", 0,
			[]string{`(?m)^ +[0-9.]+ transitions +acknowledged$`, `(?m)^all is well`}},
		{"--alternate --connections 8 --review 400ms --calls 200", 0,
			[]string{`(?m)^ +0\.00 refused `, `(?m)^ +[1-9][0-9]*\.00 reviews +by the reviewer$`,
				`(?m)^ +[1-9][0-9]*\.00 decisions `, `(?m)^all is well`}},
		{"--idle 20 --duration 1s", 0,
			[]string{`(?m)^ +[0-9.-]+ idle-KB +each of 20 idle connections with deepwork`, `(?m)^ +[0-9.-]+ more-KB `}},
		{"--servers 3", 2, []string{`^proof: --servers is 1 to 2`}},
		{"--calls 5", 2, []string{`--calls, --store and --machines need --alternate`}},
		{"--lose 0.9", 2, []string{`--lose is 0 to 0.5`}},
		{"now", 2, []string{`takes no arguments, found "now"`}},
	} {
		if strings.Contains(c.args, "--alternate") && runtime.GOOS != "linux" {
			continue // people answer at terminals, which are made only on Linux
		}

		var out bytes.Buffer
		testkit.Equal(t, run(t.Context(), append([]string{"load"}, strings.Fields(c.args)...), &out, &out), c.code,
			"%s: exit code", c.args)
		for _, want := range c.want {
			testkit.True(t, regexp.MustCompile(want).MatchString(out.String()), "%s: no %s in\n%s", c.args, want,
				out.String())
		}
	}
}

// The database is damaged after servers were killed in the middle of their work. Each call and command that needs
// it is refused with its path and with what to do, and leaves it as it is. It cannot be set aside while a server
// has it open. Then it can, and what every session had acknowledged comes back from the exports.
func TestADamagedDatabase(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("people answer at terminals, which are made only on Linux")
	}

	for name, damage := range map[string]func(data []byte) []byte{
		"overwritten": func(data []byte) []byte { return append(bytes.Repeat([]byte{0x5a}, 4096), data[4096:]...) },
		"cut off":     func(data []byte) []byte { return data[:len(data)/2] },
		"emptied":     func([]byte) []byte { return bytes.Repeat([]byte{0}, 512) },
	} {
		t.Run(name, func(t *testing.T) { damaged(t, damage) })
	}
}

func damaged(t *testing.T, damage func(data []byte) []byte) {
	t.Parallel()
	s := newSimulation(t.TempDir(), *simSeed, 0, 4)
	ctx := t.Context()
	testkit.Must(t, os.MkdirAll(s.root, 0o755))
	testkit.Must(t, s.build(ctx))
	testkit.Must(t, s.writeProject(loadConfig))
	s.servers = []*server{{http: true}, {number: 1, http: true}}
	t.Cleanup(func() { testkit.Must(t, s.killRunning()) })
	serve := func() {
		t.Helper()
		for _, at := range s.servers {
			testkit.Must(t, s.run(ctx, at, fault.Plan{Tied: true}))
		}
	}
	serve()
	working, done := context.WithTimeout(ctx, time.Second)
	defer done()
	var clients sync.WaitGroup
	s.rove(working, &clients, 1)
	clients.Go(func() { // in the middle of calls
		<-working.Done()
		testkit.Must(t, s.killRunning())
	})
	clients.Wait()

	// What was committed and not acknowledged is seen by a call, which writes the export.
	serve()
	a := s.agent(s.clients * 2)
	a.lose = 0
	for _, id := range s.history.known() {
		a.perform(ctx, input{Tool: "get_step", Session: id})
	}

	testkit.Must(t, s.killRunning())
	serve() // servers that only read
	for _, at := range s.servers {
		a.exchange(ctx, at.current(), "get_step", map[string]any{"session_id": s.history.known()[0]})
	}

	db := testkit.Get(sql.Open("sqlite", "file:"+s.boardFile())).Must(t)
	testkit.Get(db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")).Must(t)
	testkit.Must(t, db.Close())
	data := damage(testkit.Get(os.ReadFile(s.boardFile())).Must(t))
	testkit.Must(t, os.WriteFile(s.boardFile(), data, 0o600))
	remedied := func(what, text string, err bool) {
		t.Helper()
		testkit.Need(t, err, "%s is not refused with the path and what to do: %v, %s", what, err, text)
		testkit.Contains(t, text, s.boardFile(), "%s is not refused with the path and what to do: %v, %s", what,
			err, text)
		testkit.Contains(t, text, "--set-aside", "%s is not refused with the path and what to do: %v, %s", what,
			err, text)
	}
	command := func(args ...string) (string, bool) {
		text, err := s.deepwork(ctx, s.servers[0], args...).CombinedOutput()
		return string(text), err != nil
	}
	text, failed := command("check", "--set-aside")
	testkit.True(t, failed, "it was set aside while servers have it open: %s", text)

	testkit.Must(t, s.killRunning())
	serve()
	id := s.history.known()[0]
	p := s.servers[0].current()
	for _, in := range []input{
		{Tool: "start_workflow", Job: jobName(0), Workflow: "short", Goal: "g", Request: "r"},
		{Tool: "get_step", Session: id},
		{Tool: "finished_step", Session: id, Outputs: a.outputs()}, {Tool: "go_to_step", Session: id, Step: "s0"},
		{Tool: "abort_workflow", Session: id, Text: "x"},
	} {
		answer := a.exchange(ctx, p, in.Tool, in.arguments())
		remedied(in.Tool, answer.text, answer.code == "store_damaged")
	}
	for _, args := range [][]string{{"sessions", "list"}, {"sessions", "show", id}, {"sessions", "prune"}, {"check"}} {
		text, failed := command(args...)
		remedied(strings.Join(args, " "), text, failed)
	}
	testkit.True(t, bytes.Equal(testkit.Get(os.ReadFile(s.boardFile())).Must(t), data),
		"the damaged database was touched")

	testkit.Must(t, s.killRunning())
	text, failed = command("check", "--set-aside")
	testkit.Need(t, !failed, "check --set-aside: %s", text)

	printed, screen, err := tty.Run(s.deepwork(ctx, s.servers[0], "sessions", "import", "--all"), "", "yes")
	testkit.Need(t, err == nil, "sessions import --all: %v\n%s\n%s", err, printed, screen)
	for _, id := range s.history.known() {
		s.history.add(-1, id, input{Tool: "import"}, s.history.now(), "imported", s.history.now())
	}

	serve()
	for _, id := range s.history.known() {
		a.perform(ctx, input{Tool: "get_step", Session: id})
	}

	for _, p := range s.running() {
		s.stop(p)
	}

	n := testkit.Get(s.judge(ctx, s.agrees)).Must(t)
	s.verify(ctx, "at the end")
	_, what := s.history.found()
	testkit.True(t, what == "" && n >= len(s.history.known()), "%d sessions of %d:\n%s", n,
		len(s.history.known()), what)

	aside := testkit.Get(os.ReadDir(stateOf(s.root).Dir)).Must(t)
	testkit.True(t, slices.ContainsFunc(aside, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "board.db.damaged-")
	}), "the damaged database is not there: %v", aside)
}
