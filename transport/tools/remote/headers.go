package remote

import (
	"bytes"
	"encoding/json"

	"deepwork/catalog/jsontext"
)

// headerAnnotation asks clients of the newest version to repeat an argument in a header, for
// proxies before the server; the server must then compare the two (MCP, SEP-2243).
const headerAnnotation = "x-mcp-header"

// withoutHeaders returns an input schema without that annotation. The SDK compares headers for its
// own tools only, and a source never gets its input by a header, so clients are not asked for one.
// All else is unchanged, in its order.
func withoutHeaders(schema json.RawMessage) json.RawMessage {
	// The key may be escaped.
	if !bytes.Contains(schema, []byte(headerAnnotation)) && !bytes.ContainsRune(schema, '\\') {
		return schema
	}
	return annotated(schema, false)
}

// annotated rewrites a schema; the annotation has a meaning in the schemas of properties.
func annotated(schema json.RawMessage, property bool) json.RawMessage {
	return rewrite(schema, func(m jsontext.Member) (json.RawMessage, bool) {
		if m.Name == "properties" {
			return rewrite(m.Value, func(m jsontext.Member) (json.RawMessage, bool) { return annotated(m.Value, true), true }), true
		}
		return m.Value, m.Name != headerAnnotation || !property
	})
}

// rewrite rewrites or drops the members of an object; other values are unchanged.
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
