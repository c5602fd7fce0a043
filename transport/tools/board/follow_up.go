package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addFollowUp registers follow_up (seed 004, "follow_up targeting" and "MCP
// follow-up tool").
func addFollowUp(s *tool.Set, e Engine) {
	add(s, e, Engine.FollowUp, tool.Tool{
		Name: "follow_up", Title: "Follow up an attempt",
		Description: "Tells the agent of an attempt more, in the same conversation and the same worktree. Give attempt_id (its latest session is meant) or session_id, not both.\n\n" +
			"- send: runs at once; refused while the agent runs.\n" +
			"- queue: runs when the current run ends, at once if none does; it replaces what was queued.\n" +
			"- cancel: drops what is queued.\n\n" +
			"Returns status: started, queued, cancelled, or empty where there was nothing to cancel. An attempt whose agent never ran has no session, and is an error.",
		Hints: tool.Hints{Destructive: true, Open: true}, // cancel drops, and queue replaces, what was queued
		Input: tool.InputSchema(
			tool.Optional("attempt_id", tool.MaxName, "The attempt, as start_task_attempt or list_task_attempts gives it; exactly one of this and session_id."+uuidFormat),
			tool.Optional("session_id", tool.MaxName, "The session, as latest_session_id of an attempt gives it; exactly one of this and attempt_id."+uuidFormat),
			oneOf(tool.Required("action", tool.MaxName, "send, queue or cancel."), []any{attempt.ActionSend, attempt.ActionQueue, attempt.ActionCancel}),
			tool.Optional("prompt", tool.MaxText, "What the agent is told, at most 100,000 characters; needed for send and queue."),
			tool.Optional("variant", tool.MaxName, "The executor's variant for this run, by the name that list_executors gives. Default: the session's."),
		),
		// Earlier clients call an attempt a workspace (DESIGN "Task board").
		Unlisted: []tool.Property{tool.Optional("workspace_id", tool.MaxName, "Another name for attempt_id.")},
		Output:   followUpSchema(),
		Session:  "session_id",
		Outcome:  func(r any) string { return r.(*attempt.FollowUpReply).Status },
		Recheck:  "call get_attempt to see what its agent does and what is queued",
	})
}

// followUpSchema sets the values that status has here.
func followUpSchema() *jsonschema.Schema {
	s := outputSchema[attempt.FollowUpReply]()
	s.Properties["status"].Enum = []any{attempt.FollowUpStarted, attempt.FollowUpQueued, attempt.FollowUpCancelled, attempt.FollowUpEmpty}
	return s
}
