package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// An enveloped message is one of an HTTP request, with the members that are looked at
// before anybody carries it out, as they were sent; nil is one that it has not.
type enveloped struct {
	version, id, method, params json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler. The names are case-sensitive, which a
// struct's would not be.
func (m *enveloped) UnmarshalJSON(data []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	m.version, m.id, m.method, m.params = fields["jsonrpc"], fields["id"], fields["method"], fields["params"]
	return nil
}

// name is the method, or "".
func (m *enveloped) name() string {
	if n := len(m.method); n >= 2 && m.method[0] == '"' && !bytes.ContainsRune(m.method, '\\') {
		return string(m.method[1 : n-1])
	}
	var name string
	if json.Unmarshal(m.method, &name) != nil { // some write every slash with an escape
		return ""
	}
	return name
}

// inspect looks into the body of an HTTP request: which messages it has, more than
// one in a batch, as older protocol versions allow, where each counts as a request
// of its own; and what is wrong with it that the SDK would let pass. That is what
// follows the first message and would be lost, an id that is no whole number and
// would be cut to another one, and, in a batch, an id that is there twice: such a
// call may be carried out and never answered. What else is wrong the SDK says; such
// a body has no messages here.
func inspect(body []byte) (messages []enveloped, fault string) {
	switch {
	case len(bytes.TrimLeft(body, space)) == 0:
		return nil, ""
	case isBatch(body):
		return inspectBatch(bytes.TrimLeft(body, space))
	}
	var m enveloped
	if err := m.UnmarshalJSON(body); err != nil {
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); other {
			return nil, ""
		}
		return nil, "malformed payload: the body is not one JSON value"
	}
	if _, err := decodeID(m.id); err != nil {
		return nil, fmt.Sprintf("malformed payload: %v", err)
	}
	return []enveloped{m}, ""
}

// space is what JSON allows around a value.
const space = " \t\r\n"

func isBatch(body []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(body, space), []byte("[")) }

func inspectBatch(body []byte) (messages []enveloped, fault string) {
	// Counted before it is decoded: what is too much is not to cost much.
	if n := commas(body) + 1; n > maxBatch {
		return nil, fmt.Sprintf("a batch of %d messages; at most %d are taken", n, maxBatch)
	}
	if json.Unmarshal(body, &messages) != nil {
		return nil, ""
	}
	seen := make(map[jsonrpc.ID]bool, len(messages))
	for _, m := range messages {
		id, err := decodeID(m.id)
		if err != nil {
			return nil, fmt.Sprintf("malformed payload: %v", err)
		}
		if !id.IsValid() || m.method == nil {
			continue
		}
		if seen[id] {
			return nil, fmt.Sprintf("two requests of the batch have the id %s", clip(string(m.id), 100))
		}
		seen[id] = true
	}
	return messages, ""
}

// commas counts those between the elements of a JSON list.
func commas(list []byte) (n int) {
	depth, text := 0, false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n
}
