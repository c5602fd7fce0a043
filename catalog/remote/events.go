package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// An event is one of a stream of server-sent events.
type event struct {
	name  string
	id    string
	retry time.Duration // 0: it says none
	data  []byte
}

// An eventReader takes a stream of server-sent events apart, as the HTML standard
// has it ("event stream interpretation").
type eventReader struct {
	in   *bufio.Reader
	size int // bytes of the event that is being read
	long []byte
}

func newEventReader(r io.Reader) *eventReader { return &eventReader{in: bufio.NewReader(r)} }

// errEventTooLarge is what a source sends that is not read to its end.
var errEventTooLarge = fmt.Errorf("an event is larger than %d bytes, the most that is read", maxMessage)

// next returns the next event that has data, an id or a time to retry after. Of one
// that a clean end of the stream leaves without its blank line the data is told, for
// many forget that line; not its id, since what comes after it was perhaps not sent.
// The error is io.EOF at the end.
func (r *eventReader) next() (event, error) {
	var e event
	lines := 0 // of data
	r.size = 0
	for {
		line, err := r.line()
		last := errors.Is(err, io.EOF)
		switch {
		case err != nil && !last, last && lines == 0 && !bytes.HasPrefix(line, []byte("data:")):
			return event{}, err
		case last && !bytes.HasPrefix(line, []byte("data:")):
			return event{name: e.name, data: e.data}, nil
		}
		if len(line) == 0 {
			if lines > 0 || e.id != "" || e.retry > 0 {
				return e, nil
			}
			e.name, r.size = "", 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(bytes.TrimSpace(value))
		case "data":
			if lines++; lines > 1 {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		case "id":
			if !bytes.ContainsRune(value, 0) {
				e.id = string(value)
			}
		case "retry":
			if n, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry = time.Duration(n) * time.Millisecond
			}
		}
	}
}

// line reads a line, which ends with a line feed, before which a carriage return may
// stand, or with the stream (io.EOF). It is valid until the next one is read.
func (r *eventReader) line() ([]byte, error) {
	r.long = r.long[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		if r.size += len(part); r.size > maxMessage {
			return nil, errEventTooLarge
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			r.long = append(r.long, part...)
			continue
		}
		if len(r.long) > 0 {
			r.long = append(r.long, part...)
			part = r.long
		}
		return bytes.TrimRight(part, "\r\n"), err
	}
}
