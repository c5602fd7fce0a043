package workflows

import "deepwork/transport/tool"

// addGetStep registers get_step (DESIGN "Stacks").
func addGetStep(s *tool.Set) {
	add(s, tool.WorkflowCaller.Step, tool.Tool{
		Name: "get_step", Title: "Show the current step",
		Description: "Shows where a workflow stands, without moving it. Call it when you have lost the current step's instructions (your context " +
			"was compacted), after a workflow above was completed or aborted, to see what is still pending in a concurrent group, or with a session_id " +
			"to take up a session after a restart or a lost connection.\n\n" +
			"Returns begin_step as it was when the step was begun, concurrent_steps and members of its group with what each has reached, " +
			"pending_concurrent_steps, the goal, the steps completed so far, and stack.\n\n" +
			"Then go on with the step and call finished_step. If no workflow is in progress, the error lists the sessions that can be taken up.",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Input:   tool.InputSchema(tool.SessionID()),
		Session: "session_id",
		Smaller: "the instructions stand in the job's folder, in the instructions_file of the step: read them there; shorter ones are taken up by go_to_step.",
	})
}
