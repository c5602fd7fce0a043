//go:build unix

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

func TestRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.spec("1", "echo")
	s.Stdin = []byte("héllo\r\n\nlast words")
	before := time.Now()
	p := b.start(s)
	e := b.wait(p)
	testkit.True(t, e.Code == 0 && e.Signal == "" && !e.Stopped && !e.Interrupted && e.NotStarted == "" && e.FinalMessage == "last words", "exit %+v", e)
	if p.pid() == 0 || e.StartedAt.Before(before) || e.EndedAt.Before(e.StartedAt) {
		t.Errorf("pid %d, %v to %v", p.pid(), e.StartedAt, e.EndedAt)
	}
	log := b.log()
	if got, want := texts(log, Stdout), "reading|héllo||last words"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	testkit.Equal(t, texts(log, Stderr), "to stderr", "stderr")
	for _, file := range []string{specFile, startedFile, exitFile} {
		testkit.Equal(t, testkit.Get(os.Stat(filepath.Join(s.Dir, file))).Must(t).Mode().Perm(), 0o600, "%s", file)
	}
	// A later caller finds the same.
	again := testkit.Get(testRunner().Find(t.Context(), s.Dir)).Must(t)
	if got := b.wait(again); got != e || again.pid() != p.pid() {
		t.Errorf("found %+v, want %+v", got, e)
	}
	if got := b.run(s); got != e || b.ran() != 1 {
		t.Errorf("started again: %+v, %d agents ran", got, b.ran())
	}
	testkit.Equal(t, testkit.Get(again.Stop(t.Context(), 0)).Must(t), e, "stopped after its end")
}

func TestSurroundings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.spec("1", "tell")
	s.Env = append(s.Env, "TELL=it")
	s.Command = append(s.Command, "a b", "--c")
	b.run(s)
	var got struct {
		Dir, Pwd, Tell, Shim string
		Args                 []string
	}
	must(t, json.Unmarshal([]byte(texts(b.log(), Stdout)), &got))
	testkit.True(t, got.Dir == s.Work && got.Pwd == s.Work && got.Tell == "it" && got.Shim == "" && strings.Join(got.Args, "|") == "a b|--c", "%+v", got)
}

func TestExits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.run(b.spec("1", "exit:3"))
	testkit.True(t, e.Code == 3 && e.FinalMessage == "done", "%+v", e)
	dies := b.spec("2", "")
	dies.Command = []string{"sh", "-c", "kill -SEGV $$"}
	e = b.run(dies)
	testkit.True(t, e.Code == -1 && e.Signal == "SIGSEGV" && !e.Interrupted && !e.Stopped, "%+v", e)
	s := b.spec("3", "noread")
	s.Stdin = bytes.Repeat([]byte("x"), 1<<20)
	e = b.run(s)
	testkit.True(t, e.Code == 0 && e.Signal == "", "%+v", e)
	p := b.start(b.spec("4", "hang"))
	v := b.next()
	must(t, syscall.Kill(v.PID, syscall.SIGKILL))
	e = b.wait(p)
	testkit.True(t, e.Code == -1 && e.Signal == "SIGKILL" && !e.Interrupted, "killed: %+v", e)
}

func TestNotStarted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	script := b.path("work/script")
	must(t, os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700))
	must(t, os.WriteFile(b.path("work/plain"), []byte("x"), 0o600))
	for i, c := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(s *Spec) { s.Command = []string{"no-such-agent"} }, `"no-such-agent" is not in PATH; install it`},
		{func(s *Spec) { s.Command = []string{"./nothing"} }, "no such program"},
		{func(s *Spec) { s.Command = []string{"./plain"} }, "not an executable file"},
		{func(s *Spec) { s.Command = []string{script} }, "what its first line names"},
		{func(s *Spec) { s.Command = append(s.Command, strings.Repeat("x", 4<<20)) }, "argument list too long"},
		{func(s *Spec) { s.Work = b.path("gone") }, "working directory"},
		{func(s *Spec) { s.Work = script }, "not a directory"},
		{func(s *Spec) { s.Log = script }, "opening the log"},
	} {
		s := b.spec("not"+string(rune('a'+i)), "echo")
		c.change(&s)
		p := b.start(s)
		e := b.wait(p)
		testkit.True(t, strings.Contains(e.NotStarted, c.want) && p.pid() == 0 && e.Code == -1 && !e.Interrupted, "%d: %+v", i, e)
	}
	testkit.Equal(t, b.ran(), 0, "an agent ran")
	// The program is looked up in the PATH that the agent is given.
	must(t, os.MkdirAll(b.path("bin"), 0o700))
	must(t, os.WriteFile(b.path("bin/my-agent"), []byte("#!/bin/sh\necho mine\n"), 0o700))
	s := b.spec("path", "echo")
	s.Command, s.Env = []string{"my-agent"}, append(s.Env, "PATH="+b.path("bin")+":/bin:/usr/bin")
	testkit.Equal(t, b.run(s).FinalMessage, "mine")
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must(t, os.WriteFile(b.path("file"), nil, 0o600))
	testkit.Fails(t, testkit.Get(testRunner().Start(t.Context(), b.spec("file/run", "echo"))).Err(), "not a directory")
	s := b.spec("2", "echo")
	for want, r := range map[string]*Runner{
		"no command line":        {},
		"no-such-shim":           {Shim: []string{"/no-such-shim"}},
		"it ended without":       {Shim: []string{"true"}},
		"starting the shim":      {Shim: []string{"false"}},
		"something to say about": {Shim: []string{"sh", "-c", "echo something to say about it; exit 0"}},
	} {
		testkit.Fails(t, testkit.Get(r.Start(t.Context(), s)).Err(), want, "%s", want)
	}
	// All that is no hindrance to a start that goes well.
	if e := b.run(s); e.Code != 0 || b.ran() != 1 {
		t.Errorf("%+v, %d ran", e, b.ran())
	}
}

func TestFindNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := testRunner()
	if _, err := r.Find(t.Context(), b.path("none")); !errors.Is(err, ErrNoRun) || exists(b.dir, "none") {
		t.Errorf("no folder: %v", err)
	}
	// A server was killed before its shim came up: who looks first makes sure that
	// a late shim does nothing.
	s := b.spec("1", "echo")
	must(t, putSpec(t.Context(), s))
	testkit.FailsWith(t, testkit.Get(r.Find(t.Context(), s.Dir)).Err(), ErrNoRun, "a spec alone")
	out, err := exec.Command(r.Shim[0], r.Shim[1], s.Dir).CombinedOutput()
	if err != nil || string(out) != "\x00" || exists(s.Dir, startedFile) || b.ran() != 0 {
		t.Errorf("a late shim: %v %s, %d ran", err, out, b.ran())
	}
	// Start after that begins it.
	must(t, putSpec(t.Context(), s))
	if e := b.run(s); e.Code != 0 || b.ran() != 1 {
		t.Errorf("%+v, %d ran", e, b.ran())
	}
}

// The agent of a folder runs once, however often it is started.
func TestStartTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.spec("1", "hang")
	var wg sync.WaitGroup
	pids := make([]int, 6)
	for i := range pids {
		wg.Go(func() {
			p, err := testRunner().Start(t.Context(), s)
			if err != nil {
				t.Error(err)
				return
			}
			pids[i] = p.pid()
		})
	}
	v := b.next()
	wg.Wait()
	for _, pid := range pids {
		if pid != v.PID {
			t.Errorf("pids %v, the agent is %d", pids, v.PID)
			break
		}
	}
	p := testkit.Get(testRunner().Find(t.Context(), s.Dir)).Must(t)
	e := testkit.Get(p.Stop(t.Context(), time.Minute)).Must(t)
	testkit.True(t, e.Stopped && e.Signal == "SIGTERM", "%+v", e)
	testkit.Equal(t, b.ran(), 1, "agents ran")
}

func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start(b.spec("1", "hang"))
	b.next()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := p.Wait(ctx); done <- err }()
	cancel()
	testkit.FailsWith(t, <-done, context.Canceled)
	if _, err := testRunner().Start(ctx, b.spec("2", "hang")); !errors.Is(err, context.Canceled) || b.ran() != 1 {
		t.Errorf("%v, %d ran", err, b.ran())
	}
	if _, err := p.Stop(ctx, 0); err != nil && !errors.Is(err, context.Canceled) { // it may have ended at once
		t.Error(err)
	}
	if e := b.wait(p); !e.Stopped { // the request is still there
		t.Errorf("%+v", e)
	}
}

// A run ends no sooner than it began, also where the clock was set back meanwhile;
// otherwise the clock counts, which goes on while the machine sleeps.
func TestEndOf(t *testing.T) {
	began := time.Now()
	testkit.Equal(t, endOf(began, began.Add(time.Second)).Sub(began.Round(0)), time.Second, "of one that began at %v", began)
	// Read back from its record it has no monotonic part.
	early := began.Round(0).Add(time.Hour)
	got := endOf(early, began)
	testkit.True(t, got.Equal(early), "the clock was set back by an hour: %v, and it began at %v", got, early)
}

func (b *bench) stop(p *Process, grace time.Duration) Exit {
	b.t.Helper()
	e := testkit.Get(p.Stop(b.t.Context(), grace)).Must(b.t)
	return e
}

