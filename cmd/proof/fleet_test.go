package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

var fleetTime = flag.Duration("fleet.time", 0,
	"how long the clients of TestMachines work; 0 skips it; from 15s on, TestBreaksAreNoticed and TestStandby run too")

// TestMachines has clients work at the servers of three machines with one database, with PgBouncer
// and without, while all of them fail, and checks every answer against a model.
func TestMachines(t *testing.T) {
	t.Parallel()
	if *fleetTime == 0 || runtime.GOOS == "windows" {
		t.Skip("-fleet.time=5s runs it, where processes can be suspended")
	}
	for name, pooler := range map[string]bool{"directly": false, "PgBouncer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t.TempDir(), seedOf(), *fleetTime, 24)
			f.pooler, f.plain = pooler, true
			pgtest.Need(t, f.simulate(t.Context()))
			t.Log(f)
			_, what := f.history.found()
			testkit.Equal(t, what, "", "%s\nTo repeat it (timing may differ, so perhaps more than once):\n\ngo run "+
				"./cmd/proof sim -seed %d -duration %v -plain -pooler=%t", what, f.seed, f.length, pooler)
			testkit.Need(t, len(f.history.sessions) > 0,
				"%s\nTo repeat it (timing may differ, so perhaps more than once):\n\ngo run ./cmd/proof sim -seed %d "+
					"-duration %v -plain -pooler=%t", what, f.seed, f.length, pooler)
			testkit.True(t, len(f.tasks) > 0,
				"%s\nTo repeat it (timing may differ, so perhaps more than once):\n\ngo run ./cmd/proof sim -seed %d "+
					"-duration %v -plain -pooler=%t", what, f.seed, f.length, pooler)
		})
	}
}

// Each check that keeps machines from overwriting each other is needed: a program without it answers or
// stores something wrong when just the fault that it is for occurs, and the model notices. A program with all
// checks stands the same faults.
func TestBreaksAreNoticed(t *testing.T) {
	if *fleetTime < 15*time.Second || runtime.GOOS == "windows" {
		t.Skip("it takes half a minute: -fleet.time=15s runs it")
	}
	breaks := map[string]func(*fleet, *testing.T){ // see faults.go of packages postgres and record
		"revision": (*fleet).writeLate, "request": (*fleet).startTwice, "reread": (*fleet).loseReply,
		"look": (*fleet).readAfter,
	}
	struck := func(t *testing.T, broken string, strikes ...func(*fleet, *testing.T)) string {
		f := newFleet(t.TempDir(), *simSeed, 0, 0)
		f.count = 2
		f.broken = broken
		f.lose = 0
		f.strict = true
		defer func() { testkit.Must(t, f.close()) }()
		pgtest.Need(t, f.layOut(t.Context()))
		for _, strike := range strikes {
			for _, m := range f.machines {
				if m.current() == nil {
					testkit.Must(t, f.serve(t.Context(), m, 0))
				}
			}
			strike(f, t)
		}
		for _, p := range f.running() {
			f.kill(p)
		}
		testkit.Must(t, f.judge(t.Context()))
		t.Log(f)
		_, what := f.history.found()
		return strings.TrimSpace(what)
	}
	testkit.Equal(t, struck(t, "", (*fleet).writeLate, (*fleet).startTwice, (*fleet).loseReply, (*fleet).readAfter), "")

	for check, strike := range breaks {
		t.Run(check, func(t *testing.T) {
			what := ""
			for try := 0; try < 5 && what == ""; try++ { // on a busy machine, a fault may come too early or too late
				what = struck(t, check, strike)
			}
			testkit.True(t, what != "", "nothing is wrong with a program that leaves out this check")
		})
	}
}

