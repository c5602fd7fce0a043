package transport

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// An enveloped message is what is looked at of it before the SDK reads it.
type enveloped struct {
	ID     json.RawMessage `json:"id"`
	Method json.RawMessage `json:"method"`
}

// inspect looks into the body of an HTTP request: how many messages it has, more
// than one in a batch, as older protocol versions allow, where each counts as a
// request of its own; and what is wrong with it that the SDK would let pass. That
// is what follows the first message and would be lost, an id that is no whole
// number and would be cut to another one, and, in a batch, an id that is there
// twice: such a call may be carried out and never answered. What else is wrong
// the SDK says.
func inspect(body []byte) (n int, fault string) {
	switch {
	case len(bytes.TrimLeft(body, space)) == 0:
		return 1, ""
	case isBatch(body):
		return inspectBatch(bytes.TrimLeft(body, space))
	case !json.Valid(body):
		return 1, "malformed payload: the body is not one JSON value"
	}
	var m enveloped
	if json.Unmarshal(body, &m) != nil {
		return 1, ""
	}
	if _, err := decodeID(m.ID); err != nil {
		return 1, fmt.Sprintf("malformed payload: %v", err)
	}
	return 1, ""
}

// space is what JSON allows around a value.
const space = " \t\r\n"

func isBatch(body []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(body, space), []byte("[")) }

func inspectBatch(body []byte) (n int, fault string) {
	// Counted before it is decoded: what is too much is not to cost much.
	if n := commas(body) + 1; n > maxBatch {
		return n, fmt.Sprintf("a batch of %d messages; at most %d are taken", n, maxBatch)
	}
	var messages []enveloped
	if json.Unmarshal(body, &messages) != nil {
		return 1, ""
	}
	seen := make(map[jsonrpc.ID]bool, len(messages))
	for _, m := range messages {
		id, err := decodeID(m.ID)
		if err != nil {
			return 0, fmt.Sprintf("malformed payload: %v", err)
		}
		if !id.IsValid() || m.Method == nil {
			continue
		}
		if seen[id] {
			return 0, fmt.Sprintf("two requests of the batch have the id %s", clip(string(m.ID), 100))
		}
		seen[id] = true
	}
	return max(1, len(messages)), ""
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
