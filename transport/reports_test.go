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

	past, err := workflowsOf(t.Context(), state.Of(root), slog.New(slog.DiscardHandler))
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
