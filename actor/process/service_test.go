package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

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
	testkit.True(t, err == nil && string(out) == "out\n" && ok && e.Kind == process.Exit && e.ExitCode == 3 && strings.HasSuffix(e.Tail, "line 9999"), "%q %v", out, s.Err())
	testkit.True(t, len(lines) == 10_000 && lines[0] == "line 0" && lines[9999] == "line 9999", "heard %d lines", len(lines))
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
	return process.Contain(ctx, process.Contained{Command: command, Dir: t.TempDir(), Env: os.Environ(), Timeout: limit, Output: 1000})
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
		{"fails", "echo no; exit 3", time.Minute, false, func(o outcome) bool { return o.Code == 3 && o.Output == "no" }},
		{"dies", "kill -SEGV $$", time.Minute, false, func(o outcome) bool { return o.Signal == "SIGSEGV" }},
		{"takes too long", "echo begun; exec sleep 600", 200 * time.Millisecond, false, func(o outcome) bool { return o.TimedOut && o.Output == "begun" }},
		{"ignores its end", "trap '' TERM; echo begun; while :; do sleep 1; done", 200 * time.Millisecond, false, func(o outcome) bool { return o.TimedOut && !o.Surviving }},
		{"leaves a child", "sleep 600 >/dev/null 2>&1 &", time.Minute, false, func(o outcome) bool { return o.Left && o.Code == 0 }},
		{"floods", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", time.Minute, true, func(o outcome) bool { return len(o.Output) <= 1000 && strings.HasSuffix(o.Output, "line 19999") }},
		{"has a child that ends soon", "(sleep 0.1) >/dev/null 2>&1 &", time.Minute, true, func(o outcome) bool { return !o.Left }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testkit.Get(contained(t, t.Context(), c.script, c.limit)).Must(t)
			testkit.True(t, o.Passed() == c.ok && c.is(o), "outcome %+v", o)
		})
	}
	o, err := process.Contain(t.Context(), process.Contained{Command: []string{"/no/such/program"}, Dir: t.TempDir(), Env: os.Environ(), Timeout: time.Minute})
	testkit.True(t, err == nil && o.NotStarted != "" && o.Missing && !o.Passed(), "a program that is missing: %+v, %v", o, err)
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
	o := testkit.Get(contained(t, t.Context(), "PROCESS_DETACHED=1 setsid sh -c 'echo $$ > "+mark+"; exec sleep 600' >/dev/null 2>&1 & while [ ! -s "+mark+" ]; do sleep 0.02; done", time.Minute)).Must(t)
	testkit.True(t, o.Left && !o.Passed() && !runs(t, mark), "outcome %+v", o)
}

func TestContainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "pid")
	ended := make(chan error, 1)
	go func() { ended <- testkit.Get(contained(t, ctx, "echo $$ > "+mark+"; exec sleep 600", time.Hour)).Err() }()
	testkit.Until(t, "begun", func() bool { data, _ := os.ReadFile(mark); return len(data) > 0 })
	cancel()
	testkit.Fails(t, <-ended, "")
	testkit.True(t, !runs(t, mark), "the command still runs")
}
