package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
)

// plain makes a text safe for a terminal: goals, notes and names come from agents, and an escape
// sequence in one of them must not reach the screen, nor a character that is not seen. They become
// escapes as in JSON. Newlines and tabs remain.
func plain(text string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unseen(r):
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unseen reports whether a character shows as nothing, or moves the text around it: control and
// format characters, separators of lines and paragraphs, fillers, and those that are not assigned.
// Blanks are seen, and the selector of an emoji's form.
func unseen(r rune) bool {
	switch {
	case r == '\ufe0e' || r == '\ufe0f' || unicode.Is(unicode.Zs, r):
		return false
	case r == '\u2800': // a pattern of Braille without dots
		return true
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// inline is plain for a text that is to stay on one line: a name or path.
func inline(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(plain(text))
}

// A plainWriter makes text written to w safe for a terminal, as plain does: names and paths come
// from the authors of the project.
type plainWriter struct {
	w io.Writer

	mu   sync.Mutex
	tail []byte // the first bytes of an incomplete character
}

func (p *plainWriter) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Concat(p.tail, text)
	whole := len(all)
	for n := 1; n < utf8.UTFMax && n <= len(all); n++ {
		if start := len(all) - n; utf8.RuneStart(all[start]) {
			if !utf8.FullRune(all[start:]) {
				whole = start
			}
			break
		}
	}
	p.tail = slices.Clone(all[whole:])
	if _, err := io.WriteString(p.w, plain(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// oneLine converts a text to one line of at most limit characters.
func oneLine(text string, limit int) string {
	return jsontext.Clip(strings.Join(strings.Fields(plain(text)), " "), limit)
}

// indent inserts prefix before every line that is not empty.
func indent(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, "\r\n") != "" {
			b.WriteString(prefix)
		}
		b.WriteString(line)
	}
	return b.String()
}
