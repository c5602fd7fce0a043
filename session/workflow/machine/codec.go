package machine

import (
	"encoding/json"
	"fmt"

	"deepwork/session"
)

// IsSessionID reports whether a text is 8 lower-case hexadecimal characters.
func IsSessionID(text string) bool {
	if len(text) != 8 {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Decode reads a session file's JSON and checks what the rest relies on.
func Decode(id string, data []byte) (*State, error) {
	var head struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	if head.FormatVersion > FormatVersion {
		return nil, session.NotNow("session_too_new",
			"Session '%s' was written by a newer deepwork (file format %d, this program knows %d). It was left untouched; use that version, or a newer one.",
			id, head.FormatVersion, FormatVersion).With("session_id", id)
	}
	s := new(State)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	if why := s.unusable(id); len(why) > 0 {
		return nil, fmt.Errorf("reading session %s: %s", id, why[0])
	}
	return s, nil
}
