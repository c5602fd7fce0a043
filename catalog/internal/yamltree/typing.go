package yamltree

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// invisible has the characters that get into files with text from web pages and chats, with their names.
var invisible = map[rune]string{
	0x85:   "next line",
	0xa0:   "no-break space",
	0xad:   "soft hyphen",
	0x200b: "zero width space",
	0x200c: "zero width non-joiner",
	0x200d: "zero width joiner",
	0x200e: "left-to-right mark",
	0x200f: "right-to-left mark",
	0x2028: "line separator",
	0x2029: "paragraph separator",
	0x202f: "narrow no-break space",
	0x2060: "word joiner",
	0x3000: "ideographic space",
	0xfeff: "byte order mark",
}

// name returns the code point of a character, with its name if it is invisible.
func name(r rune) string {
	if invisible[r] == "" {
		return fmt.Sprintf("%U", r)
	}
	return fmt.Sprintf("%U (%s)", r, invisible[r])
}

// isInvisible reports whether a character is invisible, or looks like a plain space.
func isInvisible(r rune) bool {
	return r >= utf8.RuneSelf && (invisible[r] != "" || unicode.In(r, unicode.Cf, unicode.Zs))
}

// visible returns a text without invisible characters.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if isInvisible(r) {
			return -1
		}
		return r
	}, s)
}

// invisibleIn describes an invisible character in a line, or returns "".
func invisibleIn(line []byte) string {
	for i, r := range string(line) {
		if isInvisible(r) {
			return fmt.Sprintf(" (the line has an invisible character, %s, in column %d: it may be the cause)", name(r),
				utf8.RuneCount(line[:i])+1)
		}
	}
	return ""
}

// block matches a line that introduces a block of text, in lines that are indented further.
var block = regexp.MustCompile(`^( *)[^#"']*(?:: |- )[|>][0-9+-]* *(?:#.*)?\s*$`)

// unclosedQuote returns the line of a quote that begins a value and ends in a later line, where more text
// follows it; 0 means none. The parser only reports a line after that.
func unclosedQuote(lines [][]byte) (opened int) {
	quote := byte(0)
	since := 0
	text := -1 // text: the indentation of the line before a text
	for n, line := range lines {
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		if text >= 0 && (indent > text || len(bytes.TrimSpace(line)) == 0) {
			continue
		}
		text = -1
		if m := block.FindSubmatch(line); m != nil && quote == 0 {
			text = len(m[1])
			continue
		}

		before := byte('\n') // the last nonblank character; after some of these, a quote begins a value
		for i := 0; i < len(line); i++ {
			c := line[i]
			switch {
			case quote == 0 && c == '#' && (i == 0 || line[i-1] == ' '):
				i = len(line)
			case quote == 0 && (c == '"' || c == '\'') && bytes.IndexByte([]byte("\n:-[{,"), before) >= 0:
				quote, since = c, n+1
			case quote == '"' && c == '\\', quote == '\'' && c == quote && i+1 < len(line) && line[i+1] == quote:
				i++
			case quote != 0 && c == quote:
				quote = 0
				rest := bytes.TrimSpace(line[i+1:])
				if since <= n && len(rest) > 0 && bytes.IndexByte([]byte("#,:]}"), rest[0]) < 0 {
					return since
				}
			}
			if i < len(line) && line[i] > ' ' {
				before = line[i]
			}
		}
	}

	return 0
}
