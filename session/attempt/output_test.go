package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
)

// stream returns the lines that a real agent printed.
func stream(t *testing.T, name string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(testkit.Get(os.ReadFile(filepath.Join("transcript", "testdata", name+".jsonl"))).Must(t))), "\n")
}

// However the output is cut into pages, the messages are the same, also of lines that are logged in
// pieces, with lines on stderr in between.
func TestMessagesByPage(t *testing.T) {
	var entries []runner.Entry
	log := func(stream, text string) {
		for ; len(text) > runner.MaxLine; text = text[runner.MaxLine:] {
			entries = append(entries, runner.Entry{Index: int64(len(entries)), Time: time.Unix(0, 0), Stream: stream, Text: text[:runner.MaxLine]})
			if len(entries)%2 == 0 {
				entries = append(entries, runner.Entry{Index: int64(len(entries)), Time: time.Unix(0, 0), Stream: runner.Stderr, Text: "in between"})
			}
		}
		entries = append(entries, runner.Entry{Index: int64(len(entries)), Time: time.Unix(0, 0), Stream: stream, Text: text})
	}
	log(runner.System, "started")
	for _, line := range stream(t, "codex_tools") {
		log(runner.Stdout, line)
	}
	log(runner.Stdout, fmt.Sprintf(`{"type":"item.completed","item":{"id":"9","type":"agent_message","text":%q}}`, strings.Repeat("long ", 50_000)))
	log(runner.Stdout, "plain")
	log(runner.Stdout, `{"torn":"`+strings.Repeat("x", runner.MaxLine))
	entries = entries[:len(entries)-1] // its end is missing
	log(runner.System, "ended")
	whole, next := messagesOf(entries, len(entries), true)
	testkit.Need(t, next == int64(len(entries)-1) && len(whole) >= 14, "%d messages, next %d", len(whole), next)
	for _, most := range []int{1, 2, 3, 7} {
		var all []Message
		after := int64(-1)
		for after < next {
			page := entries[after+1:]
			got, now := messagesOf(page[:min(len(page), most+linePieces)], most, false)
			testkit.Need(t, now > after, "with pages of %d lines it does not go on after %d", most, after)
			all, after = append(all, got...), now
		}
		testkit.Same(t, all, whole, "with pages of %d lines", most)
	}
}

// A line whose end is missing is given when its agent has ended, or when it is longer than any.
func TestMessageWithoutAnEnd(t *testing.T) {
	piece := runner.Entry{Index: 7, Stream: runner.Stdout, Text: `{"` + strings.Repeat("x", runner.MaxLine-2)}
	all, next := messagesOf([]runner.Entry{piece}, 9, false)
	testkit.True(t, len(all) <= 0 && next == 6, "%d messages, next %d", len(all), next)
	all, next = messagesOf([]runner.Entry{piece}, 9, true)
	testkit.True(t, len(all) == 1 && next == 7 && all[0].Cut, "%d messages, next %d", len(all), next)
	var long []runner.Entry
	for i := range linePieces {
		piece.Index = int64(i)
		long = append(long, piece)
	}
	all, next = messagesOf(long, 9, false)
	testkit.True(t, len(all) == 1 && next == linePieces-1 && len(all[0].Text) == transcript.MaxText, "%d messages, next %d", len(all), next)
}

