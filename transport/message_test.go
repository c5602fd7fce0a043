package transport

import (
	"encoding/json"
	"testing"
)

// Ids are texts, or integers that a client that has floats alone can tell apart.
func TestIDsOfMessages(t *testing.T) {
	for id, fits := range map[string]bool{
		`"x"`: true, `""`: true, "1": true, "-5": true, "1.0": true, "9007199254740992": true, "-9007199254740992": true,
		"9007199254740993": false, "-9007199254740993": false, "9223372036854775808": false, "1.5": false, "1e300": false, "true": false, "[1]": false,
	} {
		if got, err := decodeID(json.RawMessage(id)); (err == nil) != fits {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
}
