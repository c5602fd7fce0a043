package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/board"
	"deepwork/session/state"
)

// A limit of the provider is waited for, and is no try.
func TestRunWaitsForALimit(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	p.plan("a:1 warn rate limit reached, try again in 1 second", "a:1 exit 1")
	var ended runEvent
	for _, e := range p.begin().exits(0) {
		if e.Event == "step_ended" && e.Until != nil {
			ended = e
		}
	}
	if ended.Until == nil || len(p.recorded("begin", "a")) != 2 {
		t.Fatalf("%+v, %+v", ended, p.journal())
	}
	until, err := time.Parse(time.RFC3339Nano, *ended.Until)
	again := p.status().Steps[1].StartedAt
	if started, err2 := time.Parse(time.RFC3339Nano, optional(again)); err != nil || err2 != nil || started.Before(until) {
		t.Errorf("an agent was started at %s, and the limit was over at %s", optional(again), *ended.Until)
	}
	p.clean()
}

// A run that waits for a limit can be paused and interrupted, and waits on when it is resumed.
func TestRunEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	p.plan("a warn rate limit reached, try again in 2 hours", "a exit 1")
	r := p.begin()
	p.awaits("a", 1)
	testkit.Eventually(t, func() string {
		if now := p.status(); len(now.Steps) == 0 || now.Steps[0].LimitedUntil == nil {
			return fmt.Sprintf("%+v", now.Steps)
		}
		return ""
	})
	must(t, r.cmd.Process.Signal(os.Interrupt))
	r.exits(130)
	p.resume("--max-time", "1s").exits(3)
	testkit.Equal(t, p.steps(), "a", "the steps were begun as")
	p.clean()
}

// The limit that ended an agent whose leader was killed is waited for by the next leader.
func TestRunLeaderKilledBeforeALimit(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a", "a"))
	p.plan("a touch begun", "a await killed", "a warn rate limit reached, try again in 2 hours", "a exit 1")
	r := p.begin()
	p.appears("begun")
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	p.touch("killed")
	testkit.Until(t, "its end is recorded", func() bool {
		found, err := filepath.Glob(filepath.Join(state.Of(p.root).Logs(), "attempts", "*", "runs", "*", "exit.json"))
		return err == nil && len(found) == 1
	})
	p.resume("--max-time", "1s").exits(3)
	testkit.Equal(t, p.steps(), "a", "the steps were begun as")
	p.clean()
}

