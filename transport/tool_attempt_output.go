package transport

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
)

// addTailAttempt registers tail_attempt.
func addTailAttempt(s *Server) {
	addTool(s, tool[attempt.TailArgs, *attempt.TailReply]{
		name: "tail_attempt", title: "Read an attempt's output",
		description: "Returns lines that the agents of an attempt printed, oldest first: without after_index the last ones, with it those after it. " +
			"To follow an agent, call again with after_index set to next_index, and wait.",
		hints: hints{readOnly: true, idempotent: true},
		input: inputSchema(attemptID(),
			integer("after_index", -1, 1<<53, "Only entries after this index: the next_index of a reply, or -1 to begin with the first one."),
			integer("limit", 1, attempt.MaxTail, "How many entries are returned at most, from 1 to 1000. Default 100."),
			property{"wait", false, &jsonschema.Schema{Types: []string{"null", "number"}, Minimum: new(0.0), Maximum: new(float64(attempt.MaxWait)),
				Description: "How many seconds to wait for something new, from 0 to 30. Default 0: answer at once."}}),
		output: boardSchema[attempt.TailReply](),
		call:   onBoard(s, boardEngine.TailAttempt),
	})
}

// addGetAttemptDiff registers get_attempt_diff.
func addGetAttemptDiff(s *Server) {
	addTool(s, tool[attempt.DiffArgs, *attempt.DiffReply]{
		name: "get_attempt_diff", title: "See an attempt's changes",
		description: "Returns what an attempt changed since its target branch, as git diff writes it: committed, uncommitted and untracked files alike. " +
			"If truncated is true there is more: narrow it with paths.",
		hints: hints{readOnly: true, idempotent: true},
		input: inputSchema(attemptID(),
			property{"paths", false, &jsonschema.Schema{Types: []string{"null", "array"}, MaxItems: new(attempt.MaxPaths),
				Items:       &jsonschema.Schema{Type: "string", MaxLength: new(4096), Description: "a file or folder, relative to the worktree, as changed_files gives it"},
				Description: "Only changes of these files and folders, relative to the worktree. Default: all."}},
			integer("max_bytes", 1, attempt.MaxDiff, "How many bytes of diff are returned at most, from 1 to 1000000. Default 100000.")),
		output: boardSchema[attempt.DiffReply](),
		call:   onBoard(s, boardEngine.GetAttemptDiff),
	})
}
