package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

func addGetAttemptDiff(s *tool.Set, e Engine) {
	add(s, e, Engine.GetAttemptDiff, tool.Tool{
		Name: "get_attempt_diff", Title: "See an attempt's changes",
		Description: "Returns an attempt's changes as git diff, with untracked files. If truncated, give paths.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(attemptID(),
			tool.Property{Name: "paths", Schema: &jsonschema.Schema{Types: []string{"null", "array"}, MaxItems: new(attempt.MaxPaths),
				Items:       &jsonschema.Schema{Type: "string", MaxLength: new(4096)},
				Description: "Files or folders. Default: all"}},
			integer("max_bytes", 1, attempt.MaxDiff, "Default: 100000")),
		Smaller: "give a smaller max_bytes, or paths for a part of the changes.",
	})
}
