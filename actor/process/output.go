package process

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapes matches terminal escape sequences: colours, titles.
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])`)

// tailSize is the length of Error.Tail, in bytes.
const tailSize = 2000

// A capture stores what is written, up to a limit, or passes it on.
type capture struct {
	limit   int
	to      io.Writer // nil stores it
	failed  error     // of to; owned by the reader until it has returned
	size    int
	data    []byte        // owned by the reader until it has returned
	over    bool          // owned by the reader until it has returned
	flooded chan struct{} // closed by the reader when the limit is passed
}

func newCapture(limit int, to io.Writer) *capture {
	return &capture{limit: limit, to: to, flooded: make(chan struct{})}
}

// Write stores what fits, and fails if that is not everything.
func (c *capture) Write(p []byte) (int, error) {
	n := min(len(p), c.limit-c.size)
	c.size += n
	if c.to == nil {
		c.data = append(c.data, p[:n]...)
	} else if _, c.failed = c.to.Write(p[:n]); c.failed != nil {
		close(c.flooded)
		return 0, c.failed
	}
	if n < len(p) {
		c.over = true
		close(c.flooded)
		return n, ErrTooMuchOutput
	}
	return n, nil
}

// A tail stores the last bytes of what is written.
type tail struct {
	limit int
	data  []byte // at most twice the limit; owned by the reader until it has returned
	cut   bool   // bytes before data were dropped
}

// Write stores the end of everything written so far.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.limit {
		p, t.data, t.cut = p[len(p)-t.limit:], t.data[:0], true
	}
	if len(t.data)+len(p) > 2*t.limit {
		t.data = t.data[:copy(t.data, lastBytes(t.data, t.limit))]
		t.cut = true
	}
	t.data = append(t.data, p...)
	return n, nil
}

// text returns the stored text, from the beginning of a line if it has one.
func (t *tail) text() string {
	if !t.cut && len(t.data) <= t.limit {
		return string(t.data)
	}
	return fromLine(string(lastBytes(t.data, t.limit)))
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// fromLine drops the partial line at the beginning of s, unless s has no other.
func fromLine(s string) string {
	if i := strings.IndexByte(s, '\n'); i >= 0 && strings.TrimSpace(s[i:]) != "" {
		return s[i+1:]
	}
	return s
}

// Tail returns the last lines of a program's output, at most size bytes of valid UTF-8, without
// terminal escapes, control characters and surrounding blanks, ready to be shown to people and
// agents.
func Tail(s string, size int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == unicode.ReplacementChar, unicode.IsControl(r):
			return -1
		}
		return r
	}, escapes.ReplaceAllString(s, "")))

	if len(s) <= size {
		return s
	}
	return strings.TrimSpace(strings.ToValidUTF8(fromLine(s[len(s)-size:]), ""))
}

// Lines is a writer that splits its input into lines of at most max bytes, never within a
// character, and passes on complete ones. It stores at most one line. It is for one goroutine.
type Lines struct {
	// Breaks keeps the "\n" at the end of each line, and a "\r" before it. A piece without one continues in
	// the next.
	Breaks bool

	max   int
	give  func(lines [][]byte)
	cut   bool   // drop the rest of a line that is too long
	rest  []byte // the beginning of an incomplete line
	lines [][]byte
	split bool // rest continues a line that was passed on in part
}

// NewLines returns a Lines. The lines have no line breaks, unless Breaks is set, and are valid only during the call of
// give.
func NewLines(max int, give func(lines [][]byte)) *Lines { return &Lines{max: max, give: give} }

// Write passes on the complete lines. It never fails.
func (s *Lines) Write(p []byte) (int, error) {
	n, held := len(p), s.rest
	for {
		line, after, whole := bytes.Cut(p, []byte("\n"))
		if len(held) > 0 {
			s.rest = append(s.rest, line...)
			line, held = s.rest, nil
		}
		for len(line) > s.max {
			k := s.cutAt(line)
			s.add(line[:k])
			line, s.split = line[k:], true
		}
		if !whole {
			s.flush() // before the buffer to which lines may refer is reused
			s.rest = append(s.rest[:0], line...)
			return n, nil
		}
		if s.Breaks {
			s.add(append(slices.Clip(line), '\n'))
			p, s.split = after, false
			continue
		}
		// A line break right after the place of a cut does not make another line.
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) > 0 || !s.split {
			s.add(line)
		}
		p, s.split = after, false
	}
}

// End passes on the last line if it has no line break.
func (s *Lines) End() {
	if len(s.rest) > 0 {
		line := s.rest
		if !s.Breaks {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		s.add(line)
		s.rest = s.rest[:0]
	}

	s.flush()
}

func (s *Lines) add(line []byte) {
	if !s.cut || !s.split {
		s.lines = append(s.lines, line)
	}
}

func (s *Lines) flush() {
	if len(s.lines) > 0 {
		s.give(s.lines)
		s.lines = s.lines[:0]
	}
}

// cutAt returns where to cut a line that is too long: never within a character.
func (s *Lines) cutAt(line []byte) int {
	for k := s.max; k > s.max-utf8.UTFMax; k-- {
		if utf8.RuneStart(line[k]) {
			return k
		}
	}
	return s.max
}
