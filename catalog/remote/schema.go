package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// anyObject is the schema of a workflow that tells none that is usable (seed
// 003, 3.5 and 6.3).
var anyObject = json.RawMessage(`{"type":"object","additionalProperties":true}`)

// compileSchema makes an inputSchema usable: what it returns is always an object
// schema and what checks against it, all but what unchecked names. The error says
// why that is the generic one, and is nil where none was given: a schema is optional.
// Nothing is fetched.
func compileSchema(raw json.RawMessage) (schema json.RawMessage, check func(json.RawMessage) error, unchecked []string, err error) {
	if len(raw) == 0 {
		return anyObject, checkObject, nil, nil
	}
	schema, check, unchecked, err = compileObject(raw)
	if err != nil {
		return anyObject, checkObject, nil, err
	}
	return schema, check, unchecked, nil
}

func compileObject(raw json.RawMessage) (_ json.RawMessage, _ func(json.RawMessage) error, unchecked []string, err error) {
	defer func() {
		if r := recover(); r != nil { // the library asserts what it takes for granted
			err = fmt.Errorf("it cannot be read: %v", r)
		}
	}()
	if first(raw) != '{' {
		return nil, nil, nil, fmt.Errorf("it is %s, and is to be an object", kindOf(raw))
	}
	if len(raw) > maxSchema {
		return nil, nil, nil, fmt.Errorf("it has %d bytes, and may have at most %d", len(raw), maxSchema)
	}
	if depth(raw) > maxDepth {
		return nil, nil, nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, nil, nil, err
	}
	switch {
	case len(s.Types) > 0 || s.Type != "" && s.Type != "object":
		return nil, nil, nil, errors.New(`its type is not "object"`)
	case s.Type == "":
		// MCP asks for the type; a schema of properties alone means it.
		s.Type = "object"
		if raw, err = withType(raw); err != nil {
			return nil, nil, nil, err
		}
	}
	if s.Schema != draft07 && s.Schema != draft07+"#" {
		s.Schema = "" // read as 2020-12, also where it names a draft that is not known
	} else {
		s.Schema = draft07 + "#"
	}
	unchecked = loosen(&s)
	g, err := newGraph(&s)
	if err != nil {
		return nil, nil, nil, err
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, nil, nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, nil, nil, err
	}
	return compact.Bytes(), func(arguments json.RawMessage) error { return checkAgainst(resolved, g, arguments) }, unchecked, nil
}

const draft07 = "http://json-schema.org/draft-07/schema"

// withType puts the type before the other keys.
func withType(raw json.RawMessage) (json.RawMessage, error) {
	rest := bytes.TrimLeft(raw, " \t\r\n")[1:]
	out := append(make([]byte, 0, len(rest)+len(`{"type":"object",`)), `{"type":"object"`...)
	if first(rest) != '}' {
		out = append(out, ',')
	}
	out = append(out, rest...)
	if !json.Valid(out) {
		return nil, errors.New("it is not JSON")
	}
	return out, nil
}

// depth is how deep JSON is nested.
func depth(raw []byte) int {
	var now, most int
	inText, escaped := false, false
	for _, b := range raw {
		switch {
		case inText:
			switch {
			case escaped:
				escaped = false
			case b == '\\':
				escaped = true
			case b == '"':
				inText = false
			}
		case b == '"':
			inText = true
		case b == '{' || b == '[':
			now++
			most = max(most, now)
		case b == '}' || b == ']':
			now--
		}
	}
	return most
}
