//go:build unix

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

func TestRun(t *testing.T) {
	b := newBench(t)
	s := b.spec("1", "echo")
	s.Stdin = []byte("héllo\r\n\nlast words")
	before := time.Now()
	p := b.start(s)
	e := b.wait(p)
	testkit.Equal(t, e.Code, 0, "exit %+v", e)
	testkit.Equal(t, e.Signal, "", "exit %+v", e)
	testkit.True(t, !e.Stopped, "exit %+v", e)
	testkit.True(t, !e.Interrupted, "exit %+v", e)
	testkit.Equal(t, e.NotStarted, "", "exit %+v", e)
	testkit.Equal(t, e.FinalMessage, "last words", "exit %+v", e)
	testkit.True(t, p.pid() != 0, "pid %d, %v to %v", p.pid(), e.StartedAt, e.EndedAt)
	testkit.True(t, !e.StartedAt.Before(before), "pid %d, %v to %v", p.pid(), e.StartedAt, e.EndedAt)
	testkit.True(t, !e.EndedAt.Before(e.StartedAt), "pid %d, %v to %v", p.pid(), e.StartedAt, e.EndedAt)
	testkit.Equal(t, texts(b.log(), Stdout), "reading|héllo||last words", "stdout")
	testkit.Equal(t, texts(b.log(), Stderr), "to stderr", "stderr")

	all, _, err := Tail(t.Context(), b.path("log"), new(int64(-1)), MaxTail, 0)
	testkit.True(t, err == nil && strings.HasPrefix(texts(all, System),
		fmt.Sprintf("started %s as process %d|", s.Command[0], p.pid())), "deepwork's own: %s", texts(all, System))

	for _, file := range []string{specFile, startedFile, exitFile} {
		testkit.Equal(t, testkit.Get(os.Stat(filepath.Join(s.Dir, file))).Must(t).Mode().Perm(), 0o600, "%s", file)
	}

	// A later caller finds the same.
	again := testkit.Get(testRunner().Find(t.Context(), s.Dir)).Must(t)
	testkit.Equal(t, again.pid(), p.pid(), "found")

	for what, got := range map[string]Exit{
		"found":                 b.wait(again),
		"started again":         b.run(s),
		"stopped after its end": b.stop(again, 0),
	} {
		testkit.Equal(t, got, e, "%s", what)
	}
	testkit.Equal(t, b.ran(), 1, "agents ran")
}

func TestSurroundings(t *testing.T) {
	b := newBench(t)
	s := b.spec("1", "tell")
	s.Env = append(s.Env, "TELL=it")
	s.Command = append(s.Command, "a b", "--c")
	b.run(s)
	var got map[string]any
	must(t, json.Unmarshal([]byte(texts(b.log(), Stdout)), &got))
	testkit.Same(t, got, map[string]any{
		"dir":  s.Work,
		"pwd":  s.Work,
		"tell": "it",
		"shim": "",
		"args": []any{"a b", "--c"},
	})
}

func TestExits(t *testing.T) {
	b := newBench(t)
	e := b.run(b.spec("1", "exit:3"))
	testkit.True(t, e.Code == 3 && e.FinalMessage == "done", "%+v", e)

	dies := b.spec("2", "")
	dies.Command = []string{"sh", "-c", "kill -SEGV $$"}
	e = b.run(dies)
	testkit.Equal(t, e.Code, -1)
	testkit.Equal(t, e.Signal, "SIGSEGV")
	testkit.True(t, !e.Interrupted, "%+v", e)
	testkit.True(t, !e.Stopped, "%+v", e)

	s := b.spec("3", "noread")
	s.Stdin = bytes.Repeat([]byte("x"), 1<<20)
	e = b.run(s)
	testkit.True(t, e.Code == 0 && e.Signal == "", "%+v", e)

	p := b.start(b.spec("4", "hang"))
	v := b.next()
	must(t, syscall.Kill(v.PID, syscall.SIGKILL))
	e = b.wait(p)
	testkit.Equal(t, e.Code, -1, "killed: %+v", e)
	testkit.Equal(t, e.Signal, "SIGKILL", "killed: %+v", e)
	testkit.True(t, !e.Interrupted, "killed: %+v", e)
}

