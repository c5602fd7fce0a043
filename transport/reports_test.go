package transport

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// A session inside one of its own workflow is a part of that one's work, and no
// news, neither as it moves nor when it is found on disk; one inside another
// workflow is, and says so.
func TestOnlyTheOutermostRunIsNews(t *testing.T) {
	s, root := project(t, nil)
	cs := client(t, s)
	start := func(flow, parent string) string {
		t.Helper()
		args := fmt.Sprintf(`{"goal":"g","job_name":"trip","workflow_name":%q`, flow)
		if parent != "" {
			args += fmt.Sprintf(`,"parent_session_id":%q`, parent)
		}
		return into[machine.StartReply](t, cs, "start_workflow", args+"}").BeginStep.SessionID
	}
	outer := start("plan", "")
	between := start("dream", outer)
	inner := start("plan", between)

	logger := slog.New(slog.DiscardHandler)
	l := &listener{}
	b := &board{news: newBoardReporter(l.tell, nil, logger),
		inner: func(job, name, parent string) bool { return insideItself(root, logger, job, name, parent) }}
	told := b.moved()
	told(workflow.Move{JobName: "trip", WorkflowName: "plan", SessionID: outer, Step: "1"})
	told(workflow.Move{JobName: "trip", WorkflowName: "dream", SessionID: between, Step: "1", Parent: outer})
	told(workflow.Move{JobName: "trip", WorkflowName: "plan", SessionID: inner, Step: "1", Parent: between})
	told(workflow.Move{JobName: "trip", WorkflowName: "plan", SessionID: "00000000", Step: "1", Parent: "11111111"}) // its parent is gone
	b.news.settle(t.Context())
	if err := closed(t, b.news); err != nil {
		t.Error(err)
	}
	if got := l.told(); !slices.Equal(got, []string{outer + "/1", between + "/1", "00000000/1"}) {
		t.Errorf("told %v of outer %s, between %s, inner %s", got, outer, between, inner)
	}

	past, err := pastNews(t.Context(), root, logger)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, n := range past {
		found = append(found, fmt.Sprint(n.SessionID, n.Nested))
	}
	if want := []string{outer + "false", between + "true"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}
