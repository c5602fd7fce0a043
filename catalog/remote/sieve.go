package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"deepwork/actor/process"
)

// A sieve is the standard output of a command without the lines that cannot be
// messages: many programs greet there, or debug, and one such line is not to cost
// the connection. Lines that look like a message are passed on as they are, also
// where one is spread over several.
type sieve struct {
	from   io.ReadCloser
	in     *bufio.Reader
	tell   func(line string) // the first stray line of each run of them
	middle bool              // of a line that is passed on
	stray  int               // lines in a row
	err    error
}

func newSieve(from io.ReadCloser, tell func(string)) *sieve {
	return &sieve{from: from, in: bufio.NewReaderSize(from, 64<<10), tell: tell}
}

// Read implements io.Reader.
func (s *sieve) Read(p []byte) (int, error) {
	for s.err == nil && !s.middle {
		// Two bytes tell; where there is but one, it is the last.
		head, err := s.in.Peek(2)
		if len(head) == 0 {
			return 0, err
		}
		if s.middle = looksLikeMessage(head); s.middle {
			break
		}
		s.drop()
	}
	if s.err != nil {
		return 0, s.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if s.in.Buffered() == 0 {
		if _, err := s.in.Peek(1); err != nil {
			return 0, err
		}
	}
	chunk, _ := s.in.Peek(min(len(p), s.in.Buffered()))
	if end := bytes.IndexByte(chunk, '\n'); end >= 0 {
		chunk, s.middle = chunk[:end+1], false
		if s.stray > 0 && end > 0 {
			s.stray = 0
		}
	}
	n := copy(p, chunk)
	s.in.Discard(n)
	return n, nil
}

// Close implements io.Closer.
func (s *sieve) Close() error { return s.from.Close() }

// drop leaves out a line, however long.
func (s *sieve) drop() {
	line, err := s.in.ReadSlice('\n')
	text := process.Tail(string(line[:min(len(line), 300)]), 300)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = s.in.ReadSlice('\n')
	}
	if s.stray++; s.stray == 1 {
		s.tell(text)
	}
	if s.stray > maxStray {
		s.err = fmt.Errorf("it writes to its standard output what is no message, %d lines in a row: %q", s.stray, text)
	}
}

// looksLikeMessage tells from the first bytes of a line whether it may be JSON of
// objects, or a part of it; "[INFO]" is not.
func looksLikeMessage(head []byte) bool {
	switch head[0] {
	case '{', '}', ']', '"', ',', ' ', '\t', '\r', '\n':
		return true
	case '[':
		return len(head) > 1 && bytes.IndexByte([]byte("{ \t\r\n"), head[1]) >= 0
	}
	return false
}
