package page

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/run"
)

// shows renders a page, or the file of a run.
func shows(t *testing.T, view string, data any) string {
	t.Helper()
	views := testkit.Get(parseViews()).Must(t)
	var b bytes.Buffer
	testkit.Must(t, views.templates[view].Execute(&b,
		frame{Data: data, Caller: session.LocalCaller("page"), Query: url.Values{}}))
	return b.String()
}

// The file of a run has the items of a list with their values; those that need nobody are folded.
func TestExportOfItems(t *testing.T) {
	list := &run.Step{ID: "port", Name: "For each of todo", List: &run.List{AtOnce: 3}, Nested: make([]run.Tree, 1)}
	for i, state := range []board.State{board.Completed, board.Failed, board.Dropped, board.NotBegun} {
		step := &run.Step{ID: job.Item("port", i), Name: "Port it", State: state}
		list.List.Items = append(list.List.Items, &run.Item{Number: i + 1, Value: "<" + string(state) + ">",
			State: state, Steps: []*run.Step{step}})
		list.Nested[0].Entries = append(list.Nested[0].Entries, []*run.Step{step})
	}
	list.List.Items[1].Said = "It is too hard."
	nested := &run.Step{ID: "tidy",
		Nested: []run.Tree{{Workflow: "trip/tidy", Entries: [][]*run.Step{{{ID: "sweep"}}}}}}
	var b bytes.Buffer
	testkit.Must(t, testkit.Get(exportView()).Must(t).Execute(&b, &exported{Stat: new(diffstat),
		runView: &runView{View: &run.View{RunReply: new(board.RunReply),
			Tree: run.Tree{Entries: [][]*run.Step{{list}, {nested}}}}}}))
	testkit.ContainsAll(t, b.String(), []string{
		`4 items, 3 at once: 1 completed, 1 not begun, 1 dropped, 1 failed`,
		`<details><summary>1 <bdi>&lt;completed&gt;</bdi>`, `<details open><summary>2 <bdi>&lt;failed&gt;</bdi>`,
		`<details><summary>3 `, `<details><summary>4 `, "It is too hard.", "<code>port[3]</code>",
		"Its workflow trip/tidy", "<code>sweep</code>",
	})
	testkit.Equal(t, strings.Count(b.String(), "Its workflow"), 1, "workflows that it names")
}

// Each state of a list has a color, or is hatched.
func TestBarsHaveColors(t *testing.T) {
	style := string(testkit.Get(embedded.ReadFile("static/work.css")).Must(t))
	for _, state := range run.ItemStates {
		if state != board.WaitingForYou && state != board.WaitingForLimit && state != board.Merged {
			testkit.Contains(t, style, ".bar-"+string(state))
		}
	}
}

// A try leads to the changes, if the work has a page of them.
func TestTriesLeadToTheChanges(t *testing.T) {
	v := &runView{View: &run.View{RunReply: &board.RunReply{SessionID: new("s")}, Tree: run.Tree{SessionID: "s",
		Entries: [][]*run.Step{{{ID: "write", SessionID: "s", Agents: []board.RunStep{{ExecutionID: "x"}}}}}}}}
	p := &workPage{FullAttemptReply: new(attempt.FullAttemptReply), At: "/attempts/a", Task: new(board.TaskReply),
		Steps: v, Run: v}
	const link = `<a href="/attempts/a?tab=changes">changes</a>`
	testkit.Equal(t, strings.Count(shows(t, "work", p), link), 1, "links")
	v.Kept.InPlace = true
	testkit.Equal(t, strings.Count(shows(t, "work", p), link), 0, "links of a run in the project's own folder")

	// The step of an agent's messages is on a page that every step has.
	p.Of, p.Agent = "x", &board.RunStep{SessionID: "s", StepID: "visit[0]"}
	testkit.Contains(t, shows(t, "work", p), `<a href="/sessions/s?step=visit%5b0%5d">its step</a>`)
}

// The links of a diff in two columns keep them, and what is to be run in a shell is quoted.
func TestLinksOfChanges(t *testing.T) {
	p := &workPage{FullAttemptReply: new(attempt.FullAttemptReply), At: "/attempts/a", Task: new(board.TaskReply),
		Changes: true, Stat: new(diffstat)}
	p.AttemptID = "a"
	p.review = review{Split: true, Path: "f", Files: 1,
		Diffs: []fileDiff{{FileDiff: merge.FileDiff{File: "f"}, Folded: true}}}
	p.Repos = []attempt.AttemptRepo{{RepoID: "r", Exists: true, Merging: true, WorktreePath: "/my work/$HOME"}}
	page := shows(t, "work", p)
	testkit.ContainsAll(t, page, []string{`?tab=changes&amp;diff=split">all files`, `?files=0&amp;diff=split#diff"`,
		`?path=f&amp;diff=split#diff">Show its changes`, `cd &#39;/my work/$HOME&#39;</code>`})
	p.Split = false
	testkit.Contains(t, shows(t, "work", p), `?tab=changes">all files`)
}

// The filter of one list on Now keeps that list.
func TestTheFilterKeepsItsList(t *testing.T) {
	testkit.ContainsAll(t, shows(t, "now", &nowPage{Only: "recent"}),
		[]string{`<input type="hidden" name="list" value="recent">`, `hx-include="[name=list]"`})
}
