// Package cursor encodes the cursors with which clients page through lists.
package cursor

import (
	"encoding/base64"
	"strings"
)

// A List is a text that distinguishes the cursors of one list from all others.
type List string

// Encode returns the cursor of a position in the list.
func (l List) Encode(position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(string(l) + position))
}

// Decode returns the position in a cursor. ok is false if Encode cannot have returned that cursor.
func (l List) Decode(cursor string) (position string, ok bool) {
	text, _ := base64.RawURLEncoding.DecodeString(cursor)
	position, ok = strings.CutPrefix(string(text), string(l))
	return position, ok && l.Encode(position) == cursor
}
