package workflows

import "deepwork/transport/tool"

// addStartWorkflow registers start_workflow (seed 000, 001.3).
func addStartWorkflow(s *tool.Set) {
	add(s, tool.WorkflowCaller.Start, tool.Tool{
		Name: "start_workflow", Title: "Start a workflow",
		Description: "Starts a workflow and returns its first step, begin_step. Follow its step_instructions, write step_expected_outputs to files, then call finished_step. " +
			"Do concurrent_steps, if any, at the same time, as concurrent_group says. Keep session_id: it resumes the session after a restart. " +
			"Within a step, this nests a workflow; the outer one resumes when it ends.",
		Input: tool.InputSchema(
			tool.Required("goal", tool.MaxText, "What the user wants to achieve"),
			tool.Required("job_name", tool.MaxName, "Job name from get_workflows"),
			tool.Required("workflow_name", tool.MaxName, "Workflow name; any, if the job has only one"),
			tool.Optional("instance_id", tool.MaxName, "Short name for the branch, such as acme. Default: the date"),
			tool.Optional("parent_session_id", tool.MaxName, "Session to nest in, 8 hex digits. Default: top of the stack"),
			tool.RequestID(),
		),
		Output:  startSchema(),
		Recheck: seeStep,
		Session: "parent_session_id",
	})
}
