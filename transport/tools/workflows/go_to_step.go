package workflows

import "deepwork/transport/tool"

// addGoToStep registers go_to_step.
func addGoToStep(s *tool.Set) {
	add(s, tool.WorkflowCaller.GoTo, tool.Tool{
		Name: "go_to_step", Title: "Go back to a step",
		Description: "Goes back to an earlier step of a workflow, or begins the current one anew. Call it when a later step shows that an earlier one " +
			"must be done differently. The progress of that step and of all after it is cleared; files stay as they are. " +
			"Of a concurrent group all members are cleared.\n\n" +
			"Returns begin_step, to be done now, and invalidated_steps, whose work is to be done again or confirmed.\n\n" +
			"Then do the step and call finished_step. To go forward, call finished_step: this tool refuses that.",
		Hints: tool.Hints{Destructive: true},
		Input: tool.InputSchema(
			tool.Required("step_id", tool.MaxName, "The step to go back to: the id of an earlier step of the workflow, or of the current one. get_step lists those completed."),
			tool.SessionID(),
			tool.RequestID(),
		),
		Session: "session_id",
		Recheck: seeStep,
	})
}
