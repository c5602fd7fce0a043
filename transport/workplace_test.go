package transport

import (
	"strings"
	"testing"

	"deepwork/session"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
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

// An agent that has finished its step waits for nothing, since others do the rest.
func TestAnAgentOfAStepWaitsForNoOther(t *testing.T) {
	r := &machine.FinishReply{Status: machine.NextStep, PendingConcurrentSteps: []string{"b"}}
	if r.Waiting() == nil {
		t.Fatal("a member of a group waits for the others")
	}
	if alone := r.Alone("End now."); alone.Waiting() != nil || alone.PendingConcurrentSteps != nil || *alone.Feedback != "End now." || r.PendingConcurrentSteps == nil {
		t.Errorf("%+v", alone)
	}
}
