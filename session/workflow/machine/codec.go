package machine

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"deepwork/session"
)

// IsSessionID reports whether a text is 8 lower-case hexadecimal characters.
func IsSessionID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == 4 && strings.ToLower(text) == text
}

// Decode decodes a session's JSON, such as an export, and validates it.
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
