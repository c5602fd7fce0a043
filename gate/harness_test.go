package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// patience is how long a test waits for what must come, on a machine that is busy with other things too; it
// never waits that long for what does not.
const patience = time.Minute

// claudeEnv says what the test binary does when it is started as claude.
const claudeEnv = "GATE_TEST_CLAUDE"

// TestMain makes the test binary the reviewer too: as `gate.test reviewer MODE…`,
// or, started with claude's arguments, in the mode of the environment.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "reviewer" {
		os.Exit(reviewer(os.Args[2], os.Args[3:]))
	}
	if mode := strings.Fields(os.Getenv(claudeEnv)); len(mode) > 0 {
		os.Exit(reviewer(mode[0], mode[1:]))
	}

	// A program built with -race sleeps for a second at its end, each reviewer too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	// What reviewers are not given.
	for _, name := range config.ConversationEnv {
		os.Setenv(name, "1")
	}
	os.Setenv("SHOP_TOKEN", "secret")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

func command(mode string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "reviewer", mode}, args...)
}

func saying(text string) []string { return command("say", text) }

const (
	passes = `{"passed": true, "feedback": "all is well"}`
	fails  = `{"passed": false, "feedback": "the summary is missing"}`
)

type received struct {
	Args  []string
	Stdin string
	Dir   string
	Env   map[string]string
}

// receivedIn reads what a reviewer has written into a file, and whether it has run at all.
func receivedIn(t *testing.T, file string) (r received, ran bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		testkit.Must(t, json.Unmarshal(data, &r))
	}
	return r, err == nil
}

func reviewer(mode string, args []string) int {
	switch mode {
	case "say": // TEXT [STDERR [CODE]]
		io.Copy(io.Discard, os.Stdin)
		fmt.Print(args[0])
		if len(args) > 1 {
			fmt.Fprint(os.Stderr, args[1])
		}
		if len(args) > 2 {
			code, _ := strconv.Atoi(args[2])
			return code
		}
	case "record": // FILE [ANSWER]
		in, _ := io.ReadAll(os.Stdin)
		dir, _ := os.Getwd()
		got := received{Args: os.Args, Stdin: string(in), Dir: dir, Env: make(map[string]string)}
		for _, v := range os.Environ() {
			name, value, _ := strings.Cut(v, "=")
			got.Env[name] = value
		}
		data, _ := json.Marshal(got)
		if err := os.WriteFile(args[0], data, 0o600); err != nil {
			panic(err)
		}
		if len(args) == 1 {
			args = append(args, passes)
		}
		fmt.Println(strings.Join(args[1:], " "))
	case "swap": // HOW
		swapped(args[0])
	case "flood":
		for line, err := bytes.Repeat([]byte("y\n"), 4096), error(nil); err == nil; {
			_, err = os.Stdout.Write(line)
		}
	case "work": // HUB TIME
		d, _ := time.ParseDuration(args[1])
		c := dial(args[0])
		r := bufio.NewReader(c)
		r.ReadString('\n') // the test lets it begin
		time.Sleep(d)
		fmt.Fprintln(c, "end")
		r.ReadString('\n')
		fmt.Println(passes)
	case "gated": // HUB: ends when the test says so, with what it says
		answer, err := bufio.NewReader(dial(args[0])).ReadString('\n')
		if err != nil {
			return 1
		}
		fmt.Println(answer)
	case "stubborn", "leaf": // HUB: stubborn has a leaf as its child
		signal.Ignore(syscall.SIGTERM)
		if mode == "stubborn" {
			cmd := exec.Command(os.Args[0], "reviewer", "leaf", args[0])
			cmd.Stdin = os.Stdin
			cmd.Stdout = os.Stdout
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				panic(err)
			}
		}
		dial(args[0])
		testkit.Forever()
	}

	return 0
}

func dial(hub string) net.Conn {
	os.Setenv(testkit.HubEnv, hub)
	return testkit.Attend()
}

// A project is a folder with outputs in it.
type project struct {
	t    testing.TB
	root string
}