// begin begins a session at the first machine. a is its client there, and b one at the second machine.
func (f *fleet) begin(t *testing.T) (a, b *agent, id string) {
	t.Helper()
	a = f.agent(2 * len(f.history.sessions))
	begun := a.perform(t.Context(),
		input{Tool: "start_workflow", Job: jobName(0), Workflow: "chain", Goal: a.token("goal "), Request: a.request()})
	testkit.Need(t, begun.kind == given, "starting a session: %s", begun.text)
	return a, f.agent(a.number + 1), begun.reply.Begin.Session
}

func (a *agent) finishing(id, step string) input {
	return input{Tool: "finished_step", Session: id, Step: step, Outputs: a.outputs()}
}

// moves reports whether a client's message moves or begins a session.
func moves(m pgtest.Message) bool {
	return !m.FromServer && bytes.Contains(m.Body, []byte("move_session"))
}

// caughtBy makes a call while the first machine's next transition is held back for a second, and returns when
// that is so. answered is closed once the call has been answered.
func (f *fleet) caughtBy(call func()) (answered chan struct{}) {
	caught := f.machines[0].proxy.HoldAt(moves, time.Second)
	answered = make(chan struct{})
	go func() {
		defer close(answered)
		call()
	}()
	select {
	case <-caught:
	case <-answered:
	}

	return answered
}

// writeLate holds a transition back until another machine has moved the session: it must not replace what that
// one has acknowledged.
func (f *fleet) writeLate(t *testing.T) {
	a, b, id := f.begin(t)
	answered := f.caughtBy(func() { a.perform(t.Context(), a.finishing(id, "s0")) })
	for _, step := range []string{"s0", "s1"} {
		b.perform(t.Context(), b.finishing(id, step))
	}
	<-answered
	b.perform(t.Context(), input{Tool: "get_step", Session: id})
}

// startTwice makes the call that begins a session at a second machine, while that of the first one is held back.
func (f *fleet) startTwice(t *testing.T) {
	a, b, _ := f.begin(t)
	in := input{
		Tool:     "start_workflow",
		Job:      jobName(0),
		Workflow: "chain",
		Goal:     a.token("goal "),
		Request:  a.request(),
	}

	var first answer
	answered := f.caughtBy(func() {
		first = a.exchange(t.Context(), f.machines[0].current(), in.Tool, in.arguments())
		first.read(in)
	})
	second := b.perform(t.Context(), in)
	<-answered
	if first.kind != given || second.kind != given || first.reply.Begin.Session != second.reply.Begin.Session {
		f.history.fault("a repetition with another reply", "%s got %q, and again %q", in, first.text, second.text)
	}
}

// loseReply loses the reply to the commit of a write.
func (f *fleet) loseReply(t *testing.T) {
	a, _, id := f.begin(t)
	sent := false
	caught := f.machines[0].proxy.CutAt(func(m pgtest.Message) bool {
		sent = sent || moves(m)
		return sent && m.Commits
	})
	a.perform(t.Context(), a.finishing(id, "s0"))
	testkit.Need(t, happens(t.Context(), caught), "no reply was lost")
	a.perform(t.Context(), input{Tool: "get_step", Session: id})
}

// readAfter reads a session at a second machine, which has it in memory, after the first one has moved it.
func (f *fleet) readAfter(t *testing.T) {
	a, b, id := f.begin(t)
	read := input{Tool: "get_step", Session: id}
	b.perform(t.Context(), read)
	a.perform(t.Context(), a.finishing(id, "s0"))
	b.perform(t.Context(), read)
}

// A server is killed: another machine's finishes the next step of its session at once.
func TestFailover(t *testing.T) {
	t.Parallel()
	f := newFleet(t.TempDir(), 1, 0, 1)
	f.count, f.lose, f.strict = 2, 0, true
	t.Cleanup(func() { testkit.Must(t, f.close()) })
	pgtest.Need(t, f.layOut(t.Context()))
	for _, m := range f.machines {
		testkit.Must(t, f.serve(t.Context(), m, 0))
	}
	a, _, id := f.begin(t)
	testkit.Must(t, f.machines[0].current().kill())
	killed := time.Now()
	a.home = f.machines[1].server
	next := a.perform(t.Context(),
		input{Tool: "finished_step", Session: id, Outputs: a.outputs(), Request: a.request()})
	testkit.Need(t, next.kind == given && !isRefusal(next.said), "%+v", next)

	t.Logf("another server has answered after %v", time.Since(killed))
	f.history.check()
	_, what := f.history.found()
	testkit.Equal(t, what, "")
}

