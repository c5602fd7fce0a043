package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

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
	var last answer
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(*agentTime + time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not %s; agents: %s; last answer: %s", what, agents(), last.text)
			}
		}
	}
	serve()
	attempt := a.launch(t, m.current(), fmt.Sprintf("%s long %d 0 true", orderPrefix, int(agentTime.Seconds())))
	until("started", func() bool { return strings.Contains(agents(), "start long") })

	rest(t, *agentTime/5)
	serve()
	rest(t, *agentTime/5)
	m.proxy.Refuse(true)
	away := time.Now()
	for refused := 0; refused < 2; {
		got := a.exchange(ctx, m.current(), "get_attempt", map[string]any{"attempt_id": attempt})
		testkit.Need(t, got.code == "store_unavailable" || got.kind == lost, "while the database is away: code %q: %s", got.code, got.text)
		if got.code == "store_unavailable" {
			if refused++; refused == 1 {
				serve()
			}
		}
	}
	rest(t, *agentTime/10-time.Since(away))
	m.proxy.Refuse(false)

	until("ended", func() bool {
		last = a.exchange(ctx, m.current(), "get_attempt", map[string]any{"attempt_id": attempt})
		return strings.Contains(last.text, `"state":"completed"`) || strings.Contains(last.text, `"state":"failed"`)
	})
	ended := last.text
	if log := agents(); strings.Count(log, "start long") != 1 || strings.Count(log, "end long") != 1 ||
		!strings.Contains(ended, `"state":"completed"`) || strings.Count(ended, `"execution_id"`) != 1 {
		t.Errorf("the agents: %s\nthe attempt: %s", log, ended)
	}
	if f.history.check(); len(f.history.faults) > 0 {
		t.Error(f.history.found())
	}
}

// launch starts an agent on a new task at a server, and returns the attempt.
func (a *agent) launch(t testing.TB, p *process, prompt string) (attempt string) {
	t.Helper()
	call := func(tool string, args map[string]any) (r struct {
		Projects []struct {
			ID string `json:"project_id"`
		}
		Repos []struct {
			ID string `json:"repo_id"`
		}
		Task    string `json:"task_id"`
		Attempt string `json:"attempt_id"`
	}) {
		t.Helper()
		if got := a.exchange(t.Context(), p, tool, args); !a.reads(got, &r) {
			t.Fatalf("%s: %s", tool, got.text)
		}
		return r
	}
	project := call("list_projects", nil).Projects[0].ID
	task := call("create_task", map[string]any{"project_id": project, "title": "An agent"}).Task
	repo := call("list_repos", map[string]any{"project_id": project}).Repos[0].ID
	return call("start_task_attempt", map[string]any{"task_id": task, "executor": "SIM", "prompt": prompt,
		"repos": []map[string]any{{"repo_id": repo, "target_branch": "main"}}}).Attempt
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
					return strings.Contains(a.exchange(b.Context(), leader.current(), "get_attempt", map[string]any{"attempt_id": attempt}).text, `"state":"stopped"`)
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
