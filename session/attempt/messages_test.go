package attempt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
)

// stream returns the lines that a real agent printed.
func stream(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("transcript", "testdata", name+".jsonl"))
	must(t, err)
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
	if next != int64(len(entries)-1) || len(whole) < 14 {
		t.Fatalf("%d messages, next %d", len(whole), next)
	}
	for _, most := range []int{1, 2, 3, 7} {
		var all []Message
		after := int64(-1)
		for after < next {
			page := entries[after+1:]
			got, now := messagesOf(page[:min(len(page), most+linePieces)], most, false)
			if now <= after {
				t.Fatalf("with pages of %d lines it does not go on after %d", most, after)
			}
			all, after = append(all, got...), now
		}
		if !reflect.DeepEqual(all, whole) {
			t.Errorf("with pages of %d lines:\n%.2000s\nwant\n%.2000s", most, fmt.Sprint(all), fmt.Sprint(whole))
		}
	}
}

// A line whose end is missing is given when its agent has ended, or when it is longer than any.
func TestMessageWithoutAnEnd(t *testing.T) {
	piece := runner.Entry{Index: 7, Stream: runner.Stdout, Text: `{"` + strings.Repeat("x", runner.MaxLine-2)}
	if all, next := messagesOf([]runner.Entry{piece}, 9, false); len(all) > 0 || next != 6 {
		t.Errorf("%d messages, next %d", len(all), next)
	}
	if all, next := messagesOf([]runner.Entry{piece}, 9, true); len(all) != 1 || next != 7 || !all[0].Cut {
		t.Errorf("%d messages, next %d", len(all), next)
	}
	var long []runner.Entry
	for i := range linePieces {
		piece.Index = int64(i)
		long = append(long, piece)
	}
	if all, next := messagesOf(long, 9, false); len(all) != 1 || next != linePieces-1 || len(all[0].Text) != transcript.MaxText {
		t.Errorf("%d messages, next %d", len(all), next)
	}
}

// tail_attempt reads what an agent does, raw output remains, and what each execution used is summed
// for the attempt and the task; a failed execution counts, and says why it failed.
func TestOutputAndCostOfAgents(t *testing.T) {
	p := newProject(t)
	s := p.open()
	orders := func(name string, more ...string) (lines []string) {
		for _, line := range stream(t, name) {
			lines = append(lines, "! say "+line)
		}
		return append(lines, more...)
	}
	v := s.newTask(orders("claude", "! nonsense")...)
	r := s.begin(v)
	r = s.ends(r.AttemptID)
	if want := "The agent ended with exit code 97. Its last lines on stderr:\nnonsense unknown order \"nonsense\""; r.State != "failed" || deref(r.Error) != want {
		t.Errorf("%s, %q, want %q", r.State, deref(r.Error), want)
	}
	want := &Cost{USD: new(0.01574), Executions: 1, Input: new(int64(48)), Cached: new(int64(9200)), Output: new(int64(160)), Turns: new(int64(5))}
	if !reflect.DeepEqual(r.Cost, want) || !reflect.DeepEqual(s.task(v.TaskID).Cost, want) {
		t.Errorf("it cost %s", asJSON(r.Cost))
	}
	tail, err := s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), AfterIndex: new(int64(-1))})
	must(t, err)
	var said []Message
	var kinds []string
	for _, m := range tail.Messages {
		if m.Kind != runner.System && m.Kind != runner.Stderr { // whose order is another
			said, kinds = append(said, m), append(kinds, m.Kind)
		}
	}
	if got := strings.Join(kinds, " "); got != "output reasoning message tool_call tool_result tool_call tool_call tool_result tool_result tool_call tool_result message" || len(tail.Entries) > 0 {
		t.Fatal(got)
	}
	if said[3].Tool != "Bash" || said[3].CallID != said[4].CallID || said[4].Text != "hello" {
		t.Errorf("%+v", said[3:5])
	}
	raw := s.output(r.AttemptID)
	if !strings.Contains(raw, stream(t, "claude")[0]) {
		t.Errorf("the raw output is\n%s", raw)
	}
	// A follow-up of an agent that reports nothing.
	_, err = s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say more")})
	must(t, err)
	want.Executions, want.Unknown = 2, 1
	if r = s.ends(r.AttemptID); !reflect.DeepEqual(r.Cost, want) || r.State != "completed" {
		t.Errorf("%s, it cost %s", r.State, asJSON(r.Cost))
	}
	if sum := s.task(v.TaskID).Cost; !reflect.DeepEqual(sum, want) {
		t.Errorf("all cost %s", asJSON(sum))
	}
	// An agent that reports no cost.
	other := s.begin(s.newTask(orders("codex")...))
	want = &Cost{Executions: 1, Unknown: 1, Input: new(int64(1000)), Cached: new(int64(5000)), Output: new(int64(200)), Turns: new(int64(1))}
	if other = s.ends(other.AttemptID); !reflect.DeepEqual(other.Cost, want) {
		t.Errorf("it cost %s", asJSON(other.Cost))
	}
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
