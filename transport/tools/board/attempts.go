package board

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addListExecutors registers list_executors.
func addListExecutors(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[tool.NoArgs, *attempt.ExecutorsReply]{
		Name: "list_executors", Title: "List executors",
		Description: "Lists the coding agents that start_task_attempt can run, with their variants and whether their program is installed; those that are come first. " +
			"More are added in the config.",
		Hints:  tool.Hints{ReadOnly: true, Idempotent: true},
		Input:  tool.InputSchema(),
		Output: outputSchema[attempt.ExecutorsReply](),
		Call: func(ctx context.Context, c *tool.Caller, _ tool.NoArgs) (*attempt.ExecutorsReply, error) {
			return e.ListExecutors(ctx, c.Identity)
		},
	})
}

// addStartTaskAttempt registers start_task_attempt (seed 004, "MCP task tool set").
func addStartTaskAttempt(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.StartArgs, *attempt.AttemptReply]{
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
		Call:    call(e, Engine.StartTaskAttempt),
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

// addListTaskAttempts registers list_task_attempts (seed 004, "list_task_attempts
// returns attempt details").
func addListTaskAttempts(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.ListTaskAttemptsArgs, *attempt.AttemptsReply]{
		Name: "list_task_attempts", Title: "List attempts",
		Description: "Lists the attempts of a task, newest first, with their branch, state and latest session. get_attempt tells more of one.\n\n" +
			"Returns attempts, latest_attempt_id, latest_session_id, count, total and next_cursor, which is null when there are no more.",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Input:   tool.InputSchema(taskID(), listLimit(), cursor()),
		Output:  outputSchema[attempt.AttemptsReply](),
		Call:    call(e, Engine.ListTaskAttempts),
		Smaller: smallerPage,
	})
}

// addGetAttempt registers get_attempt.
func addGetAttempt(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.AttemptArgs, *attempt.AttemptReply]{
		Name: "get_attempt", Title: "Get an attempt",
		Description: "Tells how an attempt stands: its state, how its agent ended and what it said last, the step of its workflow, the follow-up that is queued, " +
			"and for each repository its worktree, how far its branch is ahead and behind, and which files are changed.",
		Hints:  tool.Hints{ReadOnly: true, Idempotent: true},
		Input:  tool.InputSchema(attemptID()),
		Output: attemptSchema(),
		Call:   call(e, Engine.GetAttempt),
	})
}

// attemptSchema says that repos are worktrees here.
func attemptSchema() *jsonschema.Schema {
	s := outputSchema[attempt.AttemptReply]()
	s.Properties["repos"].Items.Description = "the worktree of one repository"
	return s
}

// addStopAttempt registers stop_attempt.
func addStopAttempt(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.AttemptArgs, *attempt.AttemptReply]{
		Name: "stop_attempt", Title: "Stop an attempt",
		Description: "Ends the agent of an attempt with everything it started, or takes one that waits out of the queue. What is queued for it is dropped; the worktree and all " +
			"work in it stay, the task stays inprogress, and follow_up can go on.\n\n" +
			"Returns the attempt when its agent has ended; one that had ended before is left as it is.",
		Hints:   tool.Hints{Destructive: true, Idempotent: true},
		Input:   tool.InputSchema(attemptID()),
		Output:  attemptSchema(),
		Call:    call(e, Engine.StopAttempt),
		Recheck: "call get_attempt to see whether its agent has ended",
	})
}
