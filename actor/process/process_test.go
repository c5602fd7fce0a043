package process_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// run is process.Run for a test; it fails where that takes absurdly long.
func run(t *testing.T, ctx context.Context, s process.Spec) (process.Result, *process.Error) {
	t.Helper()
	began := time.Now()
	r, err := process.Run(ctx, s)
	d := time.Since(began)
	testkit.True(t, d <= patience, "Run took %v", d)
	if err == nil {
		return r, nil
	}

	e, ok := errors.AsType[*process.Error](err)
	testkit.Need(t, ok, "the error is a %T: %v", err, err)
	return r, e
}

func TestStdinIsFedAndStdoutRead(t *testing.T) {
	t.Parallel()
	for _, in := range [][]byte{nil, {}, []byte("z"), bytes.Repeat([]byte("z"), 100_000),
		bytes.Repeat([]byte("z"), 3<<20)} {
		s := spec(t, "echo", nil)
		s.Stdin, s.StdoutLimit = in, 4<<20
		r, err := run(t, t.Context(), s)
		testkit.True(t, err == nil && bytes.Equal(r.Stdout, in), "of %d bytes %d came back; %v", len(in),
			len(r.Stdout), err)
	}

	s := spec(t, "noread", nil)
	s.Stdin = make([]byte, 5<<20)
	_, err := run(t, t.Context(), s)
	testkit.True(t, err == nil, "a child that does not read its input: %v", err)
}

func TestNoShellReadsTheArguments(t *testing.T) {
	t.Parallel()
	s := spec(t, "tell", nil)
	s.Dir = testkit.Dir(t)
	args := []string{"a b", "$HOME", "*", "'", `"`, "; exit 3", "", "--", "ä"}
	s.Command = append(s.Command, args...)
	s.Env = append(s.Env, "TELL=first", "TELL=last")
	r, err := run(t, t.Context(), s)
	testkit.Need(t, err == nil, "%v", err)

	type given struct {
		Args     []string
		Dir, Env string
	}
	var told given
	testkit.Must(t, json.Unmarshal(r.Stdout, &told))
	testkit.Same(t, told, given{args, s.Dir, "last"})
}

func TestExitCodeAndLastLines(t *testing.T) {
	t.Parallel()
	s := spec(t, "fail", nil)
	s.StderrLimit = 5000
	r, err := run(t, t.Context(), s)
	testkit.Need(t, err != nil, "got %+v", err)
	testkit.Need(t, err.Kind == process.Exit, "got %+v", err)
	testkit.Need(t, err.ExitCode == 3, "got %+v", err)
	testkit.Need(t, r.ExitCode == 3, "got %+v", err)
	testkit.Need(t, len(r.Stderr) <= 5000, "kept %.20q", r.Stderr)
	testkit.Need(t, len(r.Stderr) >= 4900, "kept %.20q", r.Stderr)
	testkit.True(t, strings.HasPrefix(r.Stderr, "line "), "kept %.20q", r.Stderr)
	testkit.True(t, strings.HasSuffix(r.Stderr, "line 9999\n"), "kept %.20q", r.Stderr)
	testkit.Equal(t, string(r.Stdout), "out\n")
	testkit.Need(t, len(err.Tail) <= 2000, "the tail is %q", err.Tail)
	testkit.True(t, strings.HasPrefix(err.Tail, "line "), "the tail is %q", err.Tail)
	testkit.True(t, strings.HasSuffix(err.Tail, "line 9999"), "the tail is %q", err.Tail)
	testkit.ContainsAll(t, err.Error(), []string{s.Command[0], "exit code 3", "line 9999"}, "the message")

	_, err = run(t, t.Context(), spec(t, "failout", nil)) // with nothing on its standard error
	testkit.Need(t, err != nil, "got %+v", err)
	testkit.Equal(t, err.ExitCode, 4, "got %+v", err)
	testkit.Equal(t, err.Tail, "first\nlast", "got %+v", err)
}

