package board

import (
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

func addTailAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.TailAttempt, tool.Tool{
		Name: "tail_attempt", Title: "Read an attempt's output",
		Description: "Returns an agent's output. To follow it, give next_index as after_index, with wait.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(attemptID(),
			tool.Optional("execution_id", tool.MaxName, "UUID from get_attempt or get_run. Default: all"),
			integer("after_index", -1, 1<<53, "next_index; -1: the start. Default: the end"),
			integer("limit", 1, attempt.MaxTail, "Default: 100"),
			number("wait", attempt.MaxWait, "Seconds, to 30. Default: 0"),
			tool.Flag("raw", "The lines as printed")),
		Output: withKinds(outputSchema[attempt.TailReply](), "messages",
			"message", "reasoning", "tool_call", "tool_result", "error", "output", "stderr", "system"),
		Smaller: "give a smaller limit, and continue with after_index.",
	})
}
