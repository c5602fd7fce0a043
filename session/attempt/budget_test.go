package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
)

// costs is the order to an agent to report a cost.
func costs(usd string) string {
	return `! say {"type":"result","subtype":"success","result":"done","total_cost_usd":` + usd + `,"num_turns":1,"modelUsage":{"m":{"inputTokens":1}}}`
}

func upTo(usd float64) func(*config.Config) {
	return func(c *config.Config) {
		c.Attempts.MaxCostUSD = &config.Limit{Max: usd, File: ".deepwork/config.yml"}
	}
}

// Once the executions have cost what they may, nothing starts: calls are refused, and what waits says
// why, until the limit is raised. What failed or was deleted counts.
func TestBudgetOfCosts(t *testing.T) {
	p := newProject(t)
	p.Configure(upTo(0.3))
	s := p.open()
	first := s.newTask(costs("0.1"))
	s.ends(s.begin(first).AttemptID)
	failed := s.newTask(costs("0.2"), "! exit 3")
	hold := filepath.Join(p.Root, "..", "hold")
	long := s.begin(s.newTask("! await "+hold, costs("0.05")))
	s.reaches(long.AttemptID, task.Running)
	send := FollowUpArgs{Target: the(long.AttemptID), Action: ActionQueue, Prompt: new(costs("0.01"))}
	testkit.Get(s.FollowUp(ctx, me, send)).Must(t)
	b := s.ends(s.begin(failed).AttemptID)
	testkit.Need(t, b.State == "failed", "%+v", b)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: first.TaskID})).Must(t)
	next := s.newTask("! say hello")
	start := s.starting(next)
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached", "cost 0.3 USD", "attempts.max_cost_usd is 0.3", "raise attempts.max_cost_usd in .deepwork/config.yml")
	for _, action := range []string{ActionSend, ActionQueue} {
		refused(t, testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(b.AttemptID), Action: action, Prompt: new("more")})).Err(), session.StateError, "budget_reached", "0.3 USD")
	}
	eve := session.Caller{Identity: "eve", Rights: session.RightAgents}
	own := testkit.Get(s.CreateTask(ctx, eve, board.CreateTaskArgs{ProjectID: next.ProjectID, Title: "x"})).Must(t)
	_, err := s.StartTaskAttempt(ctx, eve, StartArgs{TaskID: own.TaskID, Executor: "TEST", Repos: start.Repos})
	refused(t, err, session.StateError, "budget_reached", "attempts.max_cost_usd is 0.3")
	testkit.True(t, !strings.Contains(fmt.Sprint(err), "USD"), "it says the costs of others: %v", err)
	// What was queued before waits.
	must(t, os.WriteFile(hold, nil, 0o644))
	s.reaches(long.AttemptID, task.Waiting)
	testkit.Until(t, "the figures of metrics", func() bool {
		return s.Stats().Spent == task.Spent{Executions: 3, MicroUSD: 350_000, InputTokens: 3}
	})
	held := "Nothing that waits is started, since a budget of this project is reached: the executions that have ended cost 0.35 USD, and attempts.max_cost_usd is 0.3."
	for _, notice := range []*string{s.get(long.AttemptID).Notice, testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: long.TaskID})).Must(t).Notice} {
		testkit.Contains(t, deref(notice), held)
	}
	items := func() (all []board.Attention) {
		other := func(i board.Attention) bool { return i.Kind != board.AttentionBudget }
		return slices.DeleteFunc(testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items, other)
	}
	got := items()
	testkit.True(t, len(got) == 1 && got[0].ID == "attempts.max_cost_usd" && *got[0].Since == *b.EndedAt && got[0].Title == "Budget reached: 0.35 of 0.3 USD (attempts.max_cost_usd)", "%+v, since %s", got, *b.EndedAt)
	s.stop()
	s = p.open()
	start.RequestID = new("again")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached", "0.35 USD")
	p.Configure(upTo(0.355))
	testkit.Equal(t, s.ends(long.AttemptID).State, "completed")
	testkit.Equal(t, len(items()), 1)
	p.Configure(upTo(1))
	started := testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t)
	p.Configure(upTo(0))
	testkit.Equal(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t).AttemptID, started.AttemptID, "the repeated request")
	testkit.Equal(t, len(items()), 1, "a limit of 0 is not reached")
	p.Configure(func(*config.Config) {})
	s.ends(started.AttemptID)
	testkit.Same(t, items(), nil)
}

