package process

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes are what terminals take for commands: colours, titles.
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])`)

// tailSize is how much of the last lines an Error holds, in bytes.
const tailSize = 2000

// A capture keeps what is written, up to a limit.
type capture struct {
	limit   int
	data    []byte        // owned by the reader until it has returned
	over    bool          // likewise
	flooded chan struct{} // closed by the reader when the limit is passed
}

func newCapture(limit int) *capture {
	return &capture{limit: limit, flooded: make(chan struct{})}
}

// Write keeps what it has room for, and fails if that is not everything.
func (c *capture) Write(p []byte) (int, error) {
	n := min(len(p), c.limit-len(c.data))
	c.data = append(c.data, p[:n]...)
	if n < len(p) {
		c.over = true
		close(c.flooded)
		return n, ErrTooMuchOutput
	}
	return n, nil
}

// A tail keeps the last bytes of what is written.
type tail struct {
	limit int
	data  []byte // at most twice the limit; owned by the reader until it has returned
	cut   bool   // something before data is gone
}

func newTail(limit int) *tail { return &tail{limit: limit} }

// Write keeps the end of what was written so far.
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

// text is what was kept, from the beginning of a line if it has one.
func (t *tail) text() string {
	if !t.cut && len(t.data) <= t.limit {
		return string(t.data)
	}
	return fromLine(string(lastBytes(t.data, t.limit)))
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// fromLine leaves out the line that s may begin in the middle of, unless that is
// all there is.
func fromLine(s string) string {
	if i := strings.IndexByte(s, '\n'); i >= 0 && strings.TrimSpace(s[i:]) != "" {
		return s[i+1:]
	}
	return s
}

// Tail returns the last lines of what a program wrote, at most size bytes of
// valid UTF-8, without terminal escapes, control characters and blanks around
// it: as it can be shown to people and agents.
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
