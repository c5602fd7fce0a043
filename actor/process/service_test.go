package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	testkit.True(t, s.Err() == nil, "an error of one that runs: %v", s.Err())
	stop(t, s) // the end of its input is enough
	if _, err := r.ReadByte(); err != io.EOF || s.Err() != nil {
		t.Errorf("%v, %v", err, s.Err())
	}
	stop(t, s)
}

func TestServiceThatEndsSaysWhy(t *testing.T) {
	t.Parallel()
	var lines []string
	s := serveChild(t, "fail", nil, func(line string) { lines = append(lines, line) })
	out, err := io.ReadAll(s.Stdout)
	<-s.Done()
	e, ok := errors.AsType[*process.Error](s.Err())
	if err != nil || string(out) != "out\n" || !ok || e.Kind != process.Exit || e.ExitCode != 3 || !strings.HasSuffix(e.Tail, "line 9999") {
		t.Errorf("%q %v %v", out, err, s.Err())
	}
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
	testkit.True(t, s.Err() != nil, "no error of one that was killed")
}

// What left the group does not hold up those who wait for the child.
func TestServiceWhoseDescendantEscapes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("nobody can leave")
	}
	h := testkit.NewHub(t)
	s := serveChild(t, "escape", h, nil)
	leaf := h.Next()
	if leaf == nil {
		return
	}
	testkit.Equal(t, string(testkit.Get(io.ReadAll(s.Stdout)).Must(t)), "done\n")
	<-s.Done()
	testkit.True(t, leaf.Alive(), "it had left the group and is gone: the test tests nothing")
	p, _ := os.FindProcess(leaf.PID)
	p.Kill()
	leaf.Gone()
}

func TestServiceThatCannotBeStarted(t *testing.T) {
	for name, s := range map[string]process.Spec{
		"no program":   {},
		"no such":      {Command: []string{"no-such-program-anywhere"}},
		"no directory": {Command: []string{"go"}, Dir: "/no/such/folder"},
	} {
		service, err := process.Serve(s, nil)
		_, ok := errors.AsType[*process.Error](err)
		testkit.True(t, ok && service == nil, "%s: %v %v", name, service, err)
	}
}

func TestServiceLinesAreBounded(t *testing.T) {
	t.Parallel()
	var longest, lines int
	s := spec(t, "longline", nil)
	service := testkit.Get(process.Serve(s, func(line string) { lines, longest = lines+1, max(longest, len(line)) })).Must(t)
	defer service.Stdout.Close()
	<-service.Done()
	testkit.Equal(t, lines, 2)
	testkit.Equal(t, longest, 4000)
}
