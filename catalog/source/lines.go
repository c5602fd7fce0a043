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
	stray  func(line string) // receives lines that are not messages
	unread []byte            // of the current message
}

func newLineFilter(from io.ReadCloser, stray func(string)) *lineFilter {
	return &lineFilter{Closer: from, in: bufio.NewReaderSize(from, 64<<10), stray: stray}
}

// Read implements io.Reader.
func (f *lineFilter) Read(p []byte) (int, error) {
	for len(f.unread) == 0 {
		line, err := f.line()
		if err != nil {
			return 0, err
		}
		first := jsontext.First(line)
		switch {
		case first != '{' && first != '[' || !bytes.Contains(line, []byte(`"jsonrpc"`)):
			// Some programs log objects without "jsonrpc", which may have their own id and result.
			f.stray(shown(line))
		case json.Valid(line):
			f.unread = line
		default:
			fault := json.Unmarshal(line, new(json.RawMessage))
			return 0, malformedError{fmt.Errorf("its answer is not JSON: %v; a message is one line without NaN or Infinity: %q", fault, shown(line))}
		}
	}
	n := copy(p, f.unread)
	f.unread = f.unread[n:]
	return n, nil
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
