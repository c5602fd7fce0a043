package transport

import (
	"bytes"
	"encoding/json"
)

// headerAnnotation asks clients of the newest version to repeat an argument in a
// header, for what stands between them and the server; the server then has to compare
// the two (MCP, SEP-2243).
const headerAnnotation = "x-mcp-header"

// withoutHeaders is an input schema without that annotation. The SDK compares for its
// own tools alone, and a source gets its input from us, never by a header: so clients
// are not asked for one. All else stays as it is, in its order.
func withoutHeaders(schema json.RawMessage) json.RawMessage {
	// The key may be written with an escape.
	if !bytes.Contains(schema, []byte(headerAnnotation)) && !bytes.ContainsRune(schema, '\\') {
		return schema
	}
	return annotated(schema, false)
}

// annotated rewrites a schema; the annotation means something in those of properties.
func annotated(schema json.RawMessage, property bool) json.RawMessage {
	return rewrite(schema, func(key string, value json.RawMessage) (json.RawMessage, bool) {
		switch key {
		case headerAnnotation:
			return value, !property
		case "properties":
			return rewrite(value, func(_ string, value json.RawMessage) (json.RawMessage, bool) {
				return annotated(value, true), true
			}), true
		}
		return value, true
	})
}

// rewrite rewrites the members of an object, or drops them; what is no object stays
// as it is.
func rewrite(object json.RawMessage, member func(key string, value json.RawMessage) (_ json.RawMessage, keep bool)) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return object
	}
	out := []byte{'{'}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return object
		}
		name, ok := key.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil || !ok {
			return object
		}
		value, keep := member(name, value)
		if !keep {
			continue
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return object
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}')
}
