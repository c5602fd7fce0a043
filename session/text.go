package session

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Digest returns the hex SHA-256 of a text.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Quoted returns names for a message: 'a', 'b', 'c'.
func Quoted(names []string) string {
	if len(names) == 0 {
		return "(none)"
	}
	return "'" + strings.Join(names, "', '") + "'"
}
