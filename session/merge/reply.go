package merge

import (
	"deepwork/session/attempt"
)

// DiffReply answers get_attempt_diff.
type DiffReply struct {
	AttemptID string             `json:"attempt_id" jsonschema:"UUID of the attempt"`
	Diffs     []attempt.RepoDiff `json:"diffs" jsonschema:"the changes, one entry per repository"`
	Truncated bool               `json:"truncated" jsonschema:"whether a part was left out"`
	Notice    *string            `json:"notice" jsonschema:"a hint, or null"`
}
