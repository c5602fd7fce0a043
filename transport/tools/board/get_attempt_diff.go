package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addGetAttemptDiff registers get_attempt_diff.
func addGetAttemptDiff(s *tool.Set, e Engine) {
	add(s, e, Engine.GetAttemptDiff, tool.Tool{
		Name: "get_attempt_diff", Title: "See an attempt's changes",
		Description: "Returns what an attempt changed since its target branch, as git diff writes it: committed, uncommitted and untracked files alike. " +
			"If truncated is true there is more: narrow it with paths.",
		Hints: tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(attemptID(),
			tool.Property{Name: "paths", Schema: &jsonschema.Schema{Types: []string{"null", "array"}, MaxItems: new(attempt.MaxPaths),
				Items:       &jsonschema.Schema{Type: "string", MaxLength: new(4096), Description: "a file or folder, relative to the worktree, as changed_files gives it"},
				Description: "Only changes of these files and folders, relative to the worktree. Default: all."}},
			integer("max_bytes", 1, attempt.MaxDiff, "How many bytes of diff are returned at most, from 1 to 1000000. Default 100000.")),
		Smaller: "give max_bytes, or paths for a part of the changes.",
	})
}
