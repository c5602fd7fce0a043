package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// maxLine is the longest line that is read, in bytes.
	maxLine = 8 << 20
	// maxBatch is how many messages one line may hold.
	maxBatch = 1000
)

// A line is one line of input, taken apart.
type line struct {
	messages []jsonrpc.Message
	faults   []rejection // of single messages
	batch    bool        // it was a list: the replies go out as one
	err      error       // the input has ended; io.EOF as a rule
}

// A rejection is the reply to what is not a message.
type rejection struct {
	id    jsonrpc.ID // where it could be made out
	fault jsonrpc.Error
}

// A lineReader takes newline-delimited JSON apart. What is wrong with one line
// is told with that line; the next is read all the same.
type lineReader struct {
	in  *bufio.Reader
	buf []byte
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, 64<<10)}
}

// next reads the next line that is not blank.
func (r *lineReader) next() line {
	for {
		text, size, id, err := r.read()
		if err != nil && size == 0 {
			return line{err: err}
		}
		if size > maxLine {
			return rejected(id, jsonrpc.CodeInvalidRequest, fmt.Sprintf(
				"the message has %d bytes; at most %d are read: put what is long into a file and give its path", size, maxLine))
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return parseLine(text) // the error, if any, comes again with the next read
		}
	}
}

// read returns one line, valid until the next call, and how long it was; of
// one that is too long, only how long, and its id.
func (r *lineReader) read() (text []byte, size int, id jsonrpc.ID, err error) {
	r.buf = r.buf[:0]
	if cap(r.buf) > 1<<20 {
		r.buf = nil
	}
	var finder idFinder
	for {
		part, err := r.in.ReadSlice('\n')
		if size += len(part); size <= maxLine {
			r.buf = append(r.buf, part...)
		} else {
			finder.Write(r.buf)
			finder.Write(part)
			r.buf = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return r.buf, size, finder.id(), err
		}
	}
}

func rejected(id jsonrpc.ID, code int64, message string) line {
	return line{faults: []rejection{{id, jsonrpc.Error{Code: code, Message: message}}}}
}

// parseLine decodes one message, or the list of messages that older versions
// of the protocol allow on one line.
func parseLine(text []byte) line {
	if !utf8.Valid(text) {
		return rejected(jsonrpc.ID{}, jsonrpc.CodeParseError, "parse error: the message is not valid UTF-8")
	}
	if text[0] != '[' {
		var l line
		l.add(text)
		return l
	}
	parts, n, err := splitBatch(text)
	if err != nil {
		return rejected(jsonrpc.ID{}, jsonrpc.CodeParseError, "parse error: "+err.Error())
	}
	if n == 0 || n > maxBatch {
		return rejected(jsonrpc.ID{}, jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("invalid request: a batch of %d messages; it must have 1 to %d", n, maxBatch))
	}
	l := line{batch: true}
	for _, p := range parts {
		l.add(p)
	}
	return l
}

// splitBatch returns the first maxBatch messages of a JSON list, and how many there are.
func splitBatch(text []byte) (messages []json.RawMessage, n int, err error) {
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return nil, 0, err
	}
	d := json.NewDecoder(bytes.NewReader(text)) // its errors would be those of Unmarshal
	for _, err = d.Token(); err == nil && d.More(); n++ {
		var message json.RawMessage
		if err = d.Decode(&message); n < maxBatch {
			messages = append(messages, message)
		}
	}
	return messages, n, err
}

func (l *line) add(text []byte) {
	msg, id, fault := decodeMessage(text)
	if fault != nil {
		l.faults = append(l.faults, rejection{id, *fault})
		return
	}
	l.messages = append(l.messages, msg)
}
