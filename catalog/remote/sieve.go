package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"deepwork/actor/process"
)

// A sieve is the standard output of a command without what is no message: many
// programs greet there, or log, and some write NaN, which is not JSON; none of it
// is to cost the connection. Messages are passed on as they are, also where one is
// spread over several lines. In the place of an answer that cannot be read comes
// an error, so that nobody waits for it.
type sieve struct {
	from  io.ReadCloser
	in    *bufio.Reader
	tell  func(line string) // the first stray line of each run of them
	out   []byte            // what is still to be read of a message
	again []byte            // a line that was read and is to be looked at once more
	stray int               // lines in a row
	blank int               // bytes of blank lines in a row
	err   error

	closed atomic.Bool // nobody wants what is still being looked at
}

func newSieve(from io.ReadCloser, tell func(string)) *sieve {
	return &sieve{from: from, in: bufio.NewReaderSize(from, 64<<10), tell: tell}
}

// Read implements io.Reader.
func (s *sieve) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(s.out) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.next()
	}
	n := copy(p, s.out)
	if s.out = s.out[n:]; len(s.out) == 0 {
		s.out = nil // it may have been large
	}
	return n, nil
}

// Close implements io.Closer. A read that is looking at a large message ends soon.
func (s *sieve) Close() error {
	s.closed.Store(true)
	return s.from.Close()
}

// next reads a message, or leaves out a line, or learns why there are no more.
func (s *sieve) next() {
	text := s.again
	if s.again = nil; text == nil {
		if text, s.err = s.line(0); s.err != nil {
			return
		}
	}
	switch {
	case s.closed.Load():
		s.err = os.ErrClosed
		return
	case isBlank(text):
		if s.blank += len(text); s.blank > maxMessage {
			s.err = fmt.Errorf("it writes nothing but blanks to its standard output, %d bytes of them", s.blank)
		}
		return
	case !mayBegin(text):
		s.drop(text)
		return
	case json.Valid(text):
		s.take(text)
		return
	}
	f := &frame{lines: s, text: text}
	in := json.NewDecoder(f)
	fault := in.Decode(new(unread))
	switch {
	case f.other != nil:
		s.refuse(f.text, io.ErrUnexpectedEOF)
		s.again = f.other
	case f.err != nil:
		s.err = f.err
	case fault == nil && isBlank(f.text[in.InputOffset():]):
		s.take(f.text)
	case f.last > 0:
		// It was not what it began as; the line that shows it may be a message.
		s.refuse(f.text[:f.last], fault)
		s.again = f.text[f.last:]
	default:
		if fault == nil {
			fault = errors.New("its line has more than one value")
		}
		s.refuse(text, fault)
	}
}

// refuse leaves out what is not JSON, or passes an error on in its place.
func (s *sieve) refuse(text []byte, fault error) {
	var answer []byte
	if looksLikeMessage(text) {
		answer = inPlaceOf(text, fault)
	}
	if answer == nil {
		s.drop(text)
		return
	}
	s.tell(shown(text))
	s.take(answer)
}

// take passes JSON on, if it is a message.
func (s *sieve) take(text []byte) {
	if !looksLikeMessage(text) {
		s.drop(text)
		return
	}
	s.out, s.stray, s.blank = text, 0, 0
}

// drop leaves out a line.
func (s *sieve) drop(text []byte) {
	if s.stray++; s.stray == 1 {
		s.tell(shown(text))
	}
	if s.stray > maxStray {
		s.err = fmt.Errorf("it writes to its standard output what is no message, %d lines in a row: %q", s.stray, shown(text))
	}
}

func shown(text []byte) string { return process.Tail(string(text[:min(len(text), 300)]), 300) }

// line reads a line, with its end, behind so many bytes of the same message. Of
// one that begins no message only the beginning is kept, however long it is.
func (s *sieve) line(behind int) ([]byte, error) {
	var text []byte
	for {
		part, err := s.in.ReadSlice('\n')
		switch {
		case behind == 0 && len(text) > 300 && !mayBegin(text):
		case behind+len(text)+len(part) > maxMessage:
			return nil, fmt.Errorf("it sends a message of more than %d bytes, which is the maximum line length", maxMessage)
		default:
			text = append(text, part...)
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(text) > 0:
			return text, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// A frame gives a decoder the lines of one value, each only when the value goes on
// behind the one before, and keeps them.
type frame struct {
	lines *sieve
	text  []byte
	given int    // bytes of text that the decoder has
	last  int    // where the last line begins
	other []byte // a message of its own that came before the value's end
	err   error
}

// Read implements io.Reader.
func (f *frame) Read(p []byte) (int, error) {
	if f.lines.closed.Load() {
		f.err = os.ErrClosed
		return 0, f.err
	}
	if f.given == len(f.text) {
		line, err := f.lines.line(len(f.text))
		if err != nil {
			f.err = err
			return 0, err
		}
		if line[0] == '{' && looksLikeMessage(line) && json.Valid(line) {
			f.other = line
			return 0, io.ErrUnexpectedEOF
		}
		f.last = len(f.text)
		f.text = append(f.text, line...)
	}
	n := copy(p[:min(len(p), 64<<10)], f.text[f.given:]) // little, to notice Close
	f.given += n
	return n, nil
}

// An unread value is scanned, and not kept.
type unread struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*unread) UnmarshalJSON([]byte) error { return nil }

// looksLikeMessage tells messages from the objects that some programs log, which may have
// an id and a result of their own.
func looksLikeMessage(text []byte) bool { return bytes.Contains(text, []byte(`"jsonrpc"`)) }

func isBlank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// mayBegin tells whether a line can be the beginning of a message, or of a batch
// of them; "[INFO]" is not.
func mayBegin(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r\n")
	if rest, batch := bytes.CutPrefix(line, []byte("[")); batch {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		return len(rest) > 0 && rest[0] == '{'
	}
	return len(line) > 0 && line[0] == '{'
}
