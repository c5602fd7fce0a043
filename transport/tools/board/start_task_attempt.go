package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addStartTaskAttempt registers start_task_attempt (seed 004, "MCP task tool set").
func addStartTaskAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.StartTaskAttempt, tool.Tool{
		Name: "start_task_attempt", Title: "Start an attempt",
		Description: "Starts an agent on a task, in a new worktree and branch per repository. Returns at once; see get_attempt. " +
			"When it completes, the task is inreview.",
		Hints: tool.Hints{Open: true},
		Input: tool.InputSchema(taskID(),
			tool.Required("executor", tool.MaxName, "From list_executors"),
			tool.Optional("variant", tool.MaxName, "Of the executor"),
			tool.Property{Name: "repos", Required: true, Schema: reposSchema()},
			tool.Optional("prompt", tool.MaxText, "More instructions"),
			tool.RequestID()),
		Output:  fieldsIn("get_attempt", outputSchema[attempt.AttemptReply](), "cost", "queued_follow_up", "repos"),
		Recheck: "call list_task_attempts: the attempt was created only if it is listed there",
	})
}

func reposSchema() *jsonschema.Schema {
	item := tool.InputSchema(
		tool.Required("repo_id", tool.MaxName, "From list_repos"),
		tool.Required("target_branch", tool.MaxName, "Branch to start from, as committed"),
	)
	return &jsonschema.Schema{Type: "array", Items: item, MinItems: new(1), MaxItems: new(attempt.MaxRepos),
		Description: "Of the project"}
}
