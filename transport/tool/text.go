package tool

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"deepwork/catalog/cursor"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
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

// Workflows is the list of workflows, whose cursors hold the last entry of a page. The
// text distinguishes them from the SDK's.
const Workflows cursor.List = "workflow:"

// CursorArgument decodes the argument cursor, which may be nil. next is the field of
// replies that it is taken from.
func CursorArgument(cursor *string, next string) (last string, given bool, err error) {
	if cursor == nil {
		return "", false, nil
	}
	if last, given = Workflows.Decode(*cursor); !given {
		shown := jsontext.Clip(*cursor, 100)
		return "", false, session.Wrong(codes.InvalidArgument, "Argument \"cursor\" is %q, which is not a cursor of this list: pass %s of the previous reply, or leave it out.", shown, next).
			With("argument", "cursor").With("value", shown)
	}
	return last, true, nil
}
