package board

import (
	"context"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

func addNeedsAttention(s *tool.Set, e Engine) {
	add(s, e, func(e Engine, ctx context.Context, who session.Caller, _ tool.NoArgs) (*attempt.AttentionReply, error) {
		return e.NeedsAttention(ctx, who)
	}, tool.Tool{
		Name: "needs_attention", Title: "List what needs a person",
		Description: "Lists what waits for a person, and the commands for it.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output: withKinds(outputSchema[attempt.AttentionReply](), "items",
			attempt.AttentionFailed, attempt.AttentionRun, attempt.AttentionReview, attempt.AttentionUntrusted, attempt.AttentionBudget, attempt.AttentionStep),
	})
}