// tail_attempt reads what an agent does, raw output remains, and what each execution used is summed
// for the attempt and the task; a failed execution counts, and says why it failed.
func TestOutputAndCostOfAgents(t *testing.T) {
	s := newProject(t).open()
	orders := func(name string, more ...string) (lines []string) {
		for _, line := range stream(t, name) {
			lines = append(lines, "! say "+line)
		}
		return append(lines, more...)
	}
	v := s.newTask(orders("claude", "! nonsense")...)
	r := s.ends(s.begin(v).AttemptID)
	testkit.Equal(t, r.State+": "+board.State(deref(r.Error)), "failed: The agent ended with exit code 97. Its last lines on stderr:\nnonsense unknown order \"nonsense\"")
	want := &board.Cost{USD: new(0.01574), Executions: 1, Input: new(int64(48)), Cached: new(int64(9200)), Output: new(int64(160)), Turns: new(int64(5))}
	testkit.Same(t, r.Cost, want, "it cost")
	testkit.Same(t, s.task(v.TaskID).Cost, want, "it cost")
	tail := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), AfterIndex: new(int64(-1))})).Must(t)
	var said []Message
	var kinds []string
	for _, m := range tail.Messages {
		if m.Kind != runner.System && m.Kind != runner.Stderr { // whose order is another
			said, kinds = append(said, m), append(kinds, m.Kind)
		}
	}
	got := strings.Join(kinds, " ")
	testkit.Need(t, got == "output reasoning message tool_call tool_result tool_call tool_call tool_result tool_result tool_call tool_result message" && len(tail.Entries) == 0, "%v", got)
	testkit.True(t, said[3].Tool == "Bash" && said[3].CallID == said[4].CallID && said[4].Text == "hello", "%+v", said[3:5])
	testkit.Contains(t, s.output(r.AttemptID), stream(t, "claude")[0], "the raw output")
	// A follow-up of an agent that reports nothing.
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say more")})
	want.Executions, want.Unknown = 2, 1
	r = s.ends(r.AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.Same(t, r.Cost, want, "both cost")
	testkit.Same(t, s.task(v.TaskID).Cost, want, "all cost")
	first := &board.ExecutionCost{USD: want.USD, Input: want.Input, Cached: want.Cached, Output: want.Output, Turns: want.Turns}
	each := s.executions(r.AttemptID)
	testkit.Same(t, []*board.ExecutionCost{each[0].Cost, each[1].Cost}, []*board.ExecutionCost{{}, first}, "each cost")
	// An agent that reports no cost.
	want = &board.Cost{Executions: 1, Unknown: 1, Input: new(int64(1000)), Cached: new(int64(5000)), Output: new(int64(200)), Turns: new(int64(1))}
	testkit.Same(t, s.ran(orders("codex")...).Cost, want, "the other one cost")
}

// What each execution was asked, how it ended and what it printed can be read after the ones that followed it, one by one.
func TestEarlierExecutionsStayVisible(t *testing.T) {
	p, s := opened(t)
	r := s.ran("! prompt", "! say first", "! nonsense")
	on := the(r.AttemptID)
	s.follow(FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say second")})
	s.ends(r.AttemptID)
	s.follow(FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say third\n! await " + p.hold)})
	s.reaches(r.AttemptID, task.Running)
	s.prints(r.AttemptID, "third")
	x := s.executions(r.AttemptID)
	testkit.Need(t, len(x) == 3, "the executions are %s", asJSON(x))
	var reply *TailReply
	for i, c := range []struct {
		state               board.State
		final, prompt, says string
	}{{board.Running, "", "! say third", "|third|"}, {board.Completed, "done", "! say second", "|second|done|"}, {board.Failed, "first", "# Add a basket", "|first|"}} {
		testkit.True(t, x[i].State == c.state && strings.HasPrefix(x[i].Prompt, c.prompt) && deref(x[i].FinalMessage) == c.final, "execution %d is %s", i, asJSON(x[i]))
		reply = testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, ExecutionID: &x[i].ExecutionID, AfterIndex: new(int64(-1)), Limit: new(MaxTail)})).Must(t)
		said := texts(reply.Messages, "output")
		for _, other := range []string{"|third|", "|second|", "|first|"} {
			testkit.Equal(t, strings.Contains(said, other), strings.Contains(c.says, other), "execution %d said %s", i, said)
		}
		testkit.True(t, strings.Contains(said, c.says) && reply.State == c.state, "%s: %s", reply.State, said)
	}
	rest := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, ExecutionID: &x[2].ExecutionID, AfterIndex: &reply.NextIndex, Wait: new(20.0)})).Must(t)
	testkit.True(t, len(rest.Messages) == 0 && rest.NextIndex == reply.NextIndex && strings.Contains(deref(x[2].Error), "unknown order \"nonsense\""), "after the first: %+v", rest)
	refused(t, testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, ExecutionID: &r.AttemptID})).Err(), session.ToolError, "unknown_execution", r.AttemptID)
	// A call that waits for the next line gets it.
	at := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, Limit: new(1)})).Must(t).NextIndex
	must(t, os.WriteFile(p.hold, nil, 0o644))
	more := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, AfterIndex: &at, Wait: new(20.0), Raw: new(true)})).Must(t)
	testkit.True(t, len(more.Entries) > 0 && more.Entries[0].Index == at+1, "after %d: %+v", at, more)
	s.ends(r.AttemptID)
	// One that waits has no output yet, whatever others printed before.
	command := p.open(passive)
	s.stop()
	command.follow(FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say fourth")})
	reply = testkit.Get(command.TailAttempt(ctx, me, TailArgs{Target: on, ExecutionID: &command.executions(r.AttemptID)[0].ExecutionID, Wait: new(0.1)})).Must(t)
	testkit.True(t, len(reply.Messages) == 0 && reply.State == "queued" && reply.NextIndex == -1, "%+v", reply)
}