func TestTooMuchOutputKills(t *testing.T) {
	t.Parallel()
	s := spec(t, "exactly", nil)
	s.StdoutLimit = 1000
	r, err := run(t, t.Context(), s)
	testkit.True(t, err == nil && len(r.Stdout) == 1000, "at the limit: %d bytes, %v", len(r.Stdout), err)
	s.StdoutLimit = 999
	r, err = run(t, t.Context(), s)
	testkit.Need(t, err != nil, "one byte more: %d bytes, %v", len(r.Stdout), err)
	testkit.Need(t, err.Kind == process.TooMuchOutput, "one byte more: %d bytes, %v", len(r.Stdout), err)
	testkit.Need(t, len(r.Stdout) == 999, "one byte more: %d bytes, %v", len(r.Stdout), err)

	s = spec(t, "flood", nil)
	s.Grace = time.Hour // it is not waited for
	r, err = run(t, t.Context(), s)
	testkit.True(t, errors.Is(err, process.ErrTooMuchOutput) && len(r.Stdout) == process.DefaultStdoutLimit,
		"a flood: %d bytes, %v", len(r.Stdout), err)
	testkit.Contains(t, err.Error(), "more than 1048576 bytes")
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	all := make(chan *testkit.Visitor, 1)
	go func() {
		all <- h.Next()
		cancel(context.DeadlineExceeded)
	}()
	_, err := run(t, deadline{ctx}, spec(t, "hang", h))
	testkit.Need(t, err != nil, "got %v", err)
	testkit.Equal(t, err.Kind, process.Timeout, "got %v", err)
	testkit.FailsWith(t, err, context.DeadlineExceeded, "got %v", err)
	gone(<-all)
}

func gone(v *testkit.Visitor) {
	if v != nil {
		v.Gone()
	}
}

// A deadline is a context whose time is over when it is cancelled.
type deadline struct{ context.Context }

func (d deadline) Err() error {
	if d.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

func TestCancelIsToldByTheContext(t *testing.T) {
	t.Parallel()
	unixOnly(t)
	h := testkit.NewHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	all := make(chan *testkit.Visitor, 1)
	go func() {
		all <- h.Next()
		cancel()
	}()
	r, err := run(t, ctx, spec(t, "obedient", h))
	// It tidied up and exited with 0, and yet it did not do what it was for.
	testkit.Need(t, err != nil, "got %v", err)
	testkit.Equal(t, err.Kind, process.Cancelled, "got %v", err)
	testkit.FailsWith(t, err, context.Canceled, "got %v", err)
	testkit.Equal(t, r.ExitCode, 0, "got %v", err)
	testkit.Equal(t, string(r.Stdout), "tidied up\n")

	gone(<-all)
	cause, end := context.WithCancelCause(t.Context())
	end(errors.New("nobody waits"))
	_, err = run(t, cause, process.Spec{Command: []string{"no-such-program-here"}})
	testkit.Need(t, err != nil, "over before it began: %v", err)
	testkit.Equal(t, err.Kind, process.Cancelled, "over before it began: %v", err)
	testkit.Contains(t, err.Error(), "nobody waits", "over before it began: %v", err)
}

func unixOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("not on Windows")
	}
}

func TestDescendantsHaveTheGracePeriodToo(t *testing.T) {
	t.Parallel()
	unixOnly(t)
	h := testkit.NewHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := spec(t, "gentle", h)
	s.Grace = time.Hour
	done := make(chan string, 1)
	go func() {
		r, _ := process.Run(ctx, s)
		done <- string(r.Stdout)
	}()
	first, second := h.Next(), h.Next()
	cancel()
	child := h.Next()
	parent := first
	if parent.PID == child.PID {
		parent = second
	}
	parent.Gone()
	testkit.True(t, child.Alive(), "it was killed as soon as its parent had ended")

	began := time.Now()
	child.Write([]byte("x"))
	testkit.Equal(t, <-done, "tidied up\n", "it wrote")
	testkit.True(t, time.Since(began) <= patience, "the grace period was waited for to its end, though all were gone")
}

func TestDescendantsDoNotSurviveANormalExit(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	r, err := run(t, t.Context(), spec(t, "orphan", h)) // a descendant holds the pipes
	testkit.Need(t, err == nil, "got %q, %v; something is left: %v", r.Stdout, err, r.Left)
	testkit.Equal(t, string(r.Stdout), "done\n", "got %q, %v; something is left: %v", r.Stdout, err, r.Left)
	testkit.True(t, !r.Left, "got %q, %v; something is left: %v", r.Stdout, err, r.Left)
	gone(h.Next())
}

func TestWhoLeftTheGroupDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	unixOnly(t)
	h := testkit.NewHub(t)
	r, err := run(t, t.Context(), spec(t, "escape", h))
	testkit.Need(t, err == nil, "got %q, %v; something is left: %v", r.Stdout, err, r.Left)
	testkit.Equal(t, string(r.Stdout), "done\n", "got %q, %v; something is left: %v", r.Stdout, err, r.Left)
	testkit.True(t, r.Left, "got %q, %v; something is left: %v", r.Stdout, err, r.Left)

	killEscaped(t, h)
	s := serveChild(t, "escape", h, nil)
	testkit.Equal(t, string(testkit.Get(io.ReadAll(s.Stdout)).Must(t)), "done\n")

	<-s.Done()
	killEscaped(t, h)
}

// killEscaped ends the process that left a group, and still runs.
func killEscaped(t *testing.T, h *testkit.Hub) {
	t.Helper()
	v := h.Next()
	testkit.True(t, v.Alive(), "it had left the group and is gone: the test tests nothing")
	p, _ := os.FindProcess(v.PID)
	p.Kill()
	v.Gone()
}

func TestProgramsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("text"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "headless"), []byte("#!/no/such/interpreter\n"), 0o700))
	self, _ := os.Executable()
	in := func(dir string, command ...string) process.Spec { return process.Spec{Command: command, Dir: dir} }
	cases := map[string]struct {
		spec process.Spec
		kind process.Kind
		want []string
		is   error
	}{
		"none":  {in(""), process.Start, []string{"no program"}, nil},
		"empty": {in("", "", "x"), process.Start, []string{"no program"}, nil},
		"not in PATH": {in("", "no-such-program-here"), process.NotFound, []string{`"no-such-program-here"`, "PATH"},
			exec.ErrNotFound},
		"missing file": {in(dir, "./missing"), process.NotFound, []string{`"./missing"`}, fs.ErrNotExist},
		"not executable": {in(dir, "./plain"), process.Start, []string{`"./plain"`, "not an executable"},
			fs.ErrPermission},
		"no interpreter": {in(dir, "./headless"), process.Start, []string{`"./headless"`, "first line"},
			fs.ErrNotExist},
		"missing dir": {in(filepath.Join(dir, "gone"), self), process.Start, []string{"working directory", "gone"},
			fs.ErrNotExist},
		"file as dir": {in(filepath.Join(dir, "plain"), self), process.Start,
			[]string{"working directory", "not a directory"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && (name == "not executable" || name == "no interpreter") {
				t.Skip("there is no such thing here")
			}
			r, err := run(t, t.Context(), c.spec)
			testkit.Need(t, err != nil, "got %+v", err)
			testkit.Need(t, err.Kind == c.kind, "got %+v", err)
			testkit.Need(t, r.ExitCode == -1, "got %+v", err)
			testkit.Need(t, (c.is == nil || errors.Is(err, c.is)), "got %+v", err)
			testkit.ContainsAll(t, err.Error(), c.want, "the message")

			_, served := process.Serve(c.spec, nil)
			testkit.Equal(t, served.Error(), err.Error(), "as a service")
		})
	}
}

func TestTail(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "  \n a \n": "a", "\x1b[1;31mred\x1b[0m\r\n": "red", "\x1b]0;title\x07x": "x",
		"one\ntwo\nthree": "two\nthree", "äöüäöüäöüäöü": "öüäöü", "bad \xff\xfe text": "bad  text",
	} {
		testkit.Equal(t, process.Tail(in, 10), want, "Tail(%q)", in)
	}
}

