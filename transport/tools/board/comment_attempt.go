package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

func addCommentAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.CommentAttempt, tool.Tool{
		Name: "comment_attempt", Title: "Comment on an attempt's changes",
		Description: "Collects and lists comments on an attempt's diff; send gives them to its agent as a follow-up.",
		Hints:       tool.Hints{Destructive: true, Open: true},
		Input: tool.InputSchema(attemptID(),
			tool.Property{Name: "comments", Schema: &jsonschema.Schema{Types: []string{"null", "array"}, MaxItems: new(task.MaxComments), Items: commentSchema(),
				Description: "To add"}},
			texts("remove", task.MaxComments, tool.MaxName, "comment_ids, or all"),
			tool.Flag("send", "Default: false"),
			tool.RequestID()),
		Outcome: func(r any) string {
			if sent := r.(*attempt.CommentsReply).Sent; sent != nil {
				return *sent
			}
			return "kept"
		},
		Recheck: "call get_attempt to see whether a follow-up was started or queued; a call with the same request_id adds and sends nothing twice",
	})
}

func commentSchema() *jsonschema.Schema {
	return tool.InputSchema(
		tool.Required("file", 4096, "Path"),
		tool.Property{Name: "line", Required: true, Schema: &jsonschema.Schema{Type: "integer", Minimum: new(1.0), Description: "From 1"}},
		oneOf(tool.Optional("side", tool.MaxName, "old: the file before. Default: new"), []any{task.NewSide, task.OldSide}),
		tool.Required("text", task.MaxComment, "The comment"),
		tool.Optional("repo", tool.MaxName, "Name, if several"),
	)
}
