package transport

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
)

// addListExecutors registers list_executors.
func addListExecutors(s *Server) {
	addTool(s, tool[noArgs, *attempt.ExecutorsReply]{
		name: "list_executors", title: "List executors",
		description: "Lists the coding agents that start_task_attempt can run, with their variants and whether their program is installed; those that are come first. " +
			"More are added in the config.",
		hints:  hints{readOnly: true, idempotent: true},
		input:  inputSchema(),
		output: boardSchema[attempt.ExecutorsReply](),
		call: func(ctx context.Context, c *connection, _ noArgs) (*attempt.ExecutorsReply, error) {
			return s.board.ListExecutors(ctx, c.identity)
		},
	})
}

// addStartTaskAttempt registers start_task_attempt (seed 004, "MCP task tool set").
func addStartTaskAttempt(s *Server) {
	addTool(s, tool[attempt.StartArgs, *attempt.AttemptReply]{
		name: "start_task_attempt", title: "Start an attempt",
		description: "Has a coding agent work on a task: it gets the task's title and description, and works in a git worktree of its own for each repository, " +
			"on a fresh branch from target_branch. Your own checkout is not touched.\n\n" +
			"Returns at once with the attempt, whose state is waiting, starting or running; keep its attempt_id. Then get_attempt tells how it stands, tail_attempt what it " +
			"prints, get_attempt_diff what it changed; follow_up tells it more. When it completes, the task's status is inreview.",
		hints: hints{open: true},
		input: inputSchema(taskID(),
			required("executor", maxName, "The agent to run, by the name that list_executors gives, such as CLAUDE_CODE."),
			optional("variant", maxName, "A variant of that executor, by the name that list_executors gives. Default: none."),
			property{"repos", true, reposSchema()},
			optional("prompt", maxText, "What the agent is told beside the task, at most 100,000 characters."),
			requestID()),
		output: attemptSchema(),
		call:   onBoard(s, boardEngine.StartTaskAttempt),
	})
}

func reposSchema() *jsonschema.Schema {
	item := inputSchema(
		required("repo_id", maxName, "The repository, as list_repos gives it."+uuidFormat),
		required("target_branch", maxName, "The branch to start from, such as main; what is committed there is what the agent sees."),
	)
	item.Description = "one repository"
	return &jsonschema.Schema{Type: "array", Items: item, MinItems: new(1), MaxItems: new(attempt.MaxRepos),
		Description: "The repositories that the agent works on, at least one, all of the task's project."}
}

// addListTaskAttempts registers list_task_attempts (seed 004, "list_task_attempts
// returns attempt details").
func addListTaskAttempts(s *Server) {
	addTool(s, tool[attempt.ListTaskAttemptsArgs, *attempt.AttemptsReply]{
		name: "list_task_attempts", title: "List attempts",
		description: "Lists the attempts of a task, newest first, with their branch, state and latest session. get_attempt tells more of one.\n\n" +
			"Returns attempts, latest_attempt_id, latest_session_id, count, total and next_cursor, which is null when there are no more.",
		hints:  hints{readOnly: true, idempotent: true},
		input:  inputSchema(taskID(), listLimit(), cursor()),
		output: boardSchema[attempt.AttemptsReply](),
		call:   onBoard(s, boardEngine.ListTaskAttempts),
	})
}

// addGetAttempt registers get_attempt.
func addGetAttempt(s *Server) {
	addTool(s, tool[attempt.AttemptArgs, *attempt.AttemptReply]{
		name: "get_attempt", title: "Get an attempt",
		description: "Tells how an attempt stands: its state, how its agent ended and what it said last, the step of its workflow, the follow-up that is queued, " +
			"and for each repository its worktree, how far its branch is ahead and behind, and which files are changed.",
		hints:  hints{readOnly: true, idempotent: true},
		input:  inputSchema(attemptID()),
		output: attemptSchema(),
		call:   onBoard(s, boardEngine.GetAttempt),
	})
}

// attemptSchema says that repos are worktrees here.
func attemptSchema() *jsonschema.Schema {
	s := boardSchema[attempt.AttemptReply]()
	s.Properties["repos"].Items.Description = "the worktree of one repository"
	return s
}

// addStopAttempt registers stop_attempt.
func addStopAttempt(s *Server) {
	addTool(s, tool[attempt.AttemptArgs, *attempt.AttemptReply]{
		name: "stop_attempt", title: "Stop an attempt",
		description: "Ends the agent of an attempt with everything it started, or takes one that waits out of the queue. What is queued for it is dropped; the worktree and all " +
			"work in it stay, the task stays inprogress, and follow_up can go on.\n\n" +
			"Returns the attempt when its agent has ended; one that had ended before is left as it is.",
		hints:  hints{destructive: true, idempotent: true},
		input:  inputSchema(attemptID()),
		output: attemptSchema(),
		call:   onBoard(s, boardEngine.StopAttempt),
	})
}
