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
		testkit.Need(t, got.code == "store_unavailable" || got.kind == lost, "while the database is away: code %q: %s", got.code, got.text)
		if got.code == "store_unavailable" {
			if refused++; refused == 1 {
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
	testkit.True(t, strings.Contains(ended, `"state":"completed"`) && strings.Count(ended, `"execution_id"`) == 1, "the attempt: %s", ended)
	if f.history.check(); len(f.history.faults) > 0 {
		t.Error(f.history.found())
	}
}

// launch starts an agent on a new task at a server, and returns the attempt.
func (a *agent) launch(t *testing.T, p *process, prompt string) (attempt string) {
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

// rest waits for a part of the agent's time.
func rest(t *testing.T, d time.Duration) {
	within, done := context.WithTimeout(t.Context(), max(d, 0))
	defer done()
	<-within.Done()
}
