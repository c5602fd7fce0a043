package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/board"
	"deepwork/session/show"
)

// Why a run waits is printed each time it begins to wait, and not each time it is looked at.
func TestRunWaitsTwiceForTheSame(t *testing.T) {
	for _, json := range []bool{true, false} {
		var out bytes.Buffer
		v := newRunLines(&app{json: json, out: show.NewScreen(&out, os.Getenv)})
		budget := &board.RunReply{RunID: "r", State: board.Queued, Reason: new("a budget is reached")}
		working := &board.RunReply{RunID: "r", State: "running"}
		for _, r := range []*board.RunReply{working, budget, budget, working, budget, budget} {
			v.show(t.Context(), r)
		}
		n := strings.Count(out.String(), "a budget is reached\n") + strings.Count(out.String(), `"run_waiting"`)
		testkit.True(t, n == 2, "it was printed %d times; expected 2:\n%s", n, out.String())
	}
}