func TestNotStarted(t *testing.T) {
	b := newBench(t)
	script := b.path("work/script")
	must(t, errors.Join(os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700),
		os.WriteFile(b.path("work/plain"), []byte("x"), 0o600)))
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
		testkit.Contains(t, e.NotStarted, c.want)
		testkit.Equal(t, p.pid(), 0)
		testkit.Equal(t, e.Code, -1)
		testkit.True(t, !e.Interrupted, "%d: %+v", i, e)
	}
	testkit.Equal(t, b.ran(), 0, "an agent ran")

	// The program is looked up in the PATH that the agent is given.
	must(t, errors.Join(os.MkdirAll(b.path("bin"), 0o700),
		os.WriteFile(b.path("bin/my-agent"), []byte("#!/bin/sh\necho mine\n"), 0o700)))
	s := b.spec("path", "echo")
	s.Command, s.Env = []string{"my-agent"}, append(s.Env, "PATH="+b.path("bin")+":/bin:/usr/bin")
	testkit.Equal(t, b.run(s).FinalMessage, "mine")
}

func TestStartRefuses(t *testing.T) {
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
	testkit.True(t, b.run(s).Code == 0 && b.ran() == 1, "%d ran", b.ran())
}

func TestFindNothing(t *testing.T) {
	b := newBench(t)
	r := testRunner()
	testkit.FailsWith(t, testkit.Get(r.Find(t.Context(), b.path("none"))).Err(), ErrNoRun, "no folder")
	testkit.Equal(t, exists(b.dir, "none"), false)

	// A server was killed before its shim came up: who looks first makes sure that a late shim does nothing.
	s := b.spec("1", "echo")
	must(t, putSpec(t.Context(), s))
	testkit.FailsWith(t, testkit.Get(r.Find(t.Context(), s.Dir)).Err(), ErrNoRun, "a spec alone")

	out, err := exec.Command(r.Shim[0], r.Shim[1], s.Dir).CombinedOutput()
	testkit.Need(t, err == nil, "a late shim: %v %s, %d ran", err, out, b.ran())
	testkit.Equal(t, string(out), "\x00", "a late shim: %v %s, %d ran", err, out, b.ran())
	testkit.True(t, !exists(s.Dir, startedFile), "a late shim: %v %s, %d ran", err, out, b.ran())
	testkit.Equal(t, b.ran(), 0, "a late shim: %v %s, %d ran", err, out, b.ran())

	// Start after that begins it.
	must(t, putSpec(t.Context(), s))
	testkit.True(t, b.run(s).Code == 0 && b.ran() == 1, "%d ran", b.ran())
}

// The agent of a folder runs once, however often it is started.
func TestStartTwice(t *testing.T) {
	b := newBench(t)
	s := b.spec("1", "hang")
	var wg sync.WaitGroup
	pids := make([]int, 6)
	for i := range pids {
		wg.Go(func() { pids[i] = testkit.Get(testRunner().Start(t.Context(), s)).Must(t).pid() })
	}

	v := b.next()
	wg.Wait()
	testkit.Same(t, pids, slices.Repeat([]int{v.PID}, 6))

	e := b.stop(testkit.Get(testRunner().Find(t.Context(), s.Dir)).Must(t), time.Minute)
	testkit.True(t, e.Stopped && e.Signal == "SIGTERM", "%+v", e)
	testkit.Equal(t, b.ran(), 1, "agents ran")
}

func TestWaitEndsWithContext(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "hang"))
	b.next()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Wait(ctx)
		done <- err
	}()
	cancel()
	testkit.FailsWith(t, <-done, context.Canceled)

	_, err := testRunner().Start(ctx, b.spec("2", "hang"))
	testkit.True(t, errors.Is(err, context.Canceled) && b.ran() == 1, "%v, %d ran", err, b.ran())
	_, err = p.Stop(ctx, 0)
	testkit.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err) // it may have ended at once
	testkit.True(t, b.wait(p).Stopped, "the request is gone")
}

// A run ends no sooner than it began, also where the clock was set back meanwhile;
// otherwise the clock counts, which goes on while the machine sleeps.
func TestEndOf(t *testing.T) {
	began := time.Now()
	testkit.Equal(t, endOf(began, began.Add(time.Second)).Sub(began.Round(0)), time.Second,
		"of one that began at %v", began)
	// Read back from its record it has no monotonic part.
	early := began.Round(0).Add(time.Hour)
	got := endOf(early, began)
	testkit.True(t, got.Equal(early), "the clock was set back by an hour: %v, and it began at %v", got, early)
}

func (b *bench) stop(p *Process, grace time.Duration) Exit {
	b.t.Helper()
	return testkit.Get(p.Stop(b.t.Context(), grace)).Must(b.t)
}

