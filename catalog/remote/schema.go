package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/schema"
)

// anyObject is the schema of a workflow that gives none that is usable (seed 003,
// 3.5 and 6.3).
var anyObject = json.RawMessage(`{"type":"object","additionalProperties":true}`)

// checkObject accepts any object.
func checkObject(arguments json.RawMessage) error {
	_, err := schema.Decode(arguments)
	return err
}

// compileSchema makes an inputSchema usable: what it returns is always an object
// schema and the check against it, of all but what unchecked names. The error says
// why that is the generic one, and is nil if none was given: a schema is optional.
func compileSchema(raw json.RawMessage) (object json.RawMessage, check func(json.RawMessage) error, unchecked []string, err error) {
	if len(raw) == 0 {
		return anyObject, checkObject, nil, nil
	}
	object, compiled, err := compileObject(raw)
	if err != nil {
		return anyObject, checkObject, nil, err
	}
	return object, compiled.Check, compiled.Unchecked, nil
}

func compileObject(raw json.RawMessage) (json.RawMessage, *schema.Schema, error) {
	switch {
	case jsontext.Kind(raw) != "object":
		return nil, nil, fmt.Errorf("it is %s, and is to be an object", kindOf(raw))
	case len(raw) > maxSchema:
		return nil, nil, fmt.Errorf("it has %d bytes, and may have at most %d", len(raw), maxSchema)
	case jsontext.Depth(raw) > maxDepth:
		return nil, nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, nil, err
	}
	object := json.RawMessage(compact.Bytes())
	var in struct {
		Type json.RawMessage `json:"type"`
	}
	if err := json.Unmarshal(object, &in); err != nil {
		return nil, nil, err
	}
	switch {
	case in.Type == nil:
		// MCP asks for the type; a schema of properties alone means it.
		rest := bytes.TrimPrefix(object, []byte("{"))
		if object = json.RawMessage(`{"type":"object"`); len(rest) > 1 {
			object = append(object, ',')
		}
		object = append(object, rest...)
	case string(in.Type) != `"object"`:
		return nil, nil, errors.New(`its type is not "object"`)
	}
	compiled, err := schema.Compile(object)
	return object, compiled, err
}
