package board

import (
	"testing"

	"deepwork/session/attempt"
)

// Enums of fields that may be null have null, or replies would not fit them.
func TestNullableEnums(t *testing.T) {
	s := outputSchema[attempt.AttemptReply]()
	resolved, err := s.Properties["workflow_status"].Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for value, fits := range map[any]bool{nil: true, "active": true, "other": false} {
		if err := resolved.Validate(value); (err == nil) != fits {
			t.Errorf("%v: %v", value, err)
		}
	}
}
