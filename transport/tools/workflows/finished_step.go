package workflows

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

// addFinishedStep registers finished_step (seed 000, 001.4).
func addFinishedStep(s *tool.Set) {
	add(s, tool.WorkflowCaller.Finish, tool.Tool{
		Name: "finished_step", Title: "Finish a step",
		Description: "Reports a step as done, once its required outputs are written; they are checked and reviewed. Returns status:\n" +
			"- needs_work: do what feedback says, then call again.\n" +
			"- next_step: do begin_step and concurrent_steps, and report each. If begin_step is null, finish pending_concurrent_steps.\n" +
			"- workflow_complete: tell the user summary and all_outputs. If there is a resumed_workflow, call get_step.\n" +
			"If a reply is lost, repeat the call: nothing is done twice.",
		Hints: tool.Hints{}, // without step_id or request_id a second call may finish the next step
		Input: tool.InputSchema(
			tool.Property{Name: "outputs", Required: true, Schema: outputsSchema()},
			tool.Optional("notes", tool.MaxText, "What reviewers should know"),
			tool.Optional("quality_review_override_reason", tool.MaxText, "Reason to skip the review, recorded. Only after a self-review that feedback asked for, or if a review is wrong"),
			tool.SessionID(),
			tool.Optional("step_id", tool.MaxName, "The step you finished; always give it. Default: the current one"),
			tool.RequestID(),
		),
		Session: "session_id",
		Outcome: func(r any) string { return string(r.(*machine.FinishReply).Status) },
		Recheck: seeStep,
	})
}

// outputsSchema leaves the values open: they are checked against the current step, so that an agent
// reads which output is wrong and why (seed 000, 001.5). A list, seed 001's form, is accepted but
// not listed: clients that make values from text, such as the Inspector's command line, need a
// single type.
func outputsSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "object",
		Description: "Output names with their path, or list of paths for type files, relative to the project root, " +
			"such as {\"report\":\"out/report.md\",\"sources\":[\"a.md\"]}",
	}
}