// Unknown costs are no cost of 0: they have a limit of their own. With prices, those of later executions are
// known; of the totals of a conversation, an execution has what its earlier ones have not.
func TestBudgetOfUnknownCosts(t *testing.T) {
	p := newProject(t)
	limit := func(unknown, price float64) {
		p.Configure(func(c *config.Config) {
			upTo(0.5)(c)
			c.Attempts.MaxUnknown = &config.Limit{Max: unknown, File: "mine.yml"}
			if price > 0 {
				c.Prices = map[string]config.Price{"TEST": {Input: price}}
			}
		})
	}
	limit(2, 0)
	s := p.open()
	codex := func(thread string, tokens int) string {
		return fmt.Sprintf("! say {\"type\":\"thread.started\",\"thread_id\":%q}\n! say {\"type\":\"turn.started\"}\n! say {\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":%d,\"output_tokens\":0}}", thread, tokens)
	}
	a := s.ends(s.begin(s.newTask(codex("t", 100_000))).AttemptID)
	more := func(tokens int) {
		t.Helper()
		testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(a.AttemptID), Action: ActionSend, Prompt: new(codex("t", tokens))})).Must(t)
		s.ends(a.AttemptID)
	}
	more(300_000) // in total
	start := s.starting(s.newTask("! say nothing known"))
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached", "2 executions have ended whose cost is unknown", "attempts.max_unknown is 2", "raise attempts.max_unknown in mine.yml, and give prices of the models in")
	limit(3, 1)
	more(700_000)
	c := s.get(a.AttemptID).Cost
	testkit.True(t, c != nil && c.Unknown == 2 && deref(c.USD) == 0.4 && deref(c.Input) == 700_000, "%+v, want 0.4 USD for the last 400,000 of 700,000 tokens, and 2 that are unknown", c)
	more(800_000)
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached", "cost 0.5 USD")
}

// The agents of one run have the prices of their own executors, also those whose programs report totals
// of a conversation and no model.
func TestCostsOfTwoExecutors(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) {
		c.Prices = map[string]config.Price{"DEAR": {Input: 10}, "CHEAP": {Input: 1}}
	})
	s := p.open()
	a := s.ends(s.begin(s.newTask("! say hello")).AttemptID)
	b := s.store()
	for i, x := range []struct {
		executor, thread string
		input            int64 // in all
	}{{"DEAR", "a", 1e6}, {"CHEAP", "b", 1e6}, {"DEAR", "a", 2e6}, {"CHEAP", "b", 3e6}} {
		u := testkit.Get(s.usageOf(ctx, b, a.AttemptID, x.executor, &transcript.Usage{Models: map[string]transcript.Tokens{"": {Input: x.input}}, Thread: x.thread})).Must(t)
		must(t, b.AddUse(ctx, task.Use{AttemptID: a.AttemptID, ExecutionID: fmt.Sprint(i), Executor: x.executor, Reported: true, Usage: *u}))
	}
	if c := s.get(a.AttemptID).Cost; c == nil || deref(c.USD) != 23 || c.Unknown != 1 { // and the agent itself
		t.Errorf("they cost %+v, want 23 USD", c)
	}
}

// However many servers start agents, only those that run when the budget is reached exceed it.
func TestOvershootOfBudgets(t *testing.T) {
	const slots, waiting = 2, 10
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = slots })
	one, two := p.open(func(o *Options) { o.Poll = 1e9 }), p.open()
	hold := filepath.Join(p.Root, "..", "hold")
	var ids []string
	for range slots {
		ids = append(ids, one.begin(one.newTask("! await "+hold, costs("0.1"))).AttemptID)
	}
	for _, id := range ids {
		one.reaches(id, task.Running)
	}
	for i := range waiting {
		ids = append(ids, []*server{one, two}[i%2].begin(one.newTask(costs("0.1"))).AttemptID)
	}
	p.Configure(func(c *config.Config) {
		c.Attempts.MaxConcurrent = slots
		upTo(0.5)(c)
	})
	must(t, os.WriteFile(hold, nil, 0o644))
	ran := 0
	eventually(t, func() string {
		b := one.store()
		if now, err := one.Reached(ctx, b, p.Config.Load()); err != nil || len(now) == 0 {
			return fmt.Sprintf("%+v: %v", now, err)
		}
		ran = 0 // counted once nothing more begins
		for _, id := range ids {
			switch at := testkit.Get(b.Attempt(ctx, id)).Must(t); at.State {
			case task.Completed:
				ran++
			case task.Waiting:
			default:
				return string(at.State)
			}
		}
		return ""
	})
	for _, s := range []*server{one, two} { // and neither starts more
		x := testkit.Get(s.store().ClaimNext(ctx, s.Members.ID(), slots, nil, board.Limits(p.Config.Load()))).Must(t)
		testkit.True(t, x == nil, "%+v", x)
	}
	testkit.True(t, ran >= 5 && ran <= 5+slots-1, "%d executions of 0.1 USD ran with a budget of 0.5 and %d slots", ran, slots)
}
