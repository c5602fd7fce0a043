package board

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// getRunSchema refers to get_attempt for costs.
func getRunSchema() *jsonschema.Schema {
	s := fieldsIn("get_attempt", runSchema[attempt.RunReply](), "cost")
	fieldsIn("executions of get_attempt", s.Properties["steps"].Items, "cost")
	return s
}

func addGetRun(s *tool.Set, get GetRun) {
	add(s, nil, func(_ Engine, ctx context.Context, who session.Caller, a attempt.RunArgs) (*attempt.RunReply, error) {
		return get(ctx, who, a)
	}, tool.Tool{
		Name: "get_run", Title: "Get a run",
		Description: "Returns a run's state and its agents; tail_attempt has their output.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input:       tool.InputSchema(tool.Required("run_id", tool.MaxName, "UUID")),
		Output:      getRunSchema(),
	})
}
