package board

import "deepwork/transport/tool"

func addRebaseAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.RebaseAttempt, tool.Tool{
		Name: "rebase_attempt", Title: "Rebase an attempt",
		Description: "Rebases an attempt onto its target branch. Conflicts: as in merge_attempt.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input:       tool.InputSchema(attemptID(), oneRepo()),
		Output:      mergeSchema(),
		Outcome:     mergeOutcome,
		Recheck:     "call get_attempt: after a rebase, behind is 0",
	})
}
