package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"deepwork/catalog/jsontext"
)

// The SDK copies a message several times. So the result in a large answer is put aside for its
// call, as a part of the only copy, and the SDK gets the answer with an empty result.

// large is the size of a message, in bytes, from which its result is put aside.
const large = 64 << 10

// putAside puts the result in a message aside for its call, which find returns by the id; nil means
// none. It returns the message for the SDK: the same if it is not such an answer.
func putAside(message []byte, find func(id json.RawMessage) *call) []byte {
	if len(message) < large || !json.Valid(message) {
		return message
	}
	m := make(map[string]json.RawMessage)
	for name, value := range jsontext.Fields(message) {
		m[strings.ToLower(name)] = value
	}
	if m["method"] != nil || !jsontext.IsNull(m["error"]) || string(m["jsonrpc"]) != `"2.0"` || jsontext.Kind(m["result"]) != "object" || jsontext.IsNull(m["id"]) {
		return message
	}
	c := find(m["id"])
	if c == nil {
		return message
	}
	c.result.Store(new(m["result"]))
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m["id"])
}

// awaited are the calls of a command that have no answer, by their ids.
type awaited struct {
	mu    sync.Mutex
	calls map[string]*call
}

func (a *awaited) add(id string, c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls == nil {
		a.calls = make(map[string]*call)
	}
	a.calls[id] = c
}

func (a *awaited) remove(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.calls, id)
}

func (a *awaited) find(id json.RawMessage) *call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[string(id)]
}

// pieces collect a text of unknown size, to be copied once.
type pieces [][]byte

func (p *pieces) add(part []byte) {
	for len(part) > 0 {
		last := len(*p) - 1
		if last < 0 || len((*p)[last]) == cap((*p)[last]) {
			size := large
			if last < 0 {
				size = len(part) // most are small
			}
			*p = append(*p, make([]byte, 0, size))
			continue
		}
		piece := &(*p)[last]
		n := min(len(part), cap(*piece)-len(*piece))
		*piece, part = append(*piece, part[:n]...), part[n:]
	}
}

func (p pieces) join() []byte {
	if len(p) == 1 {
		return p[0]
	}
	return bytes.Join(p, nil)
}

// readAll is io.ReadAll with less copying.
func readAll(r io.Reader) ([]byte, error) {
	var all pieces
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		all.add(buffer[:n])
		if err == io.EOF {
			return all.join(), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// An eventFilter is a stream of events whose large answers are put aside.
type eventFilter struct {
	io.Closer
	in   *bufio.Reader
	find func(id json.RawMessage) *call
	rest
}

// A rest is what is unread of the parts of a stream.
type rest struct {
	out []byte // of the current part
	err error  // after it
}

// read reads from the current part, or from that which next returns. Empty parts are passed over.
func (r *rest) read(p []byte, next func() ([]byte, error)) (int, error) {
	for len(r.out) == 0 && r.err == nil && len(p) > 0 {
		r.out, r.err = next()
	}
	if len(r.out) == 0 {
		return 0, r.err
	}
	n := copy(p, r.out)
	if r.out = r.out[n:]; len(r.out) == 0 {
		r.out = nil // it may have been large
	}
	return n, nil
}

func newEventFilter(body io.ReadCloser, find func(id json.RawMessage) *call) *eventFilter {
	return &eventFilter{Closer: body, in: bufio.NewReaderSize(body, 4<<10), find: find}
}

// Read implements io.Reader.
func (f *eventFilter) Read(p []byte) (int, error) {
	return f.read(p, f.line)
}

// line returns the next line, or of one that is no data the next part.
func (f *eventFilter) line() ([]byte, error) {
	part, err := f.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) || !bytes.HasPrefix(part, []byte("data:")) {
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		return part, err
	}
	var all pieces
	size := 0
	for errors.Is(err, bufio.ErrBufferFull) && size <= maxMessage {
		all.add(part)
		size += len(part)
		part, err = f.in.ReadSlice('\n')
	}
	all.add(part)
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil // the SDK refuses it
	}
	line := all.join()
	data := bytes.TrimPrefix(line, []byte("data:"))
	if now := putAside(data, f.find); len(now) < len(data) {
		line = append(append([]byte("data: "), now...), '\n')
	}
	return line, err
}
