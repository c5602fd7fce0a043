package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/schema"
)

// anyObject is the schema of a workflow without a usable one (seed 003, 3.5 and 6.3).
var anyObject = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":true}`)

// An inputSchema is the input schema of a workflow.
type inputSchema struct {
	listed    json.RawMessage // an object schema that model APIs accept
	check     func(json.RawMessage) error
	unchecked []string // its keywords that are not checked
	err       error    // why it was replaced by that of any object, or nil
	adapted   *Adaptation
}

// compileSchema makes an inputSchema usable. A missing or invalid one is replaced by that of any
// object.
func compileSchema(raw json.RawMessage) *inputSchema {
	s := &inputSchema{listed: anyObject, check: func(arguments json.RawMessage) error {
		_, err := schema.Decode(arguments)
		return err
	}}
	if len(raw) == 0 {
		return s
	}
	object, compiled, err := compileObject(raw)
	if s.err = err; err != nil {
		return s
	}
	s.check, s.unchecked = compiled.Check, compiled.Unchecked
	s.listed, s.adapted = adapt(object)
	return s
}

func compileObject(raw json.RawMessage) (json.RawMessage, *schema.Schema, error) {
	switch {
	case jsontext.Kind(raw) != "object":
		return nil, nil, fmt.Errorf("it is %s, expected an object", kindOf(raw))
	case len(raw) > maxSchema:
		return nil, nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(raw), maxSchema)
	case jsontext.Depth(raw) > maxDepth:
		return nil, nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, nil, err
	}
	object := json.RawMessage(compact.Bytes())
	var in struct{ Type json.RawMessage }
	if err := json.Unmarshal(object, &in); err != nil {
		return nil, nil, err
	}
	var types []string
	if jsontext.Kind(in.Type) == "array" && json.Unmarshal(in.Type, &types) == nil && slices.Contains(types, "object") {
		in.Type = json.RawMessage(`"object"`) // arguments are always an object
	}
	switch {
	case in.Type == nil:
		// MCP requires the type; a schema with only properties implies it.
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
