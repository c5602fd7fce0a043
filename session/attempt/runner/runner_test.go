package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
)

// The test binary is the agent and the server too: modeEnv says which.
const (
	modeEnv = "RUNNER_TEST_MODE"
	ranEnv  = "RUNNER_TEST_RAN" // a folder in which each agent that runs leaves a file
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		os.Exit(child(mode))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// child is what the test binary does when it is an agent, or a server.
func child(mode string) int {
	if dir := os.Getenv(ranEnv); dir != "" && mode != "server" {
		f, err := os.CreateTemp(dir, "ran")
		if err != nil {
			panic(err)
		}
		f.Close()
	}
	mode, arg, _ := strings.Cut(mode, ":")
	switch mode {
	case "echo":
		fmt.Println("reading")
		fmt.Fprintln(os.Stderr, "to stderr")
		io.Copy(os.Stdout, os.Stdin)
	case "tell":
		wd, _ := os.Getwd()
		json.NewEncoder(os.Stdout).Encode(map[string]any{"dir": wd, "pwd": os.Getenv("PWD"), "tell": os.Getenv("TELL"),
			"shim": os.Getenv("PROCESS_DETACHED"), "args": os.Args[1:]})
	case "exit":
		fmt.Println("done")
		fmt.Println("   ")
		code, _ := strconv.Atoi(arg)
		return code
	case "noread":
	case "lines":
		n, _ := strconv.Atoi(arg)
		for i := range n {
			fmt.Println("line", i)
		}
	case "flood":
		n, _ := strconv.Atoi(arg)
		block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 1000)
		for written := 0; written < n; written += len(block) {
			if _, err := os.Stdout.Write(block); err != nil {
				return 1
			}
		}
		fmt.Print("the end, without a line break")
	case "garbage":
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte(i * 7 >> 3)
		}
		os.Stdout.Write(b)
		os.Stderr.Write(bytes.Repeat([]byte{0, 0xff}, 100_000))
	case "obedient", "tidy":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		testkit.Attend()
		<-end
		fmt.Println(map[string]string{"obedient": "tidied up", "tidy": "the child tidied up"}[mode])
	case "hang", "leaf", "stubborn", "orphans", "family", "tidyfamily": // some have children, in their group or away
		if mode == "leaf" || mode == "stubborn" {
			signal.Ignore(syscall.SIGTERM)
		}
		for _, child := range map[string][]string{"stubborn": {"leaf"}, "tidyfamily": {"tidy"}, "family": {"leaf", "away leaf"}, "orphans": {"leaf", "away leaf"}}[mode] {
			child, away := strings.CutPrefix(child, "away ")
			testkit.Spawn(away, ranEnv+"=", modeEnv+"="+child)
		}
		if mode == "orphans" {
			fmt.Println("done")
			return 0
		}
		testkit.Attend()
		testkit.Forever()
	case "server", "nested": // starts a run and reports it; a server stays, an agent ends
		var spec Spec
		if err := json.Unmarshal([]byte(os.Getenv("RUNNER_TEST_SPEC")), &spec); err != nil {
			panic(err)
		}
		os.Unsetenv(modeEnv)
		p, err := testRunner().Start(context.Background(), spec)
		fmt.Println(p != nil, err)
		if mode == "server" {
			testkit.Forever()
		}
	}
	return 0
}

func testRunner() *Runner { return &Runner{Shim: []string{os.Args[0], ShimCommand}} }

// A bench is what a test works with: folders, a hub and the runs begun.
type bench struct {
	t   *testing.T
	dir string
	hub *testkit.Hub
}

// newBench returns the bench of a test, which runs in parallel with others.
func newBench(t *testing.T) *bench {
	t.Parallel()
	return benchOf(t)
}