// The database's server crashes in the middle of calls, and its synchronous standby takes its place: nothing
// acknowledged is lost, and what was not is seen whole or not at all.
func TestStandby(t *testing.T) {
	if *fleetTime < 15*time.Second {
		t.Skip("it takes half a minute: -fleet.time=15s runs it")
	}
	ctx := t.Context()
	f := newFleet(t.TempDir(), *simSeed, 0, 12)
	f.count = 2
	t.Cleanup(func() { testkit.Must(t, f.close()) })
	pgtest.Need(t, f.layOut(ctx))
	for _, m := range f.machines {
		testkit.Must(t, f.serve(ctx, m, 0))
	}
	testkit.Must(t, f.db.Follow())
	working, done := context.WithCancel(ctx)
	defer done()
	var all sync.WaitGroup
	f.rove(working, &all, 1)
	f.keepBoard(working, &all, true)
	calls := func(more int) {
		for begun, enough := f.answered(), false; !enough; enough = f.answered() > begun+more {
			time.Sleep(10 * time.Millisecond)
		}
	}
	calls(300)
	testkit.Must(t, f.db.FailOver())
	calls(300)
	done()
	all.Wait()
	testkit.Must(t, f.end(ctx))
	_, what := f.history.found()
	testkit.Equal(t, what, "")
	testkit.Need(t, len(f.history.sessions) > 0, "%s: %s", f, what)
	testkit.True(t, len(f.tasks) > 0, "%s: %s", f, what)
}

// answered is how many calls had an answer.
func (f *fleet) answered() (n int) {
	f.history.with(func() { n = f.history.calls - f.history.lost - f.history.refused })
	return n
}

var agentTime = flag.Duration("agent.time", 0, "how long the agent of TestAnAgentOutlivesServers works; 0 skips it")

// An agent works while its server is killed twice, and the database is away for a tenth of the time, in which
// the second kill and start are. It is not ended, not repeated and not started twice; calls meanwhile are
// answered with store_unavailable, and how it ended is recorded.
func TestAnAgentOutlivesServers(t *testing.T) {
	if *agentTime == 0 {
		t.Skip("-agent.time=10s runs it")
	}
	ctx := t.Context()
	f := newFleet(t.TempDir(), 1, 0, 1)
	f.count = 1
	t.Cleanup(func() { testkit.Must(t, f.close()) })
	pgtest.Need(t, f.layOut(ctx))
	m := f.machines[0]
	serve := func() {
		t.Helper()
		if p := m.current(); p != nil {
			testkit.Must(t, p.kill())
		}
		testkit.Must(t, f.serve(ctx, m, 0))
	}
	a := f.agent(0)
	a.lose = 0
	agents := func() string {
		text, _ := os.ReadFile(f.agentLog())
		return string(text)
	}
	serve()
	attempt := a.launch(t, m.current(), fmt.Sprintf("%s long %d 0 true", orderPrefix, int(agentTime.Seconds())))
	testkit.Until(t, "started", func() bool { return strings.Contains(agents(), "start long") })
	rest(t, *agentTime/5)
	serve()
	rest(t, *agentTime/5)
	m.proxy.Refuse(true)
	away := time.Now()
	for refused := 0; refused < 2; {
		got := a.exchange(ctx, m.current(), "get_attempt", map[string]any{"attempt_id": attempt})
		testkit.Need(t, got.code == "store_unavailable" || got.kind == lost, "while the database is away: code %q: %s",
			got.code, got.text)
		if got.code == "store_unavailable" {
			refused++
			if refused == 1 {
				serve()
			}
		}
	}
	rest(t, *agentTime/10-time.Since(away))
	m.proxy.Refuse(false)
	rest(t, *agentTime*3/5)
	ended := ""
	testkit.Until(t, "ended", func() bool {
		ended = a.exchange(ctx, m.current(), "get_attempt", map[string]any{"attempt_id": attempt}).text
		return strings.Contains(ended, `"state":"completed"`) || strings.Contains(ended, `"state":"failed"`)
	})

	log := agents()
	testkit.True(t, strings.Count(log, "start long") == 1 && strings.Count(log, "end long") == 1, "the agents: %s", log)
	testkit.True(t, strings.Contains(ended, `"state":"completed"`) && strings.Count(ended, `"execution_id"`) == 1,
		"the attempt: %s", ended)

	f.history.check()
	_, what := f.history.found()
	testkit.Equal(t, what, "")
}

