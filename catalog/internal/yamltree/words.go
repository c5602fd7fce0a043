package yamltree

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// PositionAt returns the position of an offset in a file.
func PositionAt(file []byte, offset int) Position {
	before := file[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return Position{bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[start:]) + 1}
}

// NotUTF8 returns the offset of the first byte that is not UTF-8, if there is one.
func NotUTF8(file []byte) (offset int, found bool) {
	for offset < len(file) {
		r, size := utf8.DecodeRune(file[offset:])
		if r == utf8.RuneError && size == 1 {
			return offset, true
		}
		offset += size
	}
	return 0, false
}

// maxQuoted bounds the part of a file's text that a message repeats, in bytes.
const maxQuoted = 80

// Clip shortens a text for a message.
func Clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Quote quotes a text for a message, shortened.
func Quote(s string) string { return strconv.QuoteToGraphic(Clip(s)) }

// plain reports whether a name can be written in a path or list without quotes.
func plain(s string) bool {
	return s != "" && len(s) <= maxQuoted && strings.IndexFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	}) < 0
}

// Join joins names for a message, at most ten of them; a message is one line, so names that are not
// plain are quoted.
func Join(names []string) string {
	const most = 10
	shown := make([]string, min(len(names), most))
	for i := range shown {
		if shown[i] = names[i]; !plain(names[i]) {
			shown[i] = Quote(names[i])
		}
	}
	text := strings.Join(shown, ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// pathText returns a path of keys and indices, such as steps[2].outputs.report.type.
func pathText(path []any) string {
	var b strings.Builder
	for _, step := range path {
		key, isKey := step.(string)
		switch {
		case !isKey:
			fmt.Fprintf(&b, "[%d]", step)
		case !plain(key):
			b.WriteString("[" + Quote(key) + "]")
		case b.Len() > 0:
			b.WriteString("." + key)
		default:
			b.WriteString(key)
		}
	}
	return b.String()
}
