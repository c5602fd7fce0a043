package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addTailAttempt registers tail_attempt.
func addTailAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.TailAttempt, tool.Tool{
		Name: "tail_attempt", Title: "Read an attempt's output",
		Description: "Returns lines that the agents of an attempt printed, oldest first: without after_index the last ones, with it those after it. " +
			"To follow an agent, call again with after_index set to next_index, and wait.",
		Hints: tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(attemptID(),
			integer("after_index", -1, 1<<53, "Only entries after this index: the next_index of a reply, or -1 to begin with the first one."),
			integer("limit", 1, attempt.MaxTail, "How many entries are returned at most, from 1 to 1000. Default 100."),
			tool.Property{Name: "wait", Schema: &jsonschema.Schema{Types: []string{"null", "number"}, Minimum: new(0.0), Maximum: new(float64(attempt.MaxWait)),
				Description: "How many seconds to wait for something new, from 0 to 30. Default 0: answer at once."}}),
		Smaller: "give limit, for fewer entries at once, and go on with after_index.",
	})
}