// A program that is named without a path is not found where others may have put one.
func TestLook(t *testing.T) {
	unixOnly(t)
	dir := testkit.Dir(t)
	at := func(path string) string { return filepath.Join(dir, path) }
	for _, name := range []string{"project/bin/tool", "other/bin/tool", "shut/tool"} {
		testkit.Write(t, at(name), "#!/bin/sh\n")
		testkit.Must(t, os.Chmod(at(name), 0o755))
	}
	testkit.Must(t, errors.Join(os.Chmod(at("shut/tool"), 0o644), os.Symlink(at("project"), at("link"))))
	testkit.Must(t, errors.Join(os.Mkdir(at("links"), 0o755), os.Symlink(at("project/bin/tool"), at("links/tool"))))
	t.Chdir(at("project"))
	for _, c := range []struct{ path, avoid, want string }{
		{"project/bin other/bin", "", "project/bin/tool"},
		{"project/bin other/bin", "project", "other/bin/tool"},
		{"link/bin links other/bin", "project", "other/bin/tool"},
		{"project/bin", "link", ""},
		{"other/bin", "oth", "other/bin/tool"},
		{"shut", "", "permission"},
		{"shut other/bin", "", "other/bin/tool"},
	} {
		list := []string{"bin", ""}
		for name := range strings.FieldsSeq(c.path) {
			list = append(list, at(name))
		}
		t.Setenv("PATH", strings.Join(list, ":"))
		got, err := process.Look("tool", strings.Fields(map[bool]string{true: at(c.avoid)}[c.avoid != ""])...)
		switch c.want {
		case "permission":
			testkit.FailsWith(t, err, fs.ErrPermission)
		case "":
			testkit.FailsWith(t, err, exec.ErrNotFound)
		default:
			testkit.Equal(t, got, at(c.want), "%+v", c)
		}
	}
	t.Setenv("PATH", at("project/bin"))
	process.Avoid(at("project"))
	process.Avoid(at("project"))
	testkit.FailsWith(t, testkit.Get(process.Look("tool")).Err(), exec.ErrNotFound)
	testkit.True(t, process.Bare("tool"), "what has a path")
	testkit.True(t, !process.Bare("./tool"), "what has a path")
	testkit.True(t, !process.Bare("bin/tool"), "what has a path")
	testkit.Equal(t, process.Resolved(at("link/bin/../none")), at("link/none"))
}

// patience bounds the waits for what is to come, on a machine that is busy too.
const patience = time.Minute

// The test binary is the child too: modeEnv says what it does.
const modeEnv = "PROCESS_TEST_MODE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		os.Exit(child(mode))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// staying is a command that writes its id to a file and stays.
var staying = process.Spec{Command: []string{"sh", "-c", "echo $$ >\"$0\"; exec sleep 1000", os.Getenv("PID_FILE")}}

// child is what the test binary does when a test has started it.
func child(mode string) int {
	switch mode {
	case "first":
		return asFirst()
	case "echo":
		io.Copy(os.Stdout, os.Stdin)
	case "parent": // of a child that prints its id and stays
		process.Run(context.Background(), staying)
	case "tidying": // of a child that removes its lock file at SIGTERM, and stays otherwise
		process.Run(context.Background(), process.Spec{Tidy: true, Command: []string{"sh", "-c",
			`lock="$0.lock"; : >"$lock"; trap 'rm "$lock"; exit' TERM; echo $$ >"$0"; while :; do sleep 0.01; done`,
			os.Getenv("PID_FILE")}})
	case "detached":
		process.Detached()
		process.Answer(fmt.Sprint(os.Getpid(), " ", os.Getppid()))
		testkit.Forever()
	case "serving": // the same as parent with a service
		s, _ := process.Serve(staying, nil)
		<-s.Done()
	case "longline":
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<20))
		fmt.Fprint(os.Stderr, "\n\nlast, without an end")
	case "noread":
	case "tell":
		wd, _ := os.Getwd()
		json.NewEncoder(os.Stdout).Encode(map[string]any{"args": os.Args[1:], "dir": wd, "env": os.Getenv("TELL")})
	case "fail":
		fmt.Println("out")
		for i := range 10_000 {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		return 3
	case "failout":
		fmt.Println("\x1b[31mfirst\x1b[0m\nlast\x00")
		return 4
	case "exactly":
		os.Stdout.Write(bytes.Repeat([]byte("x"), 1000))
	case "flood":
		signal.Ignore(syscall.SIGTERM)
		for line := bytes.Repeat([]byte("y\n"), 4096); ; {
			if _, err := os.Stdout.Write(line); err != nil {
				return 0
			}
		}
	case "hang", "leaf", "stubborn", "gentle":
		switch mode {
		case "gentle": // dies of SIGTERM at once; its child tidies up
			testkit.Spawn(false, modeEnv+"=tidy")
		case "stubborn":
			testkit.Spawn(false, modeEnv+"=leaf")
			fallthrough
		case "leaf":
			signal.Ignore(syscall.SIGTERM)
		}
		testkit.Attend()
		testkit.Forever()
	case "obedient", "tidy": // a tidy one takes as long to end as the test says
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		testkit.Attend()
		<-end
		if mode == "tidy" {
			testkit.Attend().Read(make([]byte, 1))
		}
		fmt.Println("tidied up")
	case "orphan":
		testkit.Spawn(false, modeEnv+"=leaf")
		fmt.Println("done")
	case "escape":
		testkit.Spawn(true, modeEnv+"=leaf")
		fmt.Println("done")
	}

	return 0
}

