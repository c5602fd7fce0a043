package board

import "deepwork/transport/tool"

// addStopAttempt registers stop_attempt.
func addStopAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.StopAttempt, tool.Tool{
		Name: "stop_attempt", Title: "Stop an attempt",
		Description: "Stops an attempt's agent and drops its queued follow-up. The work stays; follow_up continues it.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input:       tool.InputSchema(attemptID()),
		Recheck:     "call get_attempt to see whether its agent has ended",
	})
}
