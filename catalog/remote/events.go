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
}

func newEventReader(r io.Reader) *eventReader { return &eventReader{in: bufio.NewReader(r)} }

// errEventTooLarge is what a source sends that is not read to its end.
var errEventTooLarge = fmt.Errorf("an event is larger than %d bytes, the most that is read", maxMessage)

// next returns the next event that has data, an id or a time to retry after; one
// that the end of the stream cuts off is none. The error is io.EOF at the end.
func (r *eventReader) next() (event, error) {
	var e event
	var data [][]byte
	r.size = 0
	for {
		line, err := r.line()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if data != nil || e.id != "" || e.retry > 0 {
				e.data = bytes.Join(data, []byte("\n"))
				return e, nil
			}
			e.name, r.size = "", 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "data":
			data = append(data, value)
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
// stand. It is the caller's to keep.
func (r *eventReader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		if r.size += len(part); r.size > maxMessage {
			return nil, errEventTooLarge
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}
