package source

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"deepwork/actor/process"
	"deepwork/catalog/jsontext"
)

// A malformedError describes unreadable input from a source.
type malformedError struct{ error }

// A lineFilter is the standard output of a command without the lines that are not messages: many
// programs print greetings or logs there. A message that is not JSON ends it with an error.
type lineFilter struct {
	io.Closer
	in     *bufio.Reader
	stray  func(line string) // receives the first of each run of stray lines
	strays int               // in a row
	unread []byte            // of the current message
}

func newLineFilter(from io.ReadCloser, stray func(string)) *lineFilter {
	return &lineFilter{Closer: from, in: bufio.NewReaderSize(from, 64<<10), stray: stray}
}

// Read implements io.Reader.
func (f *lineFilter) Read(p []byte) (int, error) {
	for len(f.unread) == 0 {
		line, err := f.line()
		if err == nil {
			f.unread, err = f.message(line)
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, f.unread)
	f.unread = f.unread[n:]
	return n, nil
}

// message returns a line if it is a message, and otherwise nil.
func (f *lineFilter) message(line []byte) ([]byte, error) {
	// Some programs log objects without "jsonrpc", which may have their own id and result.
	if first := jsontext.First(line); first != '{' && first != '[' || !bytes.Contains(line, []byte(`"jsonrpc"`)) {
		if f.strays++; f.strays == 1 {
			f.stray(shown(line))
		}
		if f.strays > maxStray {
			return nil, malformedError{fmt.Errorf("it writes lines to its standard output that are not messages, %d in a row: %q", f.strays, shown(line))}
		}
		return nil, nil
	}
	f.strays = 0
	if fault := json.Unmarshal(line, new(json.RawMessage)); fault != nil {
		return nil, malformedError{fmt.Errorf("its answer is not JSON: %v; a message is one line without NaN or Infinity: %q", fault, shown(line))}
	}
	return line, nil
}

func shown(line []byte) string { return process.Tail(string(line[:min(len(line), 300)]), 300) }

// line reads a line, with its end.
func (f *lineFilter) line() (line []byte, err error) {
	for {
		part, err := f.in.ReadSlice('\n')
		if len(line)+len(part) > maxMessage {
			return nil, fmt.Errorf("it sends a message of more than %d bytes, which is the maximum line length", maxMessage)
		}
		line = append(line, part...)
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
