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
		Description: "Reports that the current step is done, and gives what comes next. Call it when every required output of the step is written " +
			"as a file. The files are checked and, where the step has reviews, reviewed.\n\n" +
			"Returns status:\n" +
			"- needs_work: do what feedback says, correct the files, call finished_step again.\n" +
			"- next_step: do begin_step (and concurrent_steps, if not null) and call finished_step for it. If begin_step is null, members of a " +
			"concurrent group are still pending: finish those in pending_concurrent_steps.\n" +
			"- workflow_complete: tell the user summary and all_outputs. If resumed_workflow is not null, go on with its resumed_step; get_step shows it.\n\n" +
			"Give step_id always: it names the step that you finished. In a concurrent group each member is reported by its own step_id, in any order. " +
			"The same call made again, because its reply was lost, gives the same reply and moves nothing.",
		Hints: tool.Hints{}, // without step_id or request_id a second call may finish the next step
		Input: tool.InputSchema(
			tool.Property{Name: "outputs", Required: true, Schema: outputsSchema()},
			tool.Optional("notes", tool.MaxText, "What a reviewer or a later reader should know about the work done, at most 100,000 characters."),
			tool.Optional("quality_review_override_reason", tool.MaxText, "Why this step goes on without its review; giving it skips the review, "+
				"and the reason is kept. Use it sparingly: after a review that you did yourself as asked, or when a review is wrong."),
			tool.SessionID(),
			tool.Optional("step_id", tool.MaxName, "The step that is finished: step_id of the begin_step, or of the member of concurrent_steps, that you worked on. "+
				"Without it the current step is meant."),
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
		Type:                 "object",
		AdditionalProperties: &jsonschema.Schema{Description: "The output's path, a string, where its type is file; a list of paths where its type is files."},
		Description: "The files of each output, as an object from the output's name (in step_expected_outputs) to its path or list of paths, " +
			"relative to the project root and inside it, for example {\"report\": \"out/report.md\", \"sources\": [\"a.md\", \"b.md\"]}. " +
			"{} where the step has no required output. A step with exactly one output is also given as a plain list of paths. " +
			"At most 1 MiB of JSON.",
	}
}
