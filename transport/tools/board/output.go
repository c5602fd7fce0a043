package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addTailAttempt registers tail_attempt.
func addTailAttempt(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.TailArgs, *attempt.TailReply]{
		Name: "tail_attempt", Title: "Read an attempt's output",
		Description: "Returns lines that the agents of an attempt printed, oldest first: without after_index the last ones, with it those after it. " +
			"To follow an agent, call again with after_index set to next_index, and wait.",
		Hints: tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(attemptID(),
			integer("after_index", -1, 1<<53, "Only entries after this index: the next_index of a reply, or -1 to begin with the first one."),
			integer("limit", 1, attempt.MaxTail, "How many entries are returned at most, from 1 to 1000. Default 100."),
			tool.Property{Name: "wait", Schema: &jsonschema.Schema{Types: []string{"null", "number"}, Minimum: new(0.0), Maximum: new(float64(attempt.MaxWait)),
				Description: "How many seconds to wait for something new, from 0 to 30. Default 0: answer at once."}}),
		Output:  outputSchema[attempt.TailReply](),
		Call:    call(e, Engine.TailAttempt),
		Smaller: "give limit, for fewer entries at once, and go on with after_index.",
	})
}

// addGetAttemptDiff registers get_attempt_diff.
func addGetAttemptDiff(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.DiffArgs, *attempt.DiffReply]{
		Name: "get_attempt_diff", Title: "See an attempt's changes",
		Description: "Returns what an attempt changed since its target branch, as git diff writes it: committed, uncommitted and untracked files alike. " +
			"If truncated is true there is more: narrow it with paths.",
		Hints: tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(attemptID(),
			tool.Property{Name: "paths", Schema: &jsonschema.Schema{Types: []string{"null", "array"}, MaxItems: new(attempt.MaxPaths),
				Items:       &jsonschema.Schema{Type: "string", MaxLength: new(4096), Description: "a file or folder, relative to the worktree, as changed_files gives it"},
				Description: "Only changes of these files and folders, relative to the worktree. Default: all."}},
			integer("max_bytes", 1, attempt.MaxDiff, "How many bytes of diff are returned at most, from 1 to 1000000. Default 100000.")),
		Output:  outputSchema[attempt.DiffReply](),
		Call:    call(e, Engine.GetAttemptDiff),
		Smaller: "give max_bytes, or paths for a part of the changes.",
	})
}