// costs is the order to an agent to report a cost.
func costs(usd string) string {
	return `! say {"type":"result","subtype":"success","result":"done","total_cost_usd":` + usd + `,"num_turns":1,"modelUsage":{"m":{"inputTokens":1}}}`
}

func upTo(usd float64) func(*config.Config) {
	return func(c *config.Config) { c.Attempts.MaxCostUSD = &config.Limit{Max: usd, File: ".deepwork/config.yml"} }
}

// Once the executions have cost what they may, nothing starts: calls are refused, and what waits says
// why, until the limit is raised. What failed or was deleted counts.
func TestBudgetOfCosts(t *testing.T) {
	p := newProject(t)
	p.Configure(upTo(0.3))
	s := p.open()
	first := s.newTask(costs("0.1"))
	s.ends(s.begin(first).AttemptID)
	failed, long := s.newTask(costs("0.2"), "! exit 3"), s.runs("! await "+p.hold, costs("0.05"))
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
	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.reaches(long.AttemptID, task.Waiting)
	testkit.Until(t, "the figures of metrics", func() bool { return s.Stats().Spent == task.Spent{Executions: 3, MicroUSD: 350_000, InputTokens: 3} })
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
	testkit.True(t, s.ends(long.AttemptID).State == "completed" && len(items()) == 1, "it has %d items", len(items()))
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
	a := s.ran(codex("t", 100_000))
	more := func(tokens int) {
		t.Helper()
		testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(a.AttemptID), Action: ActionSend, Prompt: new(codex("t", tokens))})).Must(t)
		s.ends(a.AttemptID)
	}
	more(300_000) // in total
	start := s.starting(s.newTask("! say nothing known"))
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached", "2 executions have ended with an unknown cost", "attempts.max_unknown is 2", "raise attempts.max_unknown in mine.yml, and give prices of the models in")
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
	p.Configure(func(c *config.Config) { c.Prices = map[string]config.Price{"DEAR": {Input: 10}, "CHEAP": {Input: 1}} })
	s := p.open()
	a, b := s.ran("! say hello"), s.store()
	for i, x := range []struct {
		executor, thread string
		input            int64 // in all
	}{{"DEAR", "a", 1e6}, {"CHEAP", "b", 1e6}, {"DEAR", "a", 2e6}, {"CHEAP", "b", 3e6}} {
		u := testkit.Get(s.usageOf(ctx, b, a.AttemptID, x.executor, &transcript.Usage{Models: map[string]transcript.Tokens{"": {Input: x.input}}, Thread: x.thread})).Must(t)
		must(t, b.AddUse(ctx, task.Use{AttemptID: a.AttemptID, ExecutionID: fmt.Sprint(i), Executor: x.executor, Reported: true, Usage: *u}))
	}
	c := s.get(a.AttemptID).Cost
	testkit.True(t, c != nil && deref(c.USD) == 23 && c.Unknown == 1, "they cost %+v, want 23 USD", c) // and the agent itself
}
