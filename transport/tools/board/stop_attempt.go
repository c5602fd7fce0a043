package board

import "deepwork/transport/tool"

// addStopAttempt registers stop_attempt.
func addStopAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.StopAttempt, tool.Tool{
		Name: "stop_attempt", Title: "Stop an attempt",
		Description: "Ends the agent of an attempt with everything it started, or takes one that waits out of the queue. What is queued for it is dropped; the worktree and all " +
			"work in it stay, the task stays inprogress, and follow_up can go on.\n\n" +
			"Returns the attempt when its agent has ended; one that had ended before is left as it is.",
		Hints:   tool.Hints{Destructive: true, Idempotent: true},
		Input:   tool.InputSchema(attemptID()),
		Output:  attemptSchema(),
		Recheck: "call get_attempt to see whether its agent has ended",
	})
}
