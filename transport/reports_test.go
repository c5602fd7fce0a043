package transport

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"deepwork/session/state"
	"deepwork/session/workflow/machine"
)

// A session inside one of its own workflow is a part of that one's work, and no news;
// one inside another workflow is, and says so.
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
	start("plan", between)

	past, err := workflowsOf(t.Context(), state.Of(root), "", slog.New(slog.DiscardHandler))
	must(t, err)
	var found []string
	for _, n := range past {
		found = append(found, fmt.Sprint(n.SessionID, n.Nested))
	}
	if want := []string{outer + "false", between + "true"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if others, err := workflowsOf(t.Context(), state.Of(root), "3b241101-e2bb-4255-8caf-4136c566a962", slog.New(slog.DiscardHandler)); err != nil || len(others) > 0 {
		t.Errorf("sessions that were not begun for the attempt: %+v, %v", others, err)
	}
}
