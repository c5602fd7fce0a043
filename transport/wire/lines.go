package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// MaxLine is the maximum length of a line, in bytes.
	MaxLine = 8 << 20
	// MaxBatch is the maximum number of messages per line.
	MaxBatch = 1000
)

// A lineReader passes on the lines of its input that the SDK can read, since the SDK ends the connection
// at the first other one. The messages of a batch, which older versions of MCP allow, are passed on as a
// line each.
type lineReader struct {
	in     *bufio.Reader
	refuse func(code int64, reason string) // answers a line that is not passed on
	ended  func()                          // called when the input has ended
	unread []byte
}

// Read implements io.Reader.
func (r *lineReader) Read(p []byte) (int, error) {
	for len(r.unread) == 0 {
		line, size, err := r.line()
		if err != nil && size == 0 {
			r.ended()
			return 0, err
		}
		if size > MaxLine {
			r.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("invalid request: the message has %d bytes; at most %d are read: put what is long into a file and give its path", size, MaxLine))
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			r.take(line) // an error is returned again by the next read
		}
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// line reads a line and returns its length; one that is too long is not kept.
func (r *lineReader) line() (line []byte, size int, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if size += len(part); size <= MaxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, size, err
		}
	}
}

// take passes on the messages of a line, or refuses them.
func (r *lineReader) take(line []byte) {
	if err := json.Unmarshal(line, new(json.RawMessage)); err != nil {
		r.refuse(jsonrpc.CodeParseError, fmt.Sprintf("parse error: %v", err))
		return
	}
	messages := []json.RawMessage{line}
	if line[0] == '[' {
		if err := json.Unmarshal(line, &messages); err != nil || len(messages) == 0 || len(messages) > MaxBatch {
			r.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("invalid request: a batch of %d messages; it must have 1 to %d", len(messages), MaxBatch))
			return
		}
	}
	for _, message := range messages {
		if _, err := jsonrpc.DecodeMessage(message); err != nil {
			r.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("invalid request: %v", err))
			continue
		}
		r.unread = append(append(r.unread, message...), '\n')
	}
}
