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

// A HeadOf is the part of an encoded session that stores need to know.
type HeadOf struct {
	Owner      string        `json:"owner"`
	Identity   string        `json:"identity"`
	Status     SessionStatus `json:"status"`
	Seq        int64         `json:"seq"`
	Definition DefinitionRef `json:"definition"`
}

// Head returns the head of an encoded session; the zero value if it is not one.
func Head(data []byte) (h HeadOf) {
	if json.Unmarshal(data, &h) != nil {
		return HeadOf{}
	}
	return h
}

// Decode decodes a session file's JSON and validates it.
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