// spec makes the test binary the command, in a mode.
func spec(t testing.TB, mode string, h *testkit.Hub) process.Spec {
	t.Helper()
	s := process.Spec{
		Command: []string{testkit.Get(os.Executable()).Must(t)},
		Env:     append(os.Environ(), modeEnv+"="+mode),
	}
	if h != nil {
		s.Env = append(s.Env, h.Env())
	}
	return s
}

// serveChild starts the test binary as a service and ends it with the test.
func serveChild(t *testing.T, mode string, h *testkit.Hub, listen func(string)) *process.Service {
	t.Helper()
	s := spec(t, mode, h)
	s.Grace = 100 * time.Millisecond
	service := testkit.Get(process.Serve(s, listen)).Must(t)
	t.Cleanup(func() {
		stop(t, service)
		service.Stdout.Close()
	})
	return service
}

// stop ends a service; it fails where that takes absurdly long.
func stop(t *testing.T, s *process.Service) {
	t.Helper()
	began := time.Now()
	s.Stop(context.Background())
	d := time.Since(began)
	testkit.True(t, d <= patience, "Stop took %v", d)

	select {
	case <-s.Done():
	default:
		t.Error("stopped, and not done")
	}
}

func TestServiceIsSpokenTo(t *testing.T) {
	t.Parallel()
	s := serveChild(t, "echo", nil, nil)
	r := bufio.NewReader(s.Stdout)
	for i := range 3 {
		fmt.Fprintf(s.Stdin, "line %d\n", i)
		line, err := r.ReadString('\n')
		testkit.Need(t, err == nil && line == fmt.Sprintf("line %d\n", i), "%q %v", line, err)
	}

	select {
	case <-s.Done():
		t.Fatal("it ended without being asked")
	default:
	}
	testkit.Works(t, s.Err(), "it runs")

	stop(t, s) // the end of its input is enough
	testkit.Equal(t, testkit.Get(r.ReadByte()).Err(), io.EOF)
	testkit.Works(t, s.Err())
	stop(t, s)
}

func TestServiceThatEndsSaysWhy(t *testing.T) {
	t.Parallel()
	var lines []string
	s := serveChild(t, "fail", nil, func(line string) { lines = append(lines, line) })
	out, err := io.ReadAll(s.Stdout)
	<-s.Done()
	e, ok := errors.AsType[*process.Error](s.Err())
	testkit.Need(t, err == nil, "%q %v", out, s.Err())
	testkit.Equal(t, string(out), "out\n")
	testkit.Need(t, ok, "%q %v", out, s.Err())
	testkit.Equal(t, e.Kind, process.Exit)
	testkit.Equal(t, e.ExitCode, 3)
	testkit.True(t, strings.HasSuffix(e.Tail, "line 9999"), "%q %v", out, s.Err())
	testkit.Need(t, len(lines) == 10_000, "heard %d lines", len(lines))
	testkit.Equal(t, lines[0], "line 0", "heard %d lines", len(lines))
	testkit.Equal(t, lines[9999], "line 9999", "heard %d lines", len(lines))
}

func TestServiceThatIsStubbornIsKilledWithItsGroup(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	s := serveChild(t, "stubborn", h, nil)
	all := []*testkit.Visitor{h.Next(), h.Next()} // it and its child
	if t.Failed() {
		return
	}

	began := time.Now()
	s.Stop(context.Background())
	d := time.Since(began)
	testkit.True(t, runtime.GOOS == "windows" || d >= 200*time.Millisecond, "it was given %v, not twice its grace", d)

	for _, v := range all {
		v.Gone()
	}

	e, ok := errors.AsType[*process.Error](s.Err())
	testkit.True(t, ok && (runtime.GOOS == "windows" || e.Signal == "SIGKILL"), "%v", s.Err())
}

func TestServiceIsKilledAtOnceWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	h := testkit.NewHub(t)
	sp := spec(t, "stubborn", h)
	sp.Grace = time.Hour
	s := testkit.Get(process.Serve(sp, nil)).Must(t)
	defer s.Stdout.Close()
	h.Next()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var several sync.WaitGroup
	for range 3 {
		several.Go(func() { s.Stop(ctx) })
	}
	several.Wait()
	testkit.Fails(t, s.Err(), "", "of one that was killed")
}

