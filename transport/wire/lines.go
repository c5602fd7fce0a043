package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// MaxLine is the maximum length of a line, in bytes.
	MaxLine = 8 << 20
	// MaxBatch is the maximum number of messages per line.
	MaxBatch = 1000
)

// A line is one decoded line of input.
type line struct {
	messages []jsonrpc.Message
	faults   []rejection // of single messages
	batch    bool        // a list: the replies are sent as one
	err      error       // the input has ended, usually with io.EOF
}

// A rejection is the reply to something that is not a message.
type rejection struct {
	id    jsonrpc.ID // if it could be found
	fault jsonrpc.Error
}

// A lineReader decodes newline-delimited JSON. It reports a fault with its line, and continues with
// the next line.
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
		if size > MaxLine {
			return rejected(id, jsonrpc.CodeInvalidRequest, fmt.Sprintf(
				"the message has %d bytes; at most %d are read: put what is long into a file and give its path", size, MaxLine))
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return parseLine(text) // an error is returned again by the next read
		}
	}
}

// read returns one line, valid until the next call, and its length. If it is too long, read returns
// the length and the id.
func (r *lineReader) read() (text []byte, size int, id jsonrpc.ID, err error) {
	if r.buf = r.buf[:0]; cap(r.buf) > 1<<20 {
		r.buf = nil
	}
	for {
		part, err := r.in.ReadSlice('\n')
		size += len(part)
		r.buf = append(r.buf, part...)
		if len(r.buf) > MaxLine { // the end may have the id
			r.buf = append(r.buf[:MaxLine-idRoom], r.buf[len(r.buf)-idRoom:]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if size > MaxLine {
			id = findID(r.buf, r.buf[len(r.buf)-idRoom:])
		}
		return r.buf, size, id, err
	}
}

// idRoom is how much of the end of a message is searched for its id.
const idRoom = 2 << 10

// Patterns of the id of a message among its first or last members.
var (
	idFirst = regexp.MustCompile(`^\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,\s*)*"id"\s*:\s*("(?:[^"\\]|\\.)*"|[-+.\w]+)\s*[,}]`)
	idLast  = regexp.MustCompile(`,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|[-+.\w]+)\s*(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*)*\}\s*$`)
)

// findID finds the id of a message that is too long or nested too deep to be decoded, where clients
// usually put it: without an id in the reply its sender would wait forever.
func findID(head, tail []byte) jsonrpc.ID {
	found := idLast.FindSubmatch(tail[max(0, len(tail)-idRoom):])
	if found == nil {
		found = idFirst.FindSubmatch(head[:min(len(head), idRoom)])
	}
	if found == nil || !json.Valid(found[1]) {
		return jsonrpc.ID{}
	}
	id, err := DecodeID(found[1])
	if err != nil {
		return jsonrpc.ID{}
	}
	return id
}

func rejected(id jsonrpc.ID, code int64, message string) line {
	return line{faults: []rejection{{id, jsonrpc.Error{Code: code, Message: message}}}}
}

// parseLine decodes one message, or the list of messages that older protocol versions allow on one
// line.
func parseLine(text []byte) line {
	if !utf8.Valid(text) {
		return rejected(jsonrpc.ID{}, jsonrpc.CodeParseError, "parse error: the message is not valid UTF-8")
	}
	if text[0] != '[' {
		var l line
		l.add(text)
		return l
	}
	parts, n, err := SplitBatch(text)
	if err != nil {
		return rejected(jsonrpc.ID{}, jsonrpc.CodeParseError, "parse error: "+err.Error())
	}
	if n == 0 || n > MaxBatch {
		return rejected(jsonrpc.ID{}, jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("invalid request: a batch of %d messages; it must have 1 to %d", n, MaxBatch))
	}
	l := line{batch: true}
	for _, p := range parts {
		l.add(p)
	}
	return l
}

// SplitBatch returns the first MaxBatch messages of a JSON list, and how many there are.
func SplitBatch(text []byte) (messages []json.RawMessage, n int, err error) {
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return nil, 0, err
	}
	d := json.NewDecoder(bytes.NewReader(text)) // Unmarshal would report its errors
	for _, err = d.Token(); err == nil && d.More(); n++ {
		var message json.RawMessage
		if err = d.Decode(&message); n < MaxBatch {
			messages = append(messages, message)
		}
	}
	return messages, n, err
}

func (l *line) add(text []byte) {
	msg, id, fault := DecodeMessage(text)
	if fault != nil {
		l.faults = append(l.faults, rejection{id, *fault})
		return
	}
	l.messages = append(l.messages, msg)
}
