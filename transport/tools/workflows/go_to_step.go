package workflows

import (
	"deepwork/transport/tool"
)

func addGoToStep(s *tool.Set) {
	add(s, tool.WorkflowCaller.GoTo, tool.Tool{
		Name: "go_to_step", Title: "Go back to a step",
		Description: "Goes back to an earlier step or restarts the current one, clearing its progress and that of all later steps; files stay. Then do begin_step.",
		Hints:       tool.Hints{Destructive: true},
		Input: tool.InputSchema(
			tool.Required("step_id", tool.MaxName, "The current step or an earlier one"),
			tool.Flag("all", "true: if step_id is in a concurrent group, restart the whole group; default: that member alone"),
			tool.SessionID(),
			tool.RequestID(),
		),
		Session: "session_id",
		Recheck: seeStep,
	})
}
