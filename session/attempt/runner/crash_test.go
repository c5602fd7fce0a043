//go:build unix

package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// A shim that is killed takes its agent with it, or the process that notices does, and
// what is in its group; the run is interrupted, for everybody.
func TestShimKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.start(b.spec("1", "family"))
	inGroup, away, v := b.next(), b.next(), b.next()
	var wg sync.WaitGroup
	exits := make([]Exit, 4)
	for i := range exits {
		wg.Go(func() { exits[i] = b.wait(p) })
	}
	must(t, syscall.Kill(p.started.ShimPID, syscall.SIGKILL))
	wg.Wait()
	for _, e := range exits {
		testkit.True(t, e.Interrupted && e.Code == -1 && !e.Stopped && e == exits[0], "%+v", e)
	}
	v.Gone()
	inGroup.Gone()
	syscall.Kill(away.PID, syscall.SIGKILL) // it has left the group, and nothing else ends it
	found := testkit.Get(testRunner().Find(t.Context(), b.path("1"))).Must(t)
	testkit.Equal(t, b.wait(found), exits[0], "found")
	if e := b.run(b.spec("1", "hang")); e != exits[0] || b.ran() != 1 {
		t.Errorf("started again: %+v, %d ran", e, b.ran())
	}
	entries, _, err := Tail(t.Context(), b.path("log"), nil, 1, 0)
	must(t, err)
	testkit.True(t, len(entries) == 1 && entries[0].Stream == System && strings.Contains(entries[0].Text, "cut short"), "the log ends with %v", entries)
}

// The folder says that the agent was about to be started, and nothing more.
func TestShimKilledInBetween(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.spec("1", "echo")
	must(t, putSpec(t.Context(), s))
	must(t, writeJSON(s.Dir, startedFile, &startedRecord{Boot: process.Boot(), StartedAt: time.Now()}))
	if e := b.run(s); !e.Interrupted || b.ran() != 0 {
		t.Errorf("%+v, %d ran", e, b.ran())
	}
}

// Numbers of processes from before a restart of the system, or that have passed
// to others, are touched by nobody.
func TestForeignProcessesAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, other.Start())
	defer func() { other.Process.Kill(); other.Wait() }()
	start := process.StartOf(other.Process.Pid)
	for i, r := range []startedRecord{
		{PID: other.Process.Pid, Start: start, ShimPID: other.Process.Pid, Boot: "another"},
		{PID: other.Process.Pid, Start: "1", ShimPID: os.Getpid(), Boot: process.Boot()},
	} {
		s := b.spec(fmt.Sprint(i), "echo")
		must(t, putSpec(t.Context(), s))
		must(t, writeJSON(s.Dir, startedFile, &r))
		e := b.run(s)
		testkit.True(t, e.Interrupted, "%+v", e)
		if err := other.Process.Signal(syscall.Signal(0)); err != nil {
			t.Fatalf("%d: the stranger was ended: %v", i, err)
		}
	}
}

// A server that is killed is missed by nobody: the run goes on, and another
// server stops it.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.spec("1", "obedient")
	text := testkit.Get(json.Marshal(s)).Must(t)
	server := exec.Command(s.Command[0])
	server.Env = append(os.Environ(), modeEnv+"=server", "RUNNER_TEST_SPEC="+string(text))
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

// Servers that are killed at any moment of a start leave a folder that is safe
// to start again: one agent runs.
func TestServerKilledWhileStarting(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 12 {
		s := b.spec(fmt.Sprint(i), "hang")
		s.Env = append(s.Env, testkit.HubEnv+"=")
		text := testkit.Get(json.Marshal(s)).Must(t)
		server := exec.Command(s.Command[0])
		server.Env = append(os.Environ(), modeEnv+"=server", "RUNNER_TEST_SPEC="+string(text))
		must(t, server.Start())
		for began := time.Now(); time.Since(began) < time.Duration(i)*3*time.Millisecond; {
			runtime.Gosched() // the moment is what is tested
		}
		server.Process.Kill()
		server.Wait()
		p := b.start(s)
		e := b.stop(p, 0)
		testkit.True(t, e.Stopped && e.NotStarted == "" && !e.Interrupted, "%d: %+v", i, e)
		// Stopped at once, the agent may not have come to leave its file.
		n := b.ran()
		testkit.True(t, n <= 1, "%d: %d agents ran", i, n)
		clearFolder(t, b.path("ran"))
	}
}

// A run that an agent has begun is a run of its own, and outlives it.
func TestNestedRun(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere descendants that have left the group are not ended at all")
	}
	b := newBench(t)
	inner := b.spec("inner", "obedient")
	inner.Log = b.path("log2")
	text := testkit.Get(json.Marshal(inner)).Must(t)
	outer := b.spec("outer", "nested")
	outer.Env = append(outer.Env, "RUNNER_TEST_SPEC="+string(text))
	p := b.start(outer)
	v := b.next()
	testkit.Equal(t, b.wait(p).Code, 0)
	found := testkit.Get(testRunner().Find(t.Context(), inner.Dir)).Must(t)
	testkit.Equal(t, found.pid(), v.PID, "found")
	e := b.stop(found, time.Minute)
	testkit.True(t, e.Stopped && !e.Interrupted, "%+v", e)
}

func clearFolder(t *testing.T, dir string) {
	names := testkit.Get(os.ReadDir(dir)).Must(t)
	for _, name := range names {
		must(t, os.Remove(filepath.Join(dir, name.Name())))
	}
}
