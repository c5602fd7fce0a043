package transport

import (
	"strings"
	"testing"

	"deepwork/session"
	"deepwork/session/workflow"
)

// A request that is let in before its token is withdrawn does nothing: it could start a workflow that no
// run knows.
func TestCallsAfterTheTokenIsWithdrawn(t *testing.T) {
	c := &stepCaller{grant: new(grant)} // without a caller to which anything could get
	empty := ""
	_, err := c.Start(t.Context(), workflow.StartArgs{Goal: "g", JobName: "j", WorkflowName: "w", ParentSessionID: &empty})
	_, err2 := c.Step(t.Context(), workflow.StepArgs{SessionID: &empty, StepID: &empty})
	_, err3 := c.Finish(t.Context(), workflow.FinishArgs{})
	for _, err := range []error{err, err2, err3} {
		if session.CodeOf(err) != "other_session" || !strings.Contains(err.Error(), "withdrawn") {
			t.Error(err)
		}
	}
}
