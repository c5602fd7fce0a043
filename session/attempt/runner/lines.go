package runner

import (
	"bytes"
	"unicode/utf8"
)

// A splitter cuts what a program writes into lines of at most MaxLine bytes and
// hands on those that are whole; end hands on what is left. It keeps no more
// than one line.
type splitter struct {
	give  func(lines [][]byte) // the lines are valid during the call alone
	rest  []byte               // the beginning of a line that is not whole yet
	lines [][]byte
	split bool // what is in rest goes on a line of which a part was given
}

func newSplitter(give func([][]byte)) *splitter { return &splitter{give: give} }

// Write takes what was read and hands on the lines that are whole. It never fails.
func (s *splitter) Write(p []byte) (int, error) {
	n, held := len(p), s.rest
	for {
		line, after, whole := bytes.Cut(p, []byte("\n"))
		if len(held) > 0 {
			s.rest = append(s.rest, line...)
			line, held = s.rest, nil
		}
		for len(line) > MaxLine {
			k := cutAt(line)
			s.lines = append(s.lines, line[:k])
			line, s.split = line[k:], true
		}
		if !whole {
			s.flush() // before the buffer that lines may lie in is used again
			s.rest = append(s.rest[:0], line...)
			return n, nil
		}
		// The end of a line that was cut exactly there is not a line of its own.
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 || !s.split {
			s.lines = append(s.lines, line)
		}
		p, s.split = after, false
	}
}

// flush hands on what is whole.
func (s *splitter) flush() {
	if len(s.lines) > 0 {
		s.give(s.lines)
		s.lines = s.lines[:0]
	}
}

// end hands on the last line, if it has no line break.
func (s *splitter) end() {
	if len(s.rest) > 0 {
		s.lines = append(s.lines, bytes.TrimSuffix(s.rest, []byte("\r")))
		s.flush()
		s.rest = s.rest[:0]
	}
}

// cutAt is where a line that is too long is cut: not within a character.
func cutAt(line []byte) int {
	for k := MaxLine; k > MaxLine-utf8.UTFMax; k-- {
		if utf8.RuneStart(line[k]) {
			return k
		}
	}
	return MaxLine
}
