package board

import (
	"fmt"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
	"deepwork/session/board"
)

// The kinds of messages are others than those of what needs a person, clients check both, and what may be
// null has null.
func TestKinds(t *testing.T) {
	items := outputSchema[board.AttentionReply]("needs_attention").Properties["items"].Items.Properties["kind"]
	messages := outputSchema[attempt.TailReply]("tail_attempt").Properties["messages"].Items.Properties["kind"]
	status := outputSchema[attempt.AttemptReply]("get_attempt").Properties["workflow_status"]
	got := ""
	for _, value := range []any{board.AttentionBudget, "message", "active", nil} {
		got += fmt.Sprintln(value, testkit.Get(items.Resolve(nil)).Must(t).Validate(value) == nil,
			testkit.Get(messages.Resolve(nil)).Must(t).Validate(value) == nil,
			testkit.Get(status.Resolve(nil)).Must(t).Validate(value) == nil)
	}
	testkit.Equal(t, got, fmt.Sprintln(board.AttentionBudget, true, false, false)+
		"message false true false\nactive false false true\n<nil> false false true\n")
}
