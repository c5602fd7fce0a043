package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addGetAttempt registers get_attempt.
func addGetAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.GetAttempt, tool.Tool{
		Name: "get_attempt", Title: "Get an attempt",
		Description: "Tells how an attempt stands: its state, how its agent ended and what it said last, the step of its workflow, the follow-up that is queued, " +
			"and for each repository its worktree, how far its branch is ahead and behind, and which files are changed.",
		Hints:  tool.Hints{ReadOnly: true, Idempotent: true},
		Input:  tool.InputSchema(attemptID()),
		Output: attemptSchema(),
	})
}

// attemptSchema says that repos are worktrees here.
func attemptSchema() *jsonschema.Schema {
	s := outputSchema[attempt.AttemptReply]()
	s.Properties["repos"].Items.Description = "the worktree of one repository"
	return s
}
