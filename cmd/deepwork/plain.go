package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
)

// plain makes a text safe for a terminal: goals, notes and names come from agents, and an escape
// sequence in one of them must not reach the screen. Newlines and tabs remain.
func plain(text string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
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

// ago formats a duration in its largest unit: 12s, 5m, 3h, 9d.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
