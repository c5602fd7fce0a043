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
		if got := a.exchange(ctx, m.current(), tool, args); !a.reads(got, &r) {
			t.Fatalf("%s: %s", tool, got.text)
		}
		return r
	}
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
	project := call("list_projects", nil).Projects[0].ID
	task := call("create_task", map[string]any{"project_id": project, "title": "Long"}).Task
	attempt := call("start_task_attempt", map[string]any{
		"task_id": task, "executor": "SIM", "prompt": fmt.Sprintf("%s long %d 0 true", orderPrefix, int(agentTime.Seconds())),
		"repos": []map[string]any{{"repo_id": call("list_repos", map[string]any{"project_id": project}).Repos[0].ID, "target_branch": "main"}},
	}).Attempt
	until("started", func() bool { return strings.Contains(agents(), "start long") })

	rest(t, *agentTime/5)
	serve()
	rest(t, *agentTime/5)
	m.proxy.Refuse(true)
	away := time.Now()
	for refused := 0; refused < 2; {
		got := a.exchange(ctx, m.current(), "get_attempt", map[string]any{"attempt_id": attempt})
		if got.code != "store_unavailable" && got.kind != lost {
			t.Fatalf("while the database is away: code %q: %s", got.code, got.text)
		}
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

// rest waits for a part of the agent's time.
func rest(t *testing.T, d time.Duration) {
	within, done := context.WithTimeout(t.Context(), max(d, 0))
	defer done()
	<-within.Done()
}
