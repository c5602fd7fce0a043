package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

var mergeWays = []any{"merge", "squash", "rebase"}

func addMergeAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.MergeAttempt, tool.Tool{
		Name: "merge_attempt", Title: "Merge an attempt",
		Description: "Merges an attempt into its target branch. Conflicts are left in its worktree: use follow_up or abort_merge.",
		Hints:       tool.Hints{Destructive: true},
		Input: tool.InputSchema(attemptID(), oneRepo(),
			oneOf(tool.Optional("way", tool.MaxName, "Default: merge"), mergeWays),
			tool.Optional("message", tool.MaxText, "Of the new commit")),
		Output:  mergeSchema(),
		Outcome: mergeOutcome,
		Recheck: "call get_attempt: of merged work, ahead is 0",
	})
}

// mergeSchema sets the values that status has here.
func mergeSchema() *jsonschema.Schema {
	s := outputSchema[attempt.MergeReply]()
	s.Properties["repos"].Items.Properties["status"].Enum = []any{attempt.Merged, attempt.Unchanged, attempt.Rebased, attempt.Updated,
		attempt.Conflicts, attempt.Aborted, attempt.Pushed, attempt.Retargeted}
	return s
}

// mergeOutcome returns the status of the last repository, for the log.
func mergeOutcome(r any) string {
	repos := r.(*attempt.MergeReply).Repos
	if len(repos) == 0 {
		return "ok"
	}
	return repos[len(repos)-1].Status
}