// newProject makes the folder. A test that calls it runs beside others.
func newProject(t testing.TB) *project {
	if test, ok := t.(*testing.T); ok {
		if _, again := parallel.LoadOrStore(test, true); !again {
			test.Parallel()
		}
	}
	return &project{t, testkit.Dir(t)}
}

var parallel sync.Map // the tests that have called newProject

// tides is a project whose report is submitted, with one review.
func tides(t testing.TB) (*project, Submission) {
	p := newProject(t)
	p.write("report.md", "# Tides\n")
	return p, p.submission("step").submit("report", "report.md")
}

func (p *project) write(path, content string) {
	p.t.Helper()
	testkit.Write(p.t, filepath.Join(p.root, path), content)
}

// submission hands in files for a step with an output `report` (file) and one `docs` (files), reviewed by run_each.
func (p *project) submission(runEach ...string) Submission {
	st := &job.Step{ID: "write", Name: "Write it", Description: "Writes the report\nand its chapters.",
		Outputs: []job.Output{{Name: "report", Type: job.File, Required: true}, {Name: "docs", Type: job.Files}}}
	for _, r := range runEach {
		st.Reviews = append(st.Reviews, job.Review{
			RunEach: r,
			Criteria: []job.Criteria{{Name: "complete", Question: "Is everything there?"},
				{Name: "Plain words", Question: "Can a stranger read it?"}},
		})
	}
	return Submission{
		SessionID: "0a1b2c3d",
		Job:       &job.Job{Name: "papers"},
		Workflow:  "paper",
		Step:      st,
		Goal:      "A paper on tides.",
	}
}

func (s Submission) submit(name string, paths ...string) Submission {
	s.Outputs = append(s.Outputs[:len(s.Outputs):len(s.Outputs)], Output{Name: name, Paths: paths})
	return s
}

// plan hashes what is submitted and plans its reviews.
func (p *project) plan(s Submission) []Task {
	p.t.Helper()
	var paths []string
	for _, o := range s.Outputs {
		paths = append(paths, o.Paths...)
	}
	return Plan(s, testkit.Get(HashFiles(context.Background(), p.root, paths)).Must(p.t))
}

// gate opens a gate that the test closes.
func (p *project) gate(settings func() Settings) *Gate {
	g := Open(Options{Root: p.root, Settings: settings, Logger: slog.New(slog.NewTextHandler(p.t.Output(), nil))})
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testkit.Works(p.t, g.Close(ctx))
	})
	return g
}

func always(s Settings) func() Settings { return func() Settings { return s } }

func collect(t testing.TB, ctx context.Context, g *Gate, session string, s Submission, tasks []Task) <-chan Verdict {
	t.Helper()
	verdicts := make(chan Verdict, len(tasks)+1)
	testkit.Must(t, g.Run(ctx, session, s, tasks, func(v Verdict) { verdicts <- v }))
	return verdicts
}

func (p *project) judge(settings Settings, s Submission, tasks []Task) Verdict {
	p.t.Helper()
	return <-collect(p.t, p.t.Context(), p.gate(always(settings)), "a", s, tasks)
}

func judge(t *testing.T, settings Settings) Verdict {
	t.Helper()
	p, s := tides(t)
	if settings.MaxInlineFiles == 0 {
		settings.MaxInlineFiles = 5
	}
	return p.judge(settings, s, p.plan(s))
}

func passed(t testing.TB, v Verdict) {
	t.Helper()
	testkit.Need(t, v.Err == nil && v.Passed, "got %+v", v)
}

// fault returns the error of a verdict; the test fails if it is nil, or has another code or other words.
func fault(t testing.TB, v Verdict, code Code, wants ...string) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](v.Err)
	testkit.Need(t, ok && !v.Passed, "no error of the gate, but passed %v, %v", v.Passed, v.Err)
	testkit.Need(t, e.Code == code, "code %s, want %s: %v", e.Code, code, e)
	testkit.ContainsAll(t, e.Error(), append(wants, "This try does not count", "finished_step"))
	return e
}
