package workflows

import "deepwork/transport/tool"

// addAbortWorkflow registers abort_workflow (seed 000, 001.6).
func addAbortWorkflow(s *tool.Set) {
	add(s, tool.WorkflowCaller.Abort, tool.Tool{
		Name: "abort_workflow", Title: "Abort a workflow",
		Description: "Ends a workflow for good; files stay. To pause, just stop instead. If resumed_workflow is not null, call get_step.",
		Hints:       tool.Hints{Destructive: true},
		Input: tool.InputSchema(
			tool.Required("explanation", tool.MaxText, "Why, recorded with the session"),
			tool.SessionID(),
			tool.RequestID(),
		),
		Session: "session_id",
		Recheck: seeStep,
	})
}