func TestStop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start(b.spec("1", "obedient"))
	b.next()
	e := b.stop(p, time.Minute)
	testkit.True(t, e.Stopped && e.Code == 0 && e.Signal == "" && e.FinalMessage == "tidied up" && !e.Interrupted, "obedient: %+v", e)
	// One that does not listen, with a child that does not either.
	p = b.start(b.spec("2", "stubborn"))
	v, child := b.next(), b.next()
	e = b.stop(p, 50*time.Millisecond)
	testkit.True(t, e.Stopped && e.Signal == "SIGKILL", "stubborn: %+v", e)
	v.Gone()
	child.Gone()
	// The child of one that listens has the grace period, too.
	p = b.start(b.spec("3", "tidyfamily"))
	v, child = b.next(), b.next()
	e = b.stop(p, time.Minute)
	testkit.True(t, e.Stopped && e.Signal == "SIGTERM" && e.FinalMessage == "the child tidied up", "family: %+v", e)
	v.Gone()
	child.Gone()
	// No grace at all; and it is stopped by one that has found it.
	b.start(b.spec("4", "stubborn"))
	b.next()
	b.next()
	found := testkit.Get(testRunner().Find(t.Context(), b.path("4"))).Must(t)
	e = b.stop(found, 0)
	testkit.True(t, e.Stopped && e.Signal == "SIGKILL", "no grace: %+v", e)
}

// Of several stops the least patient counts, whichever comes first.
func TestStopAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start(b.spec("1", "stubborn"))
	b.next()
	b.next()
	var wg sync.WaitGroup
	wg.Go(func() {
		if e, err := p.Stop(t.Context(), time.Hour); err != nil || !e.Stopped {
			t.Errorf("%+v, %v", e, err)
		}
	})
	testkit.Equal(t, b.stop(p, 0).Signal, "SIGKILL")
	wg.Wait()
}

func TestStopBeforeItBegan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.spec("1", "hang")
	must(t, os.MkdirAll(s.Dir, 0o700))
	must(t, requestStop(s.Dir, 0))
	if e := b.run(s); !e.Stopped || e.NotStarted == "" || b.ran() != 0 {
		t.Errorf("%+v, %d ran", e, b.ran())
	}
}

// Shims do not die of what terminals and people send to everybody.
func TestShimSurvivesSignals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start(b.spec("1", "hang"))
	v := b.next()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR2} {
		must(t, syscall.Kill(p.started.ShimPID, s))
	}
	sid, err := sessionOf(p.started.ShimPID)
	testkit.True(t, err == nil && sid == p.started.ShimPID, "the shim's session is %d, %v", sid, err)
	must(t, syscall.Kill(v.PID, syscall.SIGTERM))
	e := b.wait(p)
	testkit.True(t, e.Signal == "SIGTERM" && !e.Stopped && !e.Interrupted, "%+v", e)
}

// What an agent leaves behind ends with it, whatever session it has moved to.
func TestOrphans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start(b.spec("1", "orphans"))
	inGroup, away := b.next(), b.next()
	e := b.wait(p)
	testkit.True(t, e.Code == 0 && e.FinalMessage == "done" && (!e.Left || runtime.GOOS != "linux"), "%+v", e)
	inGroup.Gone()
	if runtime.GOOS == "linux" {
		away.Gone()
	} else {
		syscall.Kill(away.PID, syscall.SIGKILL)
	}
}

func sessionOf(pid int) (int, error) {
	sid, _, e := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(sid), nil
}

// A log has each byte that an agent wrote.
func TestField13_EachByteIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, text := range map[string]string{
		"colors":        "\x1b[31mred\x1b[0m\r\none\rtwo\x00 \n\n  indented \t\nlast",
		"no UTF-8":      "bad \xff\xfe\n\xc3",
		"nothing":       "",
		"a line break":  "\n",
		"a long line":   strings.Repeat("é", MaxLine) + "\nshort\r\n",
		"just as long":  strings.Repeat("x", MaxLine) + "\nshort\n" + strings.Repeat("x", 2*MaxLine),
		"a long end\r":  strings.Repeat("x", MaxLine+1) + "\r",
		"two in a line": strings.Repeat("x", 2*MaxLine) + "\n\n",
	} {
		s := b.spec(strings.ReplaceAll(strings.TrimSpace(name), " ", "_"), "echo")
		s.Stdin = []byte(text)
		b.wait(b.start(s))
		var got strings.Builder
		entries, _, err := Tail(t.Context(), s.Log, new(int64(-1)), 1000, 0)
		testkit.Must(t, err)
		for _, e := range entries {
			if e.Stream == Stdout {
				got.Write(e.Bytes())
			}
		}
		if want := "reading\n" + text; !strings.HasSuffix(got.String(), want) {
			t.Errorf("%s: got %d bytes, want %d: %.80q", name, got.Len(), len(want), got.String())
		}
	}
}
