package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
)

// stream returns the lines that a real agent printed.
func stream(t *testing.T, name string) []string {
	t.Helper()
	data := testkit.Get(os.ReadFile(filepath.Join("transcript", "testdata", name+".jsonl"))).Must(t)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
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
	testkit.Same(t, s.ends(s.begin(s.newTask(orders("codex")...)).AttemptID).Cost, want, "the other one cost")
}

// What each execution was asked, how it ended and what it printed can be read after the ones that
// followed it, one by one.
func TestEarlierExecutionsStayVisible(t *testing.T) {
	p, s := opened(t)
	lines := []string{"! prompt"}
	for _, line := range stream(t, "claude") {
		lines = append(lines, "! say "+line)
	}
	r := s.ends(s.begin(s.newTask(append(lines, "! nonsense")...)).AttemptID)
	hold := filepath.Join(p.Root, "..", "hold")
	for _, prompt := range []string{"! say second", "! prompt\n! say third\n! await " + hold} {
		s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: &prompt})
		if !strings.Contains(prompt, "third") {
			r = s.ends(r.AttemptID)
		}
	}
	tail := func(execution string, raw bool) (text string, reply *TailReply) {
		t.Helper()
		reply = testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), ExecutionID: &execution, Raw: &raw, Limit: new(MaxTail)})).Must(t)
		for _, e := range reply.Entries {
			text += e.Text + "\n"
		}
		for _, m := range reply.Messages {
			text += m.Kind + ": " + m.Text + "\n"
		}
		return text, reply
	}
	eventually(t, func() string {
		r = s.get(r.AttemptID)
		if text, _ := tail(s.executions(r.AttemptID)[0].ExecutionID, true); !strings.Contains(text, "third") || r.State != "running" {
			return r.State.Words() + ", and its output is " + text
		}
		return ""
	})
	x := s.executions(r.AttemptID)
	if len(x) != 3 || x[0].State != "running" || x[1].State != "completed" || deref(x[1].FinalMessage) != "done" || x[2].State != "failed" ||
		!strings.Contains(deref(x[2].Error), "unknown order \"nonsense\"") || !strings.HasPrefix(x[2].Prompt, "# Add a basket") || x[1].Prompt != "! say second" || x[2].StartedAt == nil || x[2].EndedAt == nil {
		t.Errorf("the executions are %s", asJSON(x))
	}
	first, reply := tail(x[2].ExecutionID, false)
	testkit.True(t, containsAll(first, "reasoning: ", "stderr: nonsense", "message: ", "git worktree") && !strings.Contains(first, "output: second") && !strings.Contains(first, "third") && reply.State == "failed", "of the first execution, which is %s:\n%s", reply.State, first)
	rest := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), ExecutionID: &x[2].ExecutionID, AfterIndex: &reply.NextIndex, Wait: new(20.0)})).Must(t)
	testkit.True(t, len(rest.Messages) == 0 && rest.NextIndex == reply.NextIndex, "after it: %+v", rest)
	second, reply := tail(x[1].ExecutionID, true)
	testkit.True(t, strings.Contains(second, "second\ndone\n") && !strings.Contains(second, "nonsense") && !strings.Contains(second, "\nthird\n") && reply.State == "completed", "of the second, which is %s:\n%s", reply.State, second)
	third, reply := tail(x[0].ExecutionID, true)
	testkit.True(t, strings.Contains(third, "third") && !strings.Contains(third, "second") && !strings.Contains(third, "git worktree") && reply.State == "running", "of the third, which is %s:\n%s", reply.State, third)
	refused(t, testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), ExecutionID: &r.AttemptID})).Err(), session.ToolError, "unknown_execution", r.AttemptID)
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(r.AttemptID)
}

// An execution that waits has no output yet, whatever others printed before.
func TestOutputOfAWaitingExecution(t *testing.T) {
	p, s := opened(t)
	r := s.ends(s.begin(s.newTask("! say first")).AttemptID)
	command := p.open(passive)
	s.stop()
	command.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say second")})
	reply := testkit.Get(command.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), ExecutionID: &command.executions(r.AttemptID)[0].ExecutionID, Wait: new(0.1)})).Must(t)
	testkit.True(t, len(reply.Messages) == 0 && reply.State == "queued" && reply.NextIndex == -1, "%+v", reply)
}
