package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
)

// The leader is killed: its agents end, and the step goes on with another.
func TestRunLeaderKilled(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, [b, c, d], e", "a", "b", "c", "d", "e"))
	p.plan(`b say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "b:1 touch said", "b:1 await never", "c:1 await said", "c:1 touch c", "c:1 await never", "d:1 await never", "* finish")
	r := p.begin()
	for _, step := range []string{"b", "c", "d"} {
		p.awaits(step, 1)
	}
	p.appears("c")
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	_, shim := processOf(p.recorded("begin", "d")[0].PID)
	must(t, syscall.Kill(shim, syscall.SIGKILL)) // with its shim, and so without a record of its end
	p.resume().exits(0)
	if got := strings.Fields(p.steps()); len(got) != 8 || got[7] != "e" {
		t.Error(got)
	}
	if b, c := p.recorded("begin", "b")[1], p.recorded("begin", "c")[1]; fmt.Sprint(b.Args) != "[resumed talk-b]" || len(c.Args) > 0 {
		t.Errorf("%+v\n%+v", b, c)
	}
	p.clean()
}

// An agent is killed with its shim: it is a try.
func TestRunShimKilled(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 1}\n", runJob("NAME", "a", "a"))
	p.plan("a:1 await never", "a:2 await never")
	r := p.begin()
	for n := range 2 {
		_, shim := processOf(p.awaits("a", n+1)[n].PID)
		must(t, syscall.Kill(shim, syscall.SIGKILL))
	}
	r.exits(1)
	p.clean()
	p.resume().exits(0)
}

func TestRunStoppedAndInterrupted(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b"))
	p.plan("b:1 await never", "b:2 await never")
	r := p.begin()
	p.awaits("b", 1)
	p.start("stop", "latest").exits(0)
	events := r.exits(1)
	if end := events[len(events)-1]; end.State != "stopped" {
		t.Errorf("%+v", end)
	}
	p.clean()
	r = p.resume()
	p.awaits("b", 2)
	must(t, r.cmd.Process.Signal(os.Interrupt))
	events = r.exits(130)
	if end := events[len(events)-1]; end.State != "interrupted" || p.status().State != "interrupted" {
		t.Errorf("%+v", end)
	}
	p.clean()
	p.resume().exits(0)
}

// A run whose leader is gone can be stopped: its agents end, and it can be resumed.
func TestRunStoppedWithoutALeader(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	p.plan("a:1 await never")
	r := p.begin()
	p.awaits("a", 1)
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	p.start("stop", "latest").exits(0)
	if now := p.status(); now.State != "stopped" || now.Reason == nil || *now.Reason != "It was stopped." || now.Steps[0].EndedAt == nil {
		t.Errorf("%+v", now)
	}
	if out, err := exec.CommandContext(t.Context(), "deepwork", "board", "--path", p.root).CombinedOutput(); err != nil || strings.Contains(string(out), "attempt_to_review") {
		t.Errorf("the person who stopped it is asked to look at it: %v\n%s", err, out)
	}
	p.clean()
	p.resume().exits(0)
	p.clean()
}

// Several processes resume a run that one leads: when that is gone, one of them does, with one agent.
func TestRunResumedBySeveral(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a", "b"))
	p.plan("a:1 await never", "a:2 await go", "a:2 finish")
	r := p.begin()
	p.awaits("a", 1)
	all := []*runProcess{p.resume(), p.resume()}
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	all = append(all, p.resume())
	p.awaits("a", 2)
	p.touch("go")
	for _, each := range all {
		each.exits(0)
	}
	if got := p.steps(); got != "a a b" {
		t.Error(got)
	}
	p.clean()
}

// A server of the project leads a run on whose process is gone.
func TestRunTakenOverByAServer(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a", "b"))
	p.plan("a:1 await never")
	r := p.begin()
	p.awaits("a", 1)
	startClient(t, p.root)
	startClient(t, p.root)
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	testkit.Eventually(t, func() string {
		if now := p.status(); now.State != "complete" {
			return now.State + " " + optional(now.Reason)
		}
		return ""
	})
	if got := p.steps(); got != "a a b" {
		t.Error(got)
	}
}

// Nobody reads what a run prints, and then its terminal is closed: no agent goes on without a leader.
func TestRunWithoutATerminal(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b"))
	p.plan("a await go", "a finish", "b:1 await never")
	read, write, err := os.Pipe()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "deepwork", "run", "job0/w", "--goal", "Do it", "--executor", "STEPPER", "--json", "--path", p.root)
	cmd.Stdout = write
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // also of a test that nohup has started, whose processes would ignore it
	err = cmd.Start()
	signal.Stop(hangup)
	must(t, err)
	must(t, write.Close())
	p.awaits("a", 1)
	must(t, read.Close())
	p.touch("go")
	p.awaits("b", 1)
	must(t, cmd.Process.Signal(syscall.SIGHUP))
	if err := cmd.Wait(); err == nil {
		t.Error("it ended well")
	}
	if s := p.status(); s.State != "interrupted" {
		t.Errorf("%+v", s)
	}
	p.clean()
	p.resume().exits(0)
	p.clean()
}
