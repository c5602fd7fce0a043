package workflows

import "deepwork/transport/tool"

// addStartWorkflow registers start_workflow (seed 000, 001.3).
func addStartWorkflow(s *tool.Set) {
	add(s, tool.WorkflowCaller.Start, tool.Tool{
		Name: "start_workflow", Title: "Start a workflow",
		Description: "Starts a workflow and gives its first step. Call it when what the user wants fits one of the workflows that get_workflows " +
			"lists; also in the middle of a step whose work is a workflow of its own: the new one is put on top of the stack, and when it is " +
			"complete or aborted the one below goes on.\n\n" +
			"Returns begin_step: its step_instructions say what to do, common_job_info what every step should know, step_expected_outputs which " +
			"files are expected, step_reviews how they will be judged. Keep its session_id: with it the session can be taken up after anything. " +
			"concurrent_steps, if not null, are steps to be done at the same time, best by a subagent each.\n\n" +
			"Then do the step, write its outputs as files, and call finished_step with their paths.",
		Input: tool.InputSchema(
			tool.Required("goal", tool.MaxText, "What the user wants to accomplish, in plain words, at most 100,000 characters; it is kept with the session and shown by get_step."),
			tool.Required("job_name", tool.MaxName, "The job's name as get_workflows lists it, for example `competitive_research`."),
			tool.Required("workflow_name", tool.MaxName, "The workflow's name under the job. If the job has exactly one workflow, that one is taken whatever is given."),
			tool.Optional("instance_id", tool.MaxName, "A short name for this run, for example `acme` or `q1-2026`; it becomes part of the branch name. Without it the date is used."),
			tool.Optional("parent_session_id", tool.MaxName, "The session whose child this one is, for subagents that share one connection. "+
				"Leave it out for the top of the stack."),
			tool.RequestID(),
		),
		Recheck: seeStep,
		Session: "parent_session_id",
	})
}
