package remote

import (
	"bytes"
	"encoding/json"

	"deepwork/catalog/jsontext"
)

// headerAnnotation asks clients of the newest version to repeat an argument in a
// header, for what stands between them and the server; the server then has to compare
// the two (MCP, SEP-2243).
const headerAnnotation = "x-mcp-header"

// withoutHeaders returns an input schema without that annotation. The SDK compares for
// its own tools only, and a source gets its input from us, never by a header: so clients
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
	return rewrite(schema, func(m jsontext.Member) (json.RawMessage, bool) {
		if m.Name == "properties" {
			return rewrite(m.Value, func(m jsontext.Member) (json.RawMessage, bool) { return annotated(m.Value, true), true }), true
		}
		return m.Value, m.Name != headerAnnotation || !property
	})
}

// rewrite rewrites the members of an object, or drops them; other values stay as they
// are.
func rewrite(object json.RawMessage, member func(jsontext.Member) (_ json.RawMessage, keep bool)) json.RawMessage {
	out := []byte{'{'}
	for m, err := range jsontext.Members(object) {
		if err != nil {
			return object
		}
		value, keep := member(m)
		if !keep {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, jsontext.Quote(m.Name)...), ':'), value...)
	}
	return append(out, '}')
}