func TestStop(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "obedient"))
	b.next()
	e := b.stop(p, time.Minute)
	testkit.True(t, e.Stopped, "obedient: %+v", e)
	testkit.Equal(t, e.Code, 0, "obedient: %+v", e)
	testkit.Equal(t, e.Signal, "", "obedient: %+v", e)
	testkit.Equal(t, e.FinalMessage, "tidied up", "obedient: %+v", e)
	testkit.True(t, !e.Interrupted, "obedient: %+v", e)

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
	testkit.True(t, e.Stopped, "family: %+v", e)
	testkit.Equal(t, e.Signal, "SIGTERM", "family: %+v", e)
	testkit.Equal(t, e.FinalMessage, "the child tidied up", "family: %+v", e)

	v.Gone()
	child.Gone()

	// No grace at all; and it is stopped by one that has found it.
	// Of several stops the least patient counts, whichever comes first.
	p = b.start(b.spec("4", "stubborn"))
	b.next()
	b.next()
	found := testkit.Get(testRunner().Find(t.Context(), b.path("4"))).Must(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		e, err := p.Stop(t.Context(), time.Hour)
		testkit.True(t, err == nil && e.Stopped, "%+v, %v", e, err)
	})
	e = b.stop(found, 0)
	testkit.True(t, e.Stopped && e.Signal == "SIGKILL", "no grace: %+v", e)
	wg.Wait()

	// One that is to stop does not begin.
	ran, s := b.ran(), b.spec("5", "hang")
	must(t, errors.Join(os.MkdirAll(s.Dir, 0o700), requestStop(s.Dir, 0)))
	e = b.run(s)
	testkit.True(t, e.Stopped, "%+v, %d ran", e, b.ran())
	testkit.True(t, e.NotStarted != "", "%+v, %d ran", e, b.ran())
	testkit.Equal(t, b.ran(), ran, "%+v, %d ran", e, b.ran())
}

// Shims do not die of what terminals and people send to everybody.
func TestShimSurvivesSignals(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "hang"))
	v := b.next()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXFSZ} {
		must(t, syscall.Kill(p.started.ShimPID, s))
	}
	testkit.Equal(t, testkit.Get(unix.Getsid(p.started.ShimPID)).Must(t), p.started.ShimPID, "the shim's session")
	must(t, syscall.Kill(v.PID, syscall.SIGTERM))
	e := b.wait(p)
	testkit.Equal(t, e.Signal, "SIGTERM")
	testkit.True(t, !e.Stopped, "%+v", e)
	testkit.True(t, !e.Interrupted, "%+v", e)
}

// What an agent leaves behind ends with it, whatever session it has moved to.
func TestOrphans(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "orphans"))
	inGroup, away := b.next(), b.next()
	e := b.wait(p)
	testkit.Equal(t, e.Code, 0)
	testkit.Equal(t, e.FinalMessage, "done")
	testkit.True(t, (!e.Left || runtime.GOOS != "linux"), "%+v", e)

	inGroup.Gone()
	if runtime.GOOS == "linux" {
		away.Gone()
	} else {
		syscall.Kill(away.PID, syscall.SIGKILL)
	}
}

// A log has each byte that an agent wrote.
func TestField13_EachByteIsKept(t *testing.T) {
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
		entries, _ := tailed(t, s.Log, new(int64(-1)), 1000)
		for _, e := range entries {
			if e.Stream == Stdout {
				got.Write(e.Bytes())
			}
		}
		testkit.True(t, strings.HasSuffix(got.String(), "reading\n"+text), "%s: got %d bytes, want %d: %.80q", name,
			got.Len(), len(text), got.String())
	}
}

// A shim that is killed takes its agent with it, or the process that notices does, and
// what is in its group; the run is interrupted, for everybody.
func TestShimKilled(t *testing.T) {
	b := newBench(t)
	p := b.start(b.spec("1", "family"))
	inGroup := b.next()
	away := b.next()
	v := b.next()
	var wg sync.WaitGroup
	exits := make([]Exit, 4)
	for i := range exits {
		wg.Go(func() { exits[i] = b.wait(p) })
	}
	must(t, syscall.Kill(p.started.ShimPID, syscall.SIGKILL))
	wg.Wait()
	for _, e := range exits {
		testkit.True(t, e.Interrupted, "%+v", e)
		testkit.Equal(t, e.Code, -1)
		testkit.True(t, !e.Stopped, "%+v", e)
		testkit.Equal(t, e, exits[0])
	}

	v.Gone()
	inGroup.Gone()
	syscall.Kill(away.PID, syscall.SIGKILL) // it has left the group, and nothing else ends it
	found := testkit.Get(testRunner().Find(t.Context(), b.path("1"))).Must(t)
	testkit.Equal(t, b.wait(found), exits[0], "found")
	testkit.Equal(t, b.run(b.spec("1", "hang")), exits[0], "started again")
	testkit.Equal(t, b.ran(), 1, "agents ran")

	entries, _ := tailed(t, b.path("log"), nil, 1)
	testkit.Need(t, len(entries) == 1, "the log ends with %v", entries)
	testkit.Equal(t, entries[0].Stream, System, "the log ends with %v", entries)
	testkit.Contains(t, entries[0].Text, "cut short", "the log ends with %v", entries)
}

