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
		Description: "Has a coding agent work on a task: it gets the task's title and description, and works in a git worktree of its own for each repository, " +
			"on a fresh branch from target_branch. Your own checkout is not touched.\n\n" +
			"Returns at once with the attempt, whose state is waiting, starting or running; keep its attempt_id. Then get_attempt tells how it stands, tail_attempt what it " +
			"prints, get_attempt_diff what it changed; follow_up tells it more. When it completes, the task's status is inreview.",
		Hints: tool.Hints{Open: true},
		Input: tool.InputSchema(taskID(),
			tool.Required("executor", tool.MaxName, "The agent to run, by the name that list_executors gives, such as CLAUDE_CODE."),
			tool.Optional("variant", tool.MaxName, "A variant of that executor, by the name that list_executors gives. Default: none."),
			tool.Property{Name: "repos", Required: true, Schema: reposSchema()},
			tool.Optional("prompt", tool.MaxText, "What the agent is told beside the task, at most 100,000 characters."),
			tool.RequestID()),
		Output:  attemptSchema(),
		Recheck: "call list_task_attempts: the attempt was made only if it is listed there",
	})
}

func reposSchema() *jsonschema.Schema {
	item := tool.InputSchema(
		tool.Required("repo_id", tool.MaxName, "The repository, as list_repos gives it."+uuidFormat),
		tool.Required("target_branch", tool.MaxName, "The branch to start from, such as main; what is committed there is what the agent sees."),
	)
	item.Description = "one repository"
	return &jsonschema.Schema{Type: "array", Items: item, MinItems: new(1), MaxItems: new(attempt.MaxRepos),
		Description: "The repositories that the agent works on, at least one, all of the task's project."}
}
