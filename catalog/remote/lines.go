package remote

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
	from  io.ReadCloser
	in    *bufio.Reader
	stray func(line string) // receives the first of each run of stray lines
	calls *awaited          // whose large results are put aside
	count int               // stray lines in a row
	blank int               // bytes of blank lines in a row
	rest
}

func newLineFilter(from io.ReadCloser, stray func(string), calls *awaited) *lineFilter {
	return &lineFilter{from: from, calls: calls, in: bufio.NewReaderSize(from, 64<<10), stray: stray}
}

// Read implements io.Reader.
func (f *lineFilter) Read(p []byte) (int, error) {
	return f.read(p, f.next)
}

// Close implements io.Closer.
func (f *lineFilter) Close() error { return f.from.Close() }

// next returns the next line if it is a message, or nil.
func (f *lineFilter) next() ([]byte, error) {
	line, err := f.line()
	switch first := jsontext.First(line); {
	case err != nil:
		return nil, err
	case first == 0:
		if f.blank += len(line); f.blank > maxMessage {
			return nil, fmt.Errorf("it writes only blanks to its standard output, %d bytes", f.blank)
		}
		return nil, nil
	case first != '{' && first != '[', !bytes.Contains(line, []byte(`"jsonrpc"`)):
		// Some programs log objects without it, which may have their own id and result.
		return nil, f.drop(line)
	}
	f.count, f.blank = 0, 0
	if json.Valid(line) {
		if now := putAside(line, f.calls.find); len(now) < len(line) {
			line = append(now, '\n')
		}
		return line, nil
	}
	fault := json.Unmarshal(line, new(json.RawMessage))
	return nil, malformedError{fmt.Errorf("its answer is not JSON: %v; a message is one line without NaN or Infinity: %q", fault, shown(line))}
}

// drop counts and skips a line.
func (f *lineFilter) drop(line []byte) error {
	if f.count++; f.count == 1 {
		f.stray(shown(line))
	}
	if f.count > maxStray {
		return malformedError{fmt.Errorf("it writes lines to its standard output that are not messages, %d in a row: %q", f.count, shown(line))}
	}
	return nil
}

func shown(line []byte) string { return process.Tail(string(line[:min(len(line), 300)]), 300) }

// line reads a line, with its end. If it cannot be a message, only its beginning is kept.
func (f *lineFilter) line() ([]byte, error) {
	var line pieces
	size := 0
	first := byte(0)
	for {
		part, err := f.in.ReadSlice('\n')
		switch {
		case size > 300 && first != '{' && first != '[':
		case size+len(part) > maxMessage:
			return nil, fmt.Errorf("it sends a message of more than %d bytes, which is the maximum line length", maxMessage)
		default:
			line.add(part)
			size += len(part)
			if first == 0 {
				first = jsontext.First(part)
			}
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && size > 0:
			return line.join(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