func benchOf(t *testing.T) *bench {
	t.Helper()
	b := &bench{t, t.TempDir(), testkit.NewHub(t)}
	must(t, os.MkdirAll(b.path("ran"), 0o700))
	must(t, os.MkdirAll(b.path("work"), 0o700))
	t.Cleanup(b.nothingLeft)
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// spec makes the test binary the agent, in a mode.
func (b *bench) spec(run, mode string) Spec {
	return Spec{
		Dir: b.path(run), Log: b.path("log"), Command: []string{os.Args[0]}, Work: b.path("work"),
		Env: []string{modeEnv + "=" + mode, b.hub.Env(), ranEnv + "=" + b.path("ran"), "BENCH=" + b.dir},
	}
}

func (b *bench) start(spec Spec) *Process {
	b.t.Helper()
	return testkit.Get(testRunner().Start(b.t.Context(), spec)).Must(b.t)
}

// pid is the agent's process id, 0 if it was never started.
func (p *Process) pid() int {
	if p.started == nil {
		return 0
	}
	return p.started.PID
}

// run starts an agent and waits for its end.
func (b *bench) run(spec Spec) Exit {
	b.t.Helper()
	return b.wait(b.start(spec))
}

func (b *bench) wait(p *Process) Exit {
	b.t.Helper()
	return testkit.Get(p.Wait(b.t.Context())).Must(b.t)
}

// ran is how many agents have run.
func (b *bench) ran() int { return len(testkit.Get(os.ReadDir(b.path("ran"))).Must(b.t)) }

// log returns the entries there are, of all streams but system.
func (b *bench) log() []Entry {
	b.t.Helper()
	var said []Entry
	for after := int64(-1); ; {
		entries, next, err := Tail(b.t.Context(), b.path("log"), &after, MaxTail, 0)
		must(b.t, err)
		if len(entries) == 0 {
			return said
		}
		for i, e := range entries {
			testkit.Need(b.t, e.Index == entries[0].Index+int64(i), "entry %d has index %d", entries[0].Index+int64(i), e.Index)
			if e.Stream != System {
				said = append(said, e)
			}
		}
		after = next
	}
}

// texts joins what was said on one stream.
func texts(entries []Entry, stream string) string {
	var s []string
	for _, e := range entries {
		if e.Stream == stream {
			s = append(s, e.Text)
		}
	}
	return strings.Join(s, "|")
}

// next waits until a process has reported.
func (b *bench) next() *testkit.Visitor { return b.hub.Next() }

// nothingLeft fails the test if a process of it lives: each has the bench's
// folder in its environment, or as its argument.
func (b *bench) nothingLeft() {
	testkit.Until(b.t, "without processes", func() bool { return len(processesOf(b.dir)) == 0 })
}

// link makes a symbolic link, or skips the test.
func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Skip("no symlinks here:", err)
	}
}

var must = testkit.Must

// A link in the place of a file or folder of a run is not followed: nothing is read,
// written, emptied or run where it leads to.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, at     string // of the link, in the bench's folder
		dir, started bool   // it leads to a folder; the agent runs regardless
	}{
		{"log folder", "log", true, false},
		{"segment", "log/00000000000000000000.jsonl", false, false},
		{"run folder", "runs/a", true, false},
		{"spec", "runs/a/spec.json", false, true}, // it is replaced
		{"spare", "runs/a/exit.spare", false, true},
		{"started", "runs/a/started.json", false, false},
		{"exit", "runs/a/exit.json", false, false},
		{"stop", "runs/a/stop.0", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			victim := b.path("victim")
			testkit.Write(t, filepath.Join(victim, "profile"), "mine\n")
			target := victim
			if !c.dir {
				target = filepath.Join(victim, "profile")
			}
			must(t, os.MkdirAll(filepath.Dir(b.path(c.at)), 0o700))
			link(t, target, b.path(c.at))
			s := b.spec("runs/a", "echo")
			p, err := testRunner().Start(t.Context(), s)
			if p != nil {
				var e Exit
				e, err = p.Wait(t.Context())
				testkit.Equal(t, err == nil && e.NotStarted == "", c.started, "%+v, %v", e, err)
			} else {
				testkit.True(t, err != nil && !c.started, "%v", err)
			}
			if c.name == "stop" {
				must(t, requestStop(s.Dir, 0))
			}
			_, _, err = Tail(t.Context(), s.Log, nil, 10, 0)
			testkit.True(t, err != nil || !strings.HasPrefix(c.at, "log"), "the log was read")
			testkit.True(t, Note(s.Log, "text") != nil || !strings.HasPrefix(c.at, "log"), "a note was written")
			testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(victim, "profile"))).Must(t)), "mine\n", "outside")
			testkit.Equal(t, len(testkit.Get(os.ReadDir(victim)).Must(t)), 1, "files outside")
			must(t, os.RemoveAll(b.path(c.at)))
		})
	}
}

// What a stored Spec says is not what is run, and a log elsewhere is not written.
func TestAStoredSpecIsNotRun(t *testing.T) {
	b := newBench(t)
	s := b.spec("runs/a", "echo")
	must(t, os.MkdirAll(s.Dir, 0o700))
	planted := s
	planted.Command, planted.Log = []string{"sh", "-c", "touch " + b.path("planted")}, b.path("elsewhere/log")
	must(t, writeJSON(s.Dir, specFile, &planted))
	e := b.wait(b.start(s))
	testkit.True(t, e.Code == 0 && e.NotStarted == "", "%+v", e)
	testkit.True(t, !exists(b.dir, "planted") && !exists(b.dir, "elsewhere"), "what was stored was run")
	planted.Dir = b.path("runs/b")
	e = b.wait(b.start(planted))
	testkit.True(t, strings.Contains(e.NotStarted, "opening the log") && !exists(b.dir, "planted"), "%+v", e)
}
