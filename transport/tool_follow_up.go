package transport

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
)

// addFollowUp registers follow_up (seed 004, "follow_up targeting" and "MCP
// follow-up tool").
func addFollowUp(s *Server) {
	addTool(s, tool[attempt.FollowUpArgs, *attempt.FollowUpReply]{
		name: "follow_up", title: "Follow up an attempt",
		description: "Tells the agent of an attempt more, in the same conversation and the same worktree. Give attempt_id (its latest session is meant) or session_id, not both.\n\n" +
			"- send: runs at once; refused while the agent runs.\n" +
			"- queue: runs when the current run ends, at once if none does; it replaces what was queued.\n" +
			"- cancel: drops what is queued.\n\n" +
			"Returns status: started, queued, cancelled, or empty where there was nothing to cancel. An attempt whose agent never ran has no session, and is an error.",
		hints: hints{destructive: true, open: true}, // cancel drops, and queue replaces, what was queued
		input: inputSchema(
			optional("attempt_id", maxName, "The attempt, as start_task_attempt or list_task_attempts gives it; exactly one of this and session_id."+uuidFormat),
			optional("session_id", maxName, "The session, as latest_session_id of an attempt gives it; exactly one of this and attempt_id."+uuidFormat),
			oneOf(required("action", maxName, "send, queue or cancel."), []any{attempt.ActionSend, attempt.ActionQueue, attempt.ActionCancel}),
			optional("prompt", maxText, "What the agent is told, at most 100,000 characters; needed for send and queue."),
			optional("variant", maxName, "The executor's variant for this run, by the name that list_executors gives. Default: the session's."),
		),
		// Earlier clients call an attempt a workspace (DESIGN "Task board").
		unlisted: []property{optional("workspace_id", maxName, "Another name for attempt_id.")},
		output:   followUpSchema(),
		session:  func(a *attempt.FollowUpArgs) *string { return a.SessionID },
		outcome:  func(r *attempt.FollowUpReply) string { return r.Status },
		call:     onBoard(s, boardEngine.FollowUp),
	})
}

// followUpSchema gives status the values it has here.
func followUpSchema() *jsonschema.Schema {
	s := boardSchema[attempt.FollowUpReply]()
	s.Properties["status"].Enum = []any{attempt.FollowUpStarted, attempt.FollowUpQueued, attempt.FollowUpCancelled, attempt.FollowUpEmpty}
	return s
}
