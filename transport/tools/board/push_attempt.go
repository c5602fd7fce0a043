package board

import (
	"deepwork/transport/tool"
)

func addPushAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.PushAttempt, tool.Tool{
		Name: "push_attempt", Title: "Push an attempt",
		Description: "Pushes an attempt's branch, under the same name.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true, Open: true},
		Input: tool.InputSchema(attemptID(), oneRepo(),
			tool.Optional("remote", tool.MaxName, "Default: origin"),
			tool.Flag("force", "Replace it unless others pushed. Default: false")),
		Output:  mergeSchema(),
		Outcome: mergeOutcome,
		Recheck: "call get_attempt, and push again",
	})
}
