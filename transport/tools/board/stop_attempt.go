package board

import (
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

func addStopAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.StopAttempt, tool.Tool{
		Name: "stop_attempt", Title: "Stop an attempt",
		Description: "Stops an agent or a run, and drops a queued follow-up. The work stays.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input:       tool.InputSchema(attemptID()),
		Output:      fieldsIn("get_attempt", outputSchema[attempt.AttemptReply](), "cost", "queued_follow_up", "repos"),
		Recheck:     "call get_attempt to see whether its agent has ended",
	})
}
