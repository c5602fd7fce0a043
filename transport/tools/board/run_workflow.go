package board

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addRunWorkflow registers run_workflow. Its reply is short: get_run has the rest.
func addRunWorkflow(s *tool.Set, e Engine) {
	add(s, e, func(e Engine, ctx context.Context, who session.Caller, a attempt.RunWorkflowArgs) (*attempt.RunMade, error) {
		r, err := e.RunWorkflow(ctx, who, a)
		if err != nil {
			return nil, err
		}
		return &attempt.RunMade{RunID: r.RunID, TaskID: r.TaskID, State: r.State, Branch: r.Branch, Workspace: r.Workspace}, nil
	}, tool.Tool{
		Name: "run_workflow", Title: "Run a workflow",
		Description: "Runs agents through a workflow, one per step, in a new worktree. Returns at once; see get_run. Its run_id is also an attempt_id.",
		Hints:       tool.Hints{Open: true},
		Input: tool.InputSchema(
			tool.Required("job_name", tool.MaxName, "From get_workflows"),
			tool.Required("workflow_name", tool.MaxName, "Its workflow"),
			tool.Required("goal", tool.MaxText, "What to accomplish"),
			tool.Optional("executor", tool.MaxName, "NAME or NAME:VARIANT. Default: run.executor"),
			number("max_cost_usd", 1e8, "Pauses the run at this cost"),
			tool.RequestID()),
		// Agents rarely need them, and a model is shown every listed one; the README lists them.
		Unlisted: []tool.Property{
			integer("parallel", 1, attempt.MaxParallel, "Agents at once. Default: as many as may run"),
			tool.Flag("in_place", "Work in the project itself. Default: only without git"),
			oneOf(tool.Optional("context", tool.MaxName, "resume: one conversation through sequential steps. Default: step"), []any{attempt.ContextStep, attempt.ContextResume}),
			integer("max_unknown", 0, 1_000_000, "Pauses the run after so many agents with an unknown cost"),
			number("max_seconds", 1e8, "Pauses the run after this time"),
		},
		Output:  runSchema[attempt.RunMade](),
		Outcome: func(r any) string { return r.(*attempt.RunMade).State },
		Recheck: "call list_tasks: the run was made only if its task is listed there",
	})
}

// runSchema sets the states that a run has.
func runSchema[R any]() *jsonschema.Schema {
	s := outputSchema[R]()
	s.Properties["state"].Enum = []any{"waiting", "starting", "running", string(attempt.RunComplete), string(attempt.RunStopped), string(attempt.RunPaused), string(attempt.RunInterrupted)}
	return s
}
