package machine

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
)

// IsSessionID reports whether a text is 8 lower-case hexadecimal characters.
func IsSessionID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == 4 && strings.ToLower(text) == text
}

// A HeadOf is the part of an encoded session that stores need to know.
type HeadOf struct {
	Owner      string
	Identity   string
	Status     SessionStatus
	Seq        int64
	Definition DefinitionRef
}

// Head returns the head of an encoded session; the zero value, or a part of it, if it is not one.
// Nothing else of the session is decoded, as each write asks for it.
func Head(data []byte) (h HeadOf) {
	to := map[string]any{"owner": &h.Owner, "identity": &h.Identity, "status": &h.Status, "seq": &h.Seq, "definition": &h.Definition}
	for name, value := range jsontext.Fields(data) {
		if field := to[name]; field != nil && json.Unmarshal(value, field) != nil {
			return HeadOf{}
		}
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
