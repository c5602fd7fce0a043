package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	definition "deepwork/catalog/job"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
)

const itemsJob = `name: many
version: 1.0.0
summary: S
common_job_info_provided_to_all_steps_at_runtime: C
workflows: [{name: w, summary: S, steps: [list, {for_each: todo, steps: [port, look], at_once: 3}, last]}]
steps:
  - {id: list, name: List, description: D, instructions: I, outputs: {todo: {type: file, description: D}}, reviews: []}
  - {id: port, name: Port it, description: D, instructions: I, outputs: {}, reviews: []}
  - {id: look, name: Look at it, description: D, instructions: I, outputs: {}, reviews: []}
  - {id: last, name: Last, description: D, instructions: I, outputs: {}, reviews: []}
`

// A run over items has a row for each, whose state is that of its steps.
func TestLookAtItems(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &machine.State{SessionID: "s", Status: machine.Active, CurrentStepID: "port[0]"}
	set := func(id string, p *machine.StepProgress) {
		p.StepID = id
		s.StepProgress = s.StepProgress.Set(id, p)
	}
	done := func() *machine.StepProgress { return &machine.StepProgress{CompletedAt: &at} }
	j, faults := definition.Parse("/job", "job.yml", []byte(itemsJob))
	testkit.Need(t, len(faults) == 0, "%v", faults)
	sessions := fakeSessions{map[string]*machine.State{"s": s}, machine.Define(j, "w")}
	look := func() *View {
		return Look(t.Context(), &board.RunReply{
			RunID:     "r",
			State:     board.Running,
			Open:      true,
			SessionID: new("s"),
			Steps: []board.RunStep{
				{SessionID: "s", StepID: "port[2]", State: board.Running, StartedAt: new("2026-01-01T00:00:00Z")},
				{SessionID: "s", StepID: "look[1]", State: board.Completed, StartedAt: new("2026-01-01T00:00:00Z"),
					EndedAt: new("2026-01-01T00:00:09Z"), FinalMessage: new("I give up.")},
			},
			Kept: board.Run{Failed: []string{"s/look[1]"}},
		}, sessions, nil)
	}
	set("list", done())
	s.Progress("list").Outputs = s.Progress("list").Outputs.Set("todo", outputs.Value{Paths: []string{"todo.json"}})
	s.Progress("list").Lists = map[string][]json.RawMessage{"todo": {}}
	for _, item := range strings.Fields(`"one.go" {"file":"two.go"} "three.go" "four.go" "five.go" "six.go"`) {
		s.Progress("list").Lists["todo"] = append(s.Progress("list").Lists["todo"], json.RawMessage(item))
	}
	s.CurrentStepID = "list"
	testkit.True(t, look().Tree.Entries[1][0].List == nil, "no item has begun, and there are rows")

	s.CurrentStepID = "port[0]"
	set("port[0]", done())
	set("look[0]", done())
	set("port[1]", done())
	set("look[1]", &machine.StepProgress{})
	set("port[2]", &machine.StepProgress{})
	asks := new(judging.Submission).To(judging.ByPerson, nil, at)
	set("port[3]", &machine.StepProgress{Submissions: []*judging.Submission{asks}})
	set("port[4]", &machine.StepProgress{Dropped: &judging.Override{}})
	v := look()
	testkit.Need(t, v.Fault == nil && len(v.Tree.Entries) == 3, "%v: %d entries", v.Fault, len(v.Tree.Entries))
	list := v.Tree.Entries[1][0]
	testkit.Equal(t, list.List.Summary(),
		"6 items, 3 at once: 1 completed, 1 not begun, 1 dropped, 1 running, 1 failed, 1 waiting for you")
	testkit.Equal(t, fmt.Sprintln(list.ID, list.State, list.Took, list.Why),
		"port waiting_for_you 9s has items that wait for a person\n")
	var rows []string
	for _, i := range list.List.Items {
		row := fmt.Sprint(i.Number, " ", i.Value, " ", i.State, " "+i.Said)
		if i.At != nil {
			row += " (" + i.At.ID + ")"
		}
		for _, s := range i.Steps {
			row += " " + s.Base() + ":" + string(s.State)
		}
		rows = append(rows, row)
	}
	testkit.Same(t, rows, []string{
		"1 one.go completed  port:completed look:completed",
		`2 {"file":"two.go"} failed I give up. (look[1]) port:completed look:failed`,
		"3 three.go running  (port[2]) port:running look:not_begun",
		"4 four.go waiting_for_you Step port[3]: a person has to pass its outputs. (port[3]) port:waiting_for_you " +
			"look:not_begun",
		"5 five.go dropped  (port[4]) port:dropped look:not_begun",
		"6 six.go not_begun  (port[5]) port:not_begun look:not_begun",
	})
	testkit.Equal(t, list.List.Items[0].Steps[0].Name, "Port it")

	find := func(state, text string) string {
		var all []int
		for _, i := range list.List.Find(state, text) {
			all = append(all, i.Number)
		}
		return fmt.Sprint(all)
	}
	for _, c := range []struct{ state, text, want string }{
		{"", "", "[4 2 3 5 6 1]"},
		{"failed", "", "[2]"}, {"", " TWO", "[2]"}, {"", "3", "[3]"}, {"completed", "two", "[]"},
	} {
		testkit.Equal(t, find(c.state, c.text), c.want, "%s %q", c.state, c.text)
	}

	// The plan has what has begun, and Rows one step for them all.
	testkit.Equal(t, fmt.Sprint(v.Plan), "[{s list completed} {s port[0] completed} {s look[0] completed} "+
		"{s port[1] completed} {s look[1] failed} {s port[2] running} {s port[3] waiting_for_you} "+
		"{s port[4] dropped} {s last not_begun}]")
	var ids []string
	v.Tree.Rows(func(s *Step, _ int) { ids = append(ids, s.ID) })
	testkit.True(t, slices.Equal(ids, []string{"list", "port", "last"}), "the rows are %v", ids)

	// A session that no run leads has the same, and its agent works on what is current.
	alone := Look(t.Context(), &board.RunReply{SessionID: new("s"), Open: true}, sessions, nil)
	testkit.Equal(t, alone.Tree.Entries[1][0].List.Summary(),
		"6 items, 3 at once: 1 completed, 1 not begun, 1 dropped, 2 running, 1 waiting for you")
}
