package workflows

import "deepwork/transport/tool"

// addAbortWorkflow registers abort_workflow (seed 000, 001.6).
func addAbortWorkflow(s *tool.Set) {
	add(s, tool.WorkflowCaller.Abort, tool.Tool{
		Name: "abort_workflow", Title: "Abort a workflow",
		Description: "Ends a workflow before it is complete. Call it when the user no longer wants it, or when it cannot be finished. The session " +
			"cannot be taken up again; the files that were written stay.\n\n" +
			"Returns what was aborted and at which step. If resumed_workflow is not null, the workflow below it goes on at resumed_step: " +
			"call get_step for its instructions.\n\n" +
			"To repeat a step instead, call go_to_step; to stop for now, just stop: the session can be taken up later by its session_id.",
		Hints: tool.Hints{Destructive: true},
		Input: tool.InputSchema(
			tool.Required("explanation", tool.MaxText, "Why the workflow is aborted, for the user and the record, at most 100,000 characters."),
			tool.SessionID(),
			tool.RequestID(),
		),
		Session: "session_id",
		Recheck: seeStep,
	})
}
