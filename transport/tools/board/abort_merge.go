package board

import "deepwork/transport/tool"

func addAbortMerge(s *tool.Set, e Engine) {
	add(s, e, Engine.AbortMerge, tool.Tool{
		Name: "abort_merge", Title: "Abort a merge",
		Description: "Undoes a merge with conflicts. What was resolved is kept under the git refs in rescue.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input:       tool.InputSchema(attemptID(), oneRepo()),
		Output:      mergeSchema(),
		Outcome:     mergeOutcome,
		Recheck:     "call get_attempt to see whether the worktree has changes",
	})
}
