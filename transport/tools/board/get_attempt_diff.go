package board

import (
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

func addGetAttemptDiff(s *tool.Set, e Engine) {
	add(s, e, Engine.GetAttemptDiff, tool.Tool{
		Name: "get_attempt_diff", Title: "See an attempt's changes",
		Description: "Returns an attempt's changes as git diff, with untracked files. If truncated, give paths.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(attemptID(),
			texts("paths", attempt.MaxPaths, 4096, "Files or folders. Default: all"),
			integer("max_bytes", 1, attempt.MaxDiff, "Default: 100000")),
		Smaller: "give a smaller max_bytes, or paths for a part of the changes.",
	})
}
