package board

import "deepwork/transport/tool"

func addChangeTarget(s *tool.Set, e Engine) {
	add(s, e, Engine.ChangeTarget, tool.Tool{
		Name: "change_target", Title: "Change an attempt's target",
		Description: "Sets the branch that an attempt is compared with and merged into.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input:       tool.InputSchema(attemptID(), tool.Required("target_branch", tool.MaxName, "An existing branch"), oneRepo()),
		Output:      mergeSchema(),
		Outcome:     mergeOutcome,
		Recheck:     "call get_attempt to see target_branch",
	})
}
