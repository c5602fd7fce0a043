package transport

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// An idFinder finds the id of a message that is not decoded, because it is too
// long or nested too deep, in one pass over its bytes: without an id in the
// reply its sender would wait for one for ever.
type idFinder struct {
	depth   int  // of the value that is being read; 1 is in the message itself
	text    bool // in a string
	escaped bool
	value   bool   // at depth 1: behind a colon
	key     string // at depth 1: the member that is being read
	token   []byte // at depth 1: the string or number that is being read
	found   json.RawMessage
}

// maxID is how long an id may be to be found, in bytes.
const maxID = 1000

func (f *idFinder) Write(p []byte) (int, error) {
	for _, b := range p {
		f.next(b)
	}
	return len(p), nil
}

func (f *idFinder) next(b byte) {
	if f.text {
		f.keep(b)
		switch {
		case f.escaped:
			f.escaped = false
		case b == '\\':
			f.escaped = true
		case b == '"':
			f.text = false
			if f.depth == 1 && !f.value {
				f.key = string(f.token)
			}
		}
		return
	}
	switch b {
	case '"':
		f.text = true
		f.token = f.token[:0]
		f.keep(b)
	case ':':
		if f.depth == 1 {
			f.value, f.token = true, f.token[:0]
		}
	case ',':
		f.member()
	case '{', '[':
		f.depth++
	case '}', ']':
		f.member()
		f.depth--
		f.token = f.token[:0] // the value was no string or number
	case ' ', '\t', '\r', '\n':
	default:
		f.keep(b)
	}
}

func (f *idFinder) keep(b byte) {
	if f.depth == 1 && len(f.token) <= maxID {
		f.token = append(f.token, b)
	}
}

// member ends a member of the message.
func (f *idFinder) member() {
	if f.depth != 1 {
		return
	}
	if f.value && f.key == `"id"` && len(f.token) > 0 && len(f.token) <= maxID {
		f.found = append(json.RawMessage(nil), f.token...)
	}
	f.value, f.token = false, f.token[:0]
}

// id returns what was found, or the id that is none.
func (f *idFinder) id() jsonrpc.ID {
	if !json.Valid(f.found) {
		return jsonrpc.ID{}
	}
	id, err := decodeID(f.found)
	if err != nil {
		return jsonrpc.ID{}
	}
	return id
}
