package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
