package main

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/state"
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
	got := strings.Fields(p.steps())
	testkit.True(t, len(got) == 8 && got[7] == "e", "%v", got)
	if b, c := p.recorded("begin", "b")[1], p.recorded("begin", "c")[1]; fmt.Sprint(b.Args) != "[resumed talk-b]" || len(c.Args) > 0 {
		t.Errorf("%+v\n%+v", b, c)
	}
	p.clean()
}

// The leader is killed after an agent has started a workflow and before the run knows that: the run does the
// workflow for the step that started it, here a member of a group, when it is resumed.
func TestRunLeaderKilledBeforeItRecordsAWorkflow(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "[a, b], c", "a", "b", "c"), runJob("NAME", "x", "x outputs: {}")).inGit()
	p.plan(`b:1 start {"job_name":"job1","workflow_name":"w","goal":"The inner one"}`, "b:1 touch started", "b:1 await never", "a:1 await never", "* finish")
	r := p.begin()
	p.awaits("a", 1)
	p.appears("started")
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	db, err := sql.Open("sqlite", state.Of(p.root).Database())
	must(t, err)
	defer db.Close()
	var children int
	must(t, db.QueryRow("SELECT count(*) FROM attempts WHERE json_extract(run, '$.children') IS NOT NULL").Scan(&children))
	if _, err = db.Exec("UPDATE attempts SET run = json_remove(run, '$.children')"); err != nil || children != 1 {
		t.Fatal(children, err)
	}
	p.resume().exits(0)
	begun := p.recorded("begin", "b")
	if len(begun) != 2 || !strings.Contains(begun[1].Prompt, "The workflow job1/w that you started") || len(p.recorded("begin", "x")) != 1 {
		t.Errorf("%s: %+v", p.steps(), begun)
	}
	got := p.steps()
	testkit.True(t, strings.HasSuffix(got, " c"), "%v", got)
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
	end := events[len(events)-1]
	testkit.True(t, end.State == "stopped", "%+v", end)
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
	now := p.status()
	testkit.True(t, now.State == "stopped" && now.Reason != nil && *now.Reason == "It was stopped." && now.Steps[0].EndedAt != nil, "%+v", now)
	out, err := exec.CommandContext(t.Context(), "deepwork", "board", "--path", p.root).CombinedOutput()
	testkit.True(t, err == nil && !strings.Contains(string(out), "attempt_to_review"), "the person who stopped it is asked to look at it: %v\n%s", err, out)
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
	testkit.Equal(t, p.steps(), "a a b")
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
		if now := p.status(); now.State != "completed" {
			return now.State.Words() + " " + optional(now.Reason)
		}
		return ""
	})
	testkit.Equal(t, p.steps(), "a a b")
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
	s := p.status()
	testkit.True(t, s.State == "interrupted", "%+v", s)
	p.clean()
	p.resume().exits(0)
	p.clean()
}
