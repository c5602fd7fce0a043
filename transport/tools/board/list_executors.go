package board

import (
	"context"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

func addListExecutors(s *tool.Set, e Engine) {
	add(s, e, func(e Engine, ctx context.Context, who session.Caller, _ tool.NoArgs) (*attempt.ExecutorsReply, error) {
		return e.ListExecutors(ctx, who)
	}, tool.Tool{
		Name: "list_executors", Title: "List executors",
		Description: "Lists the executors of agents, and their variants.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
	})
}
