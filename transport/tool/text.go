package tool

import (
	"encoding/base64"
	"strings"
	"unicode"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
	"deepwork/session"
)

// OneLine makes text from a file fit on one line, in at most max bytes.
func OneLine(text string, max int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) <= max {
		return text
	}
	cut := max - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// Plain removes invisible characters from a source's text, which could hide something from its
// reader: control characters other than line breaks and tabs, and formatting characters.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u200c' || r == '\u200d': // the last two are part of words
			return r
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// cursorMark distinguishes these cursors from the SDK's.
const cursorMark = "workflow:"

// EncodeCursor returns the cursor of the page after an entry.
func EncodeCursor(last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorMark + last))
}

// DecodeCursor returns the entry of a cursor that EncodeCursor returned.
func DecodeCursor(cursor string) (last string, ours bool) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(text), cursorMark)
}

// CursorArgument decodes the argument cursor, which may be nil. next is the field of
// replies that it is taken from.
func CursorArgument(cursor *string, next string) (last string, given bool, err error) {
	if cursor == nil {
		return "", false, nil
	}
	if last, given = DecodeCursor(*cursor); !given {
		shown := jsontext.Clip(*cursor, 100)
		return "", false, session.Wrong("invalid_argument", "Argument \"cursor\" is %q, which is none of ours: pass %s of the page before, or leave it out.", shown, next).
			With("argument", "cursor").With("value", shown)
	}
	return last, true, nil
}