func TestRunBudgets(t *testing.T) {
	t.Parallel()
	result := `* say {"type":"result","subtype":"success","result":"done","session_id":"s","total_cost_usd":0.4,"num_turns":1}`
	job := runJob("NAME", "a, b, c", "a", "b", "c")
	paused := func(r *runProcess, reason string) {
		r.p.t.Helper()
		events := r.exits(3)
		end := events[len(events)-1]
		testkit.True(r.p.t, end.State == "paused" && end.Reason != nil && strings.Contains(*end.Reason, reason), "%+v", end)
	}
	t.Run("cost", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "", job)
		p.plan("* finish", result)
		paused(p.begin("--max-cost", "0.5"), "0.8 USD")
		testkit.Equal(t, p.steps(), "a b")
		paused(p.resume(), "0.8 USD") // it counts the whole run
		events := p.resume("--max-cost", "5").exits(0)
		cost := events[len(events)-1].CostUSD
		testkit.True(t, cost != nil && *cost >= 1.19 && *cost <= 1.21, "%+v", events[len(events)-1])
		p.clean()
	})
	t.Run("cost of an executor that reviews", func(t *testing.T) {
		t.Parallel()
		verdict := `{"type":"result","subtype":"success","result":"{\"passed\": true}","session_id":"r","total_cost_usd":0.4,"num_turns":1}`
		command := testkit.Get(json.Marshal([]string{"sh", "-c", `cat > /dev/null; printf '%s\n' "$0"`, verdict})).Must(t)
		reviews := " reviews: [{run_each: step, quality_criteria: {good: G}}]"
		p := newRunProject(t, fmt.Sprintf("  JUDGE: {command: %s}\nquality_gate: {reviewer_executor: JUDGE}\n", command),
			runJob("NAME", "a, b, c", "a"+reviews, "b"+reviews, "c"))
		paused(p.begin("--max-cost", "0.5"), "0.8 USD")
		if cost := p.status().Cost; p.steps() != "a b" || cost == nil || cost.Executions != 4 || cost.Unknown != 2 {
			t.Errorf("%s: %+v", p.steps(), cost)
		}
		p.resume("--max-cost", "5").exits(0)
		p.clean()
	})
	t.Run("beside another agent", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "", runJob("NAME", "[a, b], c", "a", "b", "c"))
		p.plan(`b say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "b touch b", "b:1 await never", "b finish", "a await b", "a finish", "a"+strings.TrimPrefix(result, "*"))
		paused(p.begin("--max-cost", "0.4"), "0.4 USD")
		for _, x := range p.status().Steps {
			testkit.True(t, x.State == map[string]board.State{"a": "completed", "b": "stopped"}[x.StepID], "%+v", x)
		}
		p.clean()
		p.resume("--max-cost", "5").exits(0)
		if b := p.recorded("begin", "b"); len(b) != 2 || fmt.Sprint(b[1].Args) != "[resumed talk-b]" || len(p.recorded("begin", "")) != 4 {
			t.Errorf("%s: %+v", p.steps(), b)
		}
		p.clean()
	})
	t.Run("of a run whose process is gone", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "", job)
		p.plan("* finish", result, "b:1 await never")
		r := p.begin()
		p.awaits("b", 1)
		refused := p.resume("--max-cost", "0.3")
		refused.exits(1) // it goes on with the budgets that it has
		testkit.True(t, strings.Contains(refused.err.String(), "Stop it with 'deepwork run stop'"), "%v", refused.err.String())
		must(t, r.cmd.Process.Kill())
		_ = r.cmd.Wait()
		paused(p.resume("--max-cost", "0.3"), "0.3 USD")
		testkit.Equal(t, p.steps(), "a b")
		p.clean()
	})
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "", job)
		paused(p.begin("--max-unknown", "1"), "cost is unknown")
		testkit.Equal(t, p.steps(), "a")
		p.resume("--max-unknown", "9").exits(0)
	})
	t.Run("of the board", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "attempts: {max_unknown: 1}\n", job)
		r := p.begin()
		p.awaits("a", 1)
		testkit.Eventually(t, func() string {
			if i := strings.Index(r.out.String(), `"event":"run_waiting"`); i < 0 || !strings.Contains(r.out.String()[i:], "attempts.max_unknown is 1") {
				return "it printed " + r.out.String()
			}
			return ""
		})
		now := p.status()
		testkit.True(t, now.State == "running" && strings.Contains(optional(now.Reason), "attempts.max_unknown is 1"), "%+v", now)
		must(t, r.cmd.Process.Signal(os.Interrupt))
		r.exits(130)
		testkit.Equal(t, p.steps(), "a", "the steps were begun as")
		r = p.resume() // nobody leads it before there is a budget
		testkit.Eventually(t, func() string {
			if !strings.Contains(r.out.String(), `"event":"run_waiting"`) {
				return "it printed " + r.out.String()
			}
			return ""
		})
		must(t, r.cmd.Process.Signal(os.Interrupt))
		r.exits(130)
		testkit.True(t, strings.Contains(r.err.String(), "waits for a process to lead it"), "%s", &r.err)
	})
	t.Run("time", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "", job)
		p.plan("a await resumed", "a finish") // it never ends before
		paused(p.begin("--max-time", "1s"), "time")
		p.clean()
		p.touch("resumed")
		p.resume("--max-time", "5m").exits(0)
		p.clean()
	})
}

// A limit without an end is shown by deepwork board, a failing test that speaks of one is a try.
func TestField01_LimitsThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	p.plan("a warn RESOURCE_EXHAUSTED: ask your admin", "a exit 1")
	r := p.begin()
	p.awaits("a", 1)
	testkit.Eventually(t, func() string {
		board := exec.CommandContext(t.Context(), "deepwork", "board", "--path", p.root)
		board.Env = append(os.Environ(), p.env...)
		if out := testkit.Get(board.CombinedOutput()).Must(t); !strings.Contains(string(out), "which does not say when it ends: after 1 of 10 tries") {
			return string(out)
		}
		return ""
	})
	must(t, r.cmd.Process.Signal(os.Interrupt))
	r.exits(130)
	p.plan("a warn api_test.go:12: got status 429 Too Many Requests, want 200", "a say 429 Too Many Requests", "a exit 1")
	p.resume().exits(1)
	p.clean()
}