// Numbers of processes from before a restart of the system, or that have passed to others, are touched by nobody.
func TestForeignProcessesAreLeftAlone(t *testing.T) {
	b := newBench(t)
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, other.Start())
	defer func() {
		other.Process.Kill()
		other.Wait()
	}()
	start := process.StartOf(other.Process.Pid)
	for i, r := range []startedRecord{
		{PID: other.Process.Pid, Start: start, ShimPID: other.Process.Pid, Boot: "another"},
		{PID: other.Process.Pid, Start: "1", ShimPID: os.Getpid(), Boot: process.Boot()},
		{Boot: process.Boot(), StartedAt: time.Now()}, // it was about to be started, and nothing more is known
	} {
		s := b.spec(fmt.Sprint(i), "echo")
		must(t, errors.Join(putSpec(t.Context(), s), writeJSON(s.Dir, startedFile, &r)))
		testkit.True(t, b.run(s).Interrupted && b.ran() == 0, "%d: it is not interrupted, or %d ran", i, b.ran())
		testkit.Works(t, other.Process.Signal(syscall.Signal(0)), "%d: the stranger was ended", i)
	}
}

// serverOf is the command of a server that starts a run.
func serverOf(t *testing.T, s Spec) *exec.Cmd {
	server := exec.Command(s.Command[0])
	server.Env = append(os.Environ(), modeEnv+"=server",
		"RUNNER_TEST_SPEC="+string(testkit.Get(json.Marshal(s)).Must(t)))
	return server
}

// A server that is killed is missed by nobody: the run goes on, and another server stops it.
func TestServerKilled(t *testing.T) {
	b := newBench(t)
	s := b.spec("1", "obedient")
	server := serverOf(t, s)
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := testkit.Get(server.StdoutPipe()).Must(t)
	must(t, server.Start())
	line := make([]byte, 100)
	n, err := out.Read(line)
	testkit.Equal(t, string(line[:n]), "true <nil>\n", "the server says %q, %v", line[:n], err)

	v := b.next()
	must(t, syscall.Kill(-server.Process.Pid, syscall.SIGKILL)) // its whole group
	server.Wait()
	p := testkit.Get(testRunner().Find(t.Context(), s.Dir)).Must(t)
	testkit.Equal(t, p.pid(), v.PID, "the process that was found")

	e := b.stop(p, time.Minute)
	testkit.True(t, e.Stopped && e.FinalMessage == "tidied up", "%+v", e)
}

// Servers that are killed at any moment of a start leave a folder that is safe to start again: one agent runs.
func TestServerKilledWhileStarting(t *testing.T) {
	b := newBench(t)
	for i := range 12 {
		s := b.spec(fmt.Sprint(i), "hang")
		s.Env = append(s.Env, testkit.HubEnv+"=")
		server := serverOf(t, s)
		must(t, server.Start())
		for began := time.Now(); time.Since(began) < time.Duration(i)*3*time.Millisecond; {
			runtime.Gosched() // the moment is what is tested
		}
		server.Process.Kill()
		server.Wait()
		p := b.start(s)
		e := b.stop(p, 0)
		testkit.True(t, e.Stopped, "%d: %+v", i, e)
		testkit.Equal(t, e.NotStarted, "")
		testkit.True(t, !e.Interrupted, "%d: %+v", i, e)
		// Stopped at once, the agent may not have come to leave its file.
		testkit.True(t, b.ran() <= 1, "%d: %d agents ran", i, b.ran())
		must(t, errors.Join(os.RemoveAll(b.path("ran")), os.Mkdir(b.path("ran"), 0o700)))
	}
}

// A run that an agent has begun is a run of its own, and outlives it.
func TestNestedRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere descendants that have left the group are not ended at all")
	}
	b := newBench(t)
	inner := b.spec("inner", "obedient")
	inner.Log = b.path("log2")
	outer := b.spec("outer", "nested")
	outer.Env = append(outer.Env, "RUNNER_TEST_SPEC="+string(testkit.Get(json.Marshal(inner)).Must(t)))
	p := b.start(outer)
	v := b.next()
	testkit.Equal(t, b.wait(p).Code, 0)

	found := testkit.Get(testRunner().Find(t.Context(), inner.Dir)).Must(t)
	testkit.Equal(t, found.pid(), v.PID, "found")
	e := b.stop(found, time.Minute)
	testkit.True(t, e.Stopped && !e.Interrupted, "%+v", e)
}
