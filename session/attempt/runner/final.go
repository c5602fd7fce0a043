package runner

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"deepwork/actor/process"
	"deepwork/session/attempt/transcript"
)

// MaxFinal is the longest final message in characters; a longer one is cut at the end.
const MaxFinal = 4000

// maxStderr is the length in bytes of the last lines on stderr that an Exit has.
const maxStderr = 2000

// A summary is what an Exit says of a program's lines: its final message, which is its own answer or
// else its last line that is not blank, preferring stdout to stderr; its last lines on stderr, and its
// usage. Its memory is bounded.
type summary struct {
	lastOut, lastErr []byte // the last lines that are not blank
	stderr           []byte // at most 2*MaxLine and a line
	reader           transcript.Reader
}

func newSummary() *summary { return &summary{reader: transcript.Reader{Split: MaxLine}} }

// line takes one line, or one piece of a line, of a stream.
func (s *summary) line(stream string, text []byte) {
	switch stream {
	case Stdout:
		s.reader.Line(text, func(transcript.Message) {})
		keep(&s.lastOut, text)
	case Stderr:
		keep(&s.lastErr, text)
		if s.stderr = append(append(s.stderr, text...), '\n'); len(s.stderr) > 2*MaxLine {
			s.stderr = append(s.stderr[:0], s.stderr[len(s.stderr)-2*maxStderr:]...)
		}
	}
}

// put completes an Exit.
func (s *summary) put(e *Exit) {
	s.reader.End(func(transcript.Message) {})
	for _, text := range [][]byte{s.lastErr, s.lastOut, []byte(s.reader.Answer())} {
		if text := clip(text); text != "" {
			e.FinalMessage = text
		}
	}
	e.Stderr, e.Failure = process.Tail(string(s.stderr), maxStderr), clip([]byte(s.reader.Failure()))
	e.Usage, e.Conversation = s.reader.Usage(), s.reader.Conversation()
}

// keep makes a line the last one, unless it is blank.
func keep(last *[]byte, line []byte) {
	if len(bytes.TrimSpace(line)) > 0 {
		*last = append((*last)[:0], line[:min(len(line), utf8.UTFMax*MaxFinal+utf8.UTFMax)]...)
	}
}

// clip makes a text displayable: valid UTF-8, trimmed, and not too long.
func clip(text []byte) string {
	s := []rune(strings.TrimSpace(string(bytes.ToValidUTF8(text, []byte(string(utf8.RuneError))))))
	return strings.TrimSpace(string(s[:min(len(s), MaxFinal)]))
}