// launch starts an agent on a new task at a server, and returns the attempt.
func (a *agent) launch(t testing.TB, p *process, prompt string) (attempt string) {
	t.Helper()
	made := func(id, tool string, args map[string]any) string {
		t.Helper()
		got := a.exchange(t.Context(), p, tool, args)
		found := regexp.MustCompile(`"` + id + `":"([^"]+)"`).FindStringSubmatch(got.text)
		testkit.Need(t, found != nil, "%s: %s", tool, got.text)
		return found[1]
	}
	project := made("project_id", "list_projects", nil)
	task := made("task_id", "create_task", map[string]any{"project_id": project, "title": "An agent"})
	repo := made("repo_id", "list_repos", map[string]any{"project_id": project})
	return made("attempt_id", "start_task_attempt", map[string]any{"task_id": task, "executor": "SIM", "prompt": prompt,
		"repos": []map[string]any{{"repo_id": repo, "target_branch": "main"}}})
}

// How long it takes to stop an agent by a call to another server than the one that leads it, in the same
// folder and on another machine. The bounds are 1 s and 5 s.
func BenchmarkStopElsewhere(b *testing.B) {
	f := newFleet(b.TempDir(), 1, 0, 1)
	f.count = 2
	b.Cleanup(func() { testkit.Must(b, f.close()) })
	pgtest.Need(b, f.layOut(b.Context()))
	leader := f.machines[0]
	beside := &machine{server: &server{number: 9, http: true, root: leader.root, env: leader.env}}
	testkit.Must(b, f.serve(b.Context(), leader, 0))
	a := f.agent(0)
	a.lose = 0
	for _, c := range []struct {
		name string
		at   *machine
	}{{"SameFolder", beside}, {"OtherMachine", f.machines[1]}} {
		b.Run(c.name, func(b *testing.B) {
			var stopping time.Duration
			for n := range b.N {
				attempt := a.launch(b, leader.current(), fmt.Sprintf("%s %s%d 1000 0 false", orderPrefix, c.name, n))
				testkit.Until(b, "started", func() bool {
					log, _ := os.ReadFile(f.agentLog())
					return strings.Contains(string(log), fmt.Sprintf("start %s%d", c.name, n))
				})

				if c.at.current() == nil {
					testkit.Must(b, f.serve(b.Context(), c.at, 0))
				}
				began := time.Now()
				a.exchange(b.Context(), c.at.current(), "stop_attempt", map[string]any{"attempt_id": attempt})
				testkit.Until(b, "stopped", func() bool {
					return strings.Contains(a.exchange(b.Context(), leader.current(), "get_attempt",
						map[string]any{"attempt_id": attempt}).text, `"state":"stopped"`)
				})
				stopping += time.Since(began)
			}
			b.ReportMetric(stopping.Seconds()/float64(b.N), "s/stop")
		})
	}
}

// rest waits for a part of the agent's time.
func rest(t *testing.T, d time.Duration) {
	within, done := context.WithTimeout(t.Context(), max(d, 0))
	defer done()
	<-within.Done()
}
