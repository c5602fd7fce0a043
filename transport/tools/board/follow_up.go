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
		Description: "Gives an agent more work in its conversation, or resumes a run. Give attempt_id or session_id.",
		Hints:       tool.Hints{Destructive: true, Open: true}, // cancel drops, and queue replaces, what was queued
		Input: tool.InputSchema(
			tool.Optional("attempt_id", tool.MaxName, "UUID"),
			tool.Optional("session_id", tool.MaxName, "UUID: latest_session_id"),
			oneOf(tool.Required("action", tool.MaxName, "send: now; queue: when it ends, replacing what is queued; cancel: drop that"), []any{attempt.ActionSend, attempt.ActionQueue, attempt.ActionCancel}),
			tool.Optional("prompt", tool.MaxText, "For send and queue"),
			tool.Optional("variant", tool.MaxName, "Default: the session's"),
		),
		// Earlier clients call an attempt a workspace (DESIGN "Task board").
		Unlisted: []tool.Property{tool.Optional("workspace_id", tool.MaxName, "Another name for attempt_id.")},
		Output:   followUpSchema(),
		Session:  "session_id",
		Outcome:  func(r any) string { return r.(*attempt.FollowUpReply).Status },
		Recheck:  "call get_attempt to see its state and what is queued",
	})
}

// followUpSchema sets the values that status has here.
func followUpSchema() *jsonschema.Schema {
	s := outputSchema[attempt.FollowUpReply]()
	s.Properties["status"].Enum = []any{attempt.FollowUpStarted, attempt.FollowUpQueued, attempt.FollowUpCancelled, attempt.FollowUpEmpty}
	return s
}
