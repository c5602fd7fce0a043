package board

import (
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
)

// The kinds of messages are others than those of what needs a person, and clients check both.
func TestKinds(t *testing.T) {
	items := withKinds(outputSchema[attempt.AttentionReply](), "items", "a").Properties["items"].Items.Properties["kind"]
	messages := outputSchema[attempt.TailReply]().Properties["messages"].Items.Properties["kind"]
	if len(items.Enum) != 1 || messages.Enum != nil {
		t.Errorf("the kinds are %v and %v", items.Enum, messages.Enum)
	}
}

// Enums of fields that may be null have null, or replies would not fit them.
func TestNullableEnums(t *testing.T) {
	s := outputSchema[attempt.AttemptReply]()
	resolved, err := s.Properties["workflow_status"].Resolve(nil)
	testkit.Must(t, err)
	for value, fits := range map[any]bool{nil: true, "active": true, "other": false} {
		if err := resolved.Validate(value); (err == nil) != fits {
			t.Errorf("%v: %v", value, err)
		}
	}
}
