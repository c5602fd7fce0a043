package page

import (
	"bytes"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/board"
	"deepwork/session/run"
)

// A bar begins and ends where its agent did, an agent at work ends now, and what a step waited for is a bar, too.
func TestTimeline(t *testing.T) {
	t.Parallel()
	at := func(minute int) *string {
		return new(time.Date(2026, 1, 1, 10, minute, 0, 0, time.UTC).Format(time.RFC3339Nano))
	}
	now, _ := time.Parse(time.RFC3339Nano, *at(20))
	plan := &run.Step{ID: "plan", SessionID: "s", Name: "Plan it", State: board.Completed, Agents: []board.RunStep{
		{State: board.Completed, StartedAt: at(10), EndedAt: at(12)},
		{State: board.Failed, StartedAt: at(0), EndedAt: at(5), LimitedUntil: at(15)},
	}}
	write := &run.Step{ID: "write", SessionID: "s", State: board.Running, Agents: []board.RunStep{{State: board.Running, StartedAt: at(12)}}}
	sign := &run.Step{ID: "sign", SessionID: "s", State: board.NotBegun}
	v := &runView{View: &run.View{RunReply: &board.RunReply{}, Live: true, Tree: run.Tree{SessionID: "s", Entries: [][]*run.Step{{plan}, {write, sign}}}}}
	line := v.timelineAt(now)
	testkit.Same(t, line.Lanes[0].Bars, []bar{
		{0, 250, "failed", "failed, 5 min"}, {250, 250, "limit", "waited for a limit, 5 min"}, {500, 100, "completed", "completed, 2 min"},
	})
	testkit.Same(t, line.Lanes[1].Bars, []bar{{600, 400, "running", "running, 8 min"}})
	testkit.Equal(t, line.Lanes[2].Summary(), "not begun")
	testkit.Same(t, line.Ticks, []string{"0", "5 min", "10 min", "15 min", "20 min"})

	views := testkit.Get(parseViews()).Must(t)
	var page bytes.Buffer
	testkit.Must(t, views.of["attempt"].ExecuteTemplate(&page, "lanes", line))
	testkit.Contains(t, page.String(), `<rect class="bar-limit" x="250" y="0" width="250" height="10">`, "the page")
}
