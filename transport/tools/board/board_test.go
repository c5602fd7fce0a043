package board

import (
	"slices"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
	"deepwork/session/board"
)

// The kinds of messages are others than those of what needs a person, and clients check both.
func TestKinds(t *testing.T) {
	items := outputSchema[board.AttentionReply]("needs_attention").Properties["items"].Items.Properties["kind"]
	messages := outputSchema[attempt.TailReply]("tail_attempt").Properties["messages"].Items.Properties["kind"]
	if !slices.Contains(items.Enum, board.AttentionBudget) || slices.Contains(items.Enum, "message") || !slices.Contains(messages.Enum, "message") {
		t.Errorf("the kinds are %v and %v", items.Enum, messages.Enum)
	}
}

// Enums of fields that may be null have null, or replies would not fit them.
func TestNullableEnums(t *testing.T) {
	s := outputSchema[attempt.AttemptReply]("get_attempt")
	resolved := testkit.Get(s.Properties["workflow_status"].Resolve(nil)).Must(t)
	for value, fits := range map[any]bool{nil: true, "active": true, "other": false} {
		if err := resolved.Validate(value); (err == nil) != fits {
			t.Errorf("%v: %v", value, err)
		}
	}
}
