package workflows

import "deepwork/transport/tool"

// addGetStep registers get_step (DESIGN "Stacks").
func addGetStep(s *tool.Set) {
	add(s, tool.WorkflowCaller.Step, tool.Tool{
		Name: "get_step", Title: "Show the current step",
		Description: "Returns the current step again, with its instructions as they are now, the files of completed steps and what is pending; changes nothing. Call it after your context was compacted or a nested workflow ended, or to resume a session.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(
			tool.SessionID(),
			tool.Optional("step_id", tool.MaxName, "Id of one step of the concurrent group, to return it alone. Default: all"),
		),
		Session: "session_id",
		Smaller: "read the instructions in the job's folder, in the instructions_file of the step.",
	})
}
