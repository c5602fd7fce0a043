package process

import (
	"bytes"
	"unicode/utf8"
)

// Lines is a writer that cuts what it is given into lines of at most max bytes,
// never within a character, and passes those that are complete on. It keeps no
// more than one line. It is for one goroutine.
type Lines struct {
	max   int
	give  func(lines [][]byte)
	cut   bool   // leaves out the rest of a line that is too long
	rest  []byte // the beginning of a line that is not complete yet
	lines [][]byte
	split bool // rest continues a line of which a part was given
}

// NewLines returns a Lines. The lines have no line breaks and are valid during the
// call of give only.
func NewLines(max int, give func(lines [][]byte)) *Lines { return &Lines{max: max, give: give} }

// Write takes what was read and passes the lines on that are complete. It never fails.
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
			s.flush() // before the buffer that lines may lie in is used again
			s.rest = append(s.rest[:0], line...)
			return n, nil
		}
		// The end of a line that was cut exactly there is not a line of its own.
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 || !s.split {
			s.add(line)
		}
		p, s.split = after, false
	}
}

// End passes the last line on, if it has no line break.
func (s *Lines) End() {
	if len(s.rest) > 0 {
		s.add(bytes.TrimSuffix(s.rest, []byte("\r")))
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

// cutAt returns where a line that is too long is cut: not within a character.
func (s *Lines) cutAt(line []byte) int {
	for k := s.max; k > s.max-utf8.UTFMax; k-- {
		if utf8.RuneStart(line[k]) {
			return k
		}
	}
	return s.max
}
