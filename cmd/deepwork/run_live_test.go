package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/session/attempt"
	"deepwork/session/show"
)

// A run of six steps, of which two are done, three are members of a group and one is to come.
func sixSteps() (*attempt.RunReply, []runStep, time.Time) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	stamp := func(ago time.Duration) *string { return new(now.Add(-ago).Format(time.RFC3339Nano)) }
	agent := func(step, state string, from, to time.Duration) attempt.RunStep {
		x := attempt.RunStep{ExecutionID: "x-" + step, SessionID: "s", StepID: step, Executor: "CLAUDE_CODE", State: state, StartedAt: stamp(from)}
		if to > 0 {
			x.EndedAt, x.FinalMessage = stamp(to), new("said by "+step)
		}
		return x
	}
	limited := agent("limited", "failed", 50*time.Second, 40*time.Second)
	until := attempt.RunWaits{For: "limit", SessionID: "s", StepID: "limited", Until: new(now.Add(time.Hour).Format(time.RFC3339Nano))}
	r := &attempt.RunReply{Waits: []attempt.RunWaits{until}, State: "running", Workflow: "job/w", SessionID: new("s"), CreatedAt: *stamp(100 * time.Second), Steps: []attempt.RunStep{
		agent("first", "completed", 90*time.Second, 80*time.Second), agent("second", "completed", 80*time.Second, 70*time.Second), agent("evil", "running", 60*time.Second, 0), limited,
	}}
	at := func(id string, group rune, done, current, asked bool) runStep {
		return runStep{place: place{"s", id}, group: group, done: done, current: current, asked: asked}
	}
	return r, []runStep{at("first", 0, true, false, false), at("second", 0, true, false, false), at("evil", '┌', false, true, false), at("limited", '│', false, true, false),
		at("asked", '└', false, true, true), at("later", 0, false, false, false)}, now
}

// What agents say cannot move the cursor, and no line is wider than the terminal, whatever is in it.
func TestRunLinesFitTheTerminal(t *testing.T) {
	r, steps, now := sixSteps()
	r.Workflow = "job\x1b[2J/w"
	last := map[string]string{"x-evil": "\x1b[31m\r\x08\x9b2J \u202eevil 日本語のテキスト 👩‍👧 e\u0301 ❤️ " + strings.Repeat("界", 100)}
	for columns := 25; columns < 140; columns++ {
		for _, line := range liveLines(r, steps, last, "", now, columns, 20) {
			if n := show.Columns(line); n > columns {
				t.Errorf("%d columns of %d: %q", n, columns, line)
			}
			if i := strings.IndexAny(strings.ReplaceAll(line, "👩\u200d", ""), "\x1b\r\n\b\u009b\u202e\u200d"); i >= 0 {
				t.Errorf("%q is not plain", line)
			}
		}
	}
	wide := strings.Join(liveLines(r, steps, last, "", now, 120, 20), "\n")
	for _, want := range []string{"┌ evil", "1m0s", "finished", "said by second", "for its provider's limit, until ", "waiting", "for you: deepwork sessions review s asked --pass", "(1 to come)"} {
		if !strings.Contains(wide, want) {
			t.Errorf("there is no %q in\n%s", want, wide)
		}
	}
	if narrow := liveLines(r, steps, last, "", now, 60, 20); !strings.Contains(strings.Join(narrow, "\n"), "\n    for you: deepwork sessions review s asked --pass\n") {
		t.Errorf("what a step waits for is not on a line of its own in\n%s", strings.Join(narrow, "\n"))
	}
}

// If there are more steps than lines, those that are finished are left out first.
func TestRunLinesThatAreLeftOut(t *testing.T) {
	r, steps, now := sixSteps()
	for room := 3; room < 12; room++ {
		lines := liveLines(r, steps, nil, "", now, 120, room)
		if len(lines) > room {
			t.Errorf("%d lines, there is room for %d:\n%s", len(lines), room, strings.Join(lines, "\n"))
		}
		all := strings.Join(lines, "\n")
		if room >= 6 && !strings.Contains(all, "asked") || room < 6 && strings.Contains(all, "first") {
			t.Errorf("in %d lines:\n%s", room, all)
		}
	}
}

// Steps are shown without their sessions, too, as far as agents were started for them.
func TestRunRowsWithoutSessions(t *testing.T) {
	r, _, now := sixSteps()
	r.Waits = append(r.Waits, attempt.RunWaits{For: "person", SessionID: "s", StepID: "second", Command: new("c")})
	rows, later := runRows(r, nil, nil, now)
	var got []string
	for _, row := range rows {
		got = append(got, row.step+" "+row.state)
	}
	if want := "[first completed second waiting evil running limited waiting]"; fmt.Sprint(got) != want || later != 0 {
		t.Errorf("got %v, %d to come; want %s", got, later, want)
	}
}

// A message beside the view takes its place, and the view is drawn again below.
func TestRunViewGivesWay(t *testing.T) {
	var screen bytes.Buffer
	v := &liveView{to: &screen, drawn: []string{"one", "two"}}
	if _, err := v.Write([]byte("warning\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := screen.String(), "\x1b[2A\r\x1b[Jwarning\n"; got != want || v.drawn != nil {
		t.Errorf("got %q, want %q", got, want)
	}
}