func TestServiceLinesAreBounded(t *testing.T) {
	t.Parallel()
	var longest, lines int
	s := serveChild(t, "longline", nil, func(line string) { lines, longest = lines+1, max(longest, len(line)) })
	<-s.Done()
	testkit.Equal(t, lines, 2)
	testkit.Equal(t, longest, 4000)
}

func contained(t *testing.T, ctx context.Context, script string, limit time.Duration) (process.Outcome, error) {
	unixOnly(t)
	command := []string{"/bin/sh", "-c", script}
	return process.Contain(ctx, process.Contained{
		Command: command,
		Dir:     t.TempDir(),
		Env:     os.Environ(),
		Timeout: limit,
		Output:  1000,
	})
}

func TestContainReportsHowACommandEnded(t *testing.T) {
	t.Parallel()
	type outcome = process.Outcome
	for _, c := range []struct {
		name, script string
		limit        time.Duration
		ok           bool
		is           func(outcome) bool
	}{
		{"passes", "echo out; echo err >&2", time.Minute, true, func(o outcome) bool { return o.Output == "out\nerr" }},
		{"fails", "echo no; exit 3", time.Minute, false, func(o outcome) bool {
			return o.Code == 3 && o.Output == "no"
		}},
		{"dies", "kill -SEGV $$", time.Minute, false, func(o outcome) bool { return o.Signal == "SIGSEGV" }},
		{"takes too long", "echo begun; exec sleep 600", 200 * time.Millisecond, false, func(o outcome) bool {
			return o.TimedOut && o.Output == "begun"
		}},
		{"ignores its end", "trap '' TERM; echo begun; while :; do sleep 1; done", 200 * time.Millisecond, false,
			func(o outcome) bool { return o.TimedOut && !o.Surviving }},
		{"leaves a child", "sleep 600 >/dev/null 2>&1 &", time.Minute, false, func(o outcome) bool {
			return o.Left && o.Code == 0
		}},
		{"floods", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", time.Minute, true,
			func(o outcome) bool { return len(o.Output) <= 1000 && strings.HasSuffix(o.Output, "line 19999") }},
		{"has a child that ends soon", "(sleep 0.1) >/dev/null 2>&1 &", time.Minute, true, func(o outcome) bool {
			return !o.Left
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testkit.Get(contained(t, t.Context(), c.script, c.limit)).Must(t)
			testkit.True(t, o.Passed() == c.ok && c.is(o), "outcome %+v", o)
		})
	}
	o, err := process.Contain(t.Context(), process.Contained{
		Command: []string{"/no/such/program"},
		Dir:     t.TempDir(),
		Env:     os.Environ(),
		Timeout: time.Minute,
	})
	testkit.Need(t, err == nil, "a program that is missing: %+v, %v", o, err)
	testkit.True(t, o.NotStarted != "", "a program that is missing: %+v, %v", o, err)
	testkit.True(t, o.Missing, "a program that is missing: %+v, %v", o, err)
	testkit.True(t, !o.Passed(), "a program that is missing: %+v, %v", o, err)
}

// runs reports whether the process whose id is in a file is there.
func runs(t *testing.T, file string) bool {
	return runtime.GOOS == "linux" && exists("/proc/"+strings.TrimSpace(string(testkit.Get(os.ReadFile(file)).Must(t))))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A daemon that has left the group, and says that it was detached on purpose, is ended too.
func TestContainLeavesNoDaemon(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs a reaper of orphans")
	}
	mark := filepath.Join(t.TempDir(), "pid")
	o := testkit.Get(contained(t, t.Context(), "PROCESS_DETACHED=1 setsid sh -c 'echo $$ > "+mark+
		"; exec sleep 600' >/dev/null 2>&1 & while [ ! -s "+mark+" ]; do sleep 0.02; done", time.Minute)).Must(t)
	testkit.True(t, o.Left, "outcome %+v", o)
	testkit.True(t, !o.Passed(), "outcome %+v", o)
	testkit.True(t, !runs(t, mark), "outcome %+v", o)
}

func TestContainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "pid")
	ended := make(chan error, 1)
	go func() { ended <- testkit.Get(contained(t, ctx, "echo $$ > "+mark+"; exec sleep 600", time.Hour)).Err() }()
	testkit.Until(t, "begun", func() bool {
		data, _ := os.ReadFile(mark)
		return len(data) > 0
	})

	cancel()
	testkit.Fails(t, <-ended, "")
	testkit.True(t, !runs(t, mark), "the command still runs")
}
