package tool

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"deepwork/catalog/jsontext"
	"deepwork/session/workflow/machine"

	"github.com/google/jsonschema-go/jsonschema"
)

// listedInput returns an input schema as clients see it. A model is shown every character of it, so
// it has only what an agent needs: calls are also checked against the limits of lengths and numbers,
// null is accepted for what is optional, and other arguments are refused.
func listedInput(s *jsonschema.Schema) *jsonschema.Schema {
	listed := s.CloneSchemas()
	listed.AdditionalProperties = nil
	for _, p := range listed.Properties {
		p.MinItems, p.MaxItems, p.MaxLength, p.Minimum, p.Maximum = nil, nil, nil, nil, nil
		p.Types = slices.DeleteFunc(slices.Clone(p.Types), func(t string) bool { return t == "null" })
		if len(p.Types) == 1 {
			p.Type, p.Types = p.Types[0], nil
		}
		p.Enum = slices.DeleteFunc(slices.Clone(p.Enum), func(v any) bool { return v == nil })
		if p.Items != nil {
			p.Items = listedInput(p.Items)
			p.Items.MaxLength = nil
		}
	}
	return listed
}

// Words describe, by field name, what the types of replies cannot.
type Words struct {
	Enums map[string][]any // the allowed values of fields
}

// OutputSchema derives the schema of a reply from its type, the descriptions of its jsonschema tags
// and the words of its toolset. It panics if that is not possible, a bug that any start of the
// program finds.
func OutputSchema[R any](w Words) *jsonschema.Schema {
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[jsontext.OrderedMap[string]](): {
			Type:                 "object",
			AdditionalProperties: &jsonschema.Schema{Type: "string", Description: "the criterion's question, under its name"},
		},
		reflect.TypeFor[machine.Outputs](): {
			Type: "object",
			AdditionalProperties: &jsonschema.Schema{
				Types:       []string{"string", "array"},
				Items:       &jsonschema.Schema{Type: "string", Description: "a path as submitted"},
				Description: "the output's path, or its list of paths, as submitted, under the output's name",
			},
		},
	}
	s, err := jsonschema.For[R](&jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		panic(fmt.Sprintf("transport: %v", err))
	}
	complete(s, w)
	return s
}

// complete adds what Go's types cannot express: that lists and fields that may be absent are never
// null, and which values a field may have. It allows other fields, since clients that store a schema
// would otherwise refuse replies with new ones.
func complete(s *jsonschema.Schema, w Words) {
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	for name, p := range s.Properties {
		if len(p.Types) == 2 && p.Types[0] == "null" && (p.Types[1] == "array" || !slices.Contains(s.Required, name)) {
			p.Type, p.Types = p.Types[1], nil
		}
		if values := w.Enums[name]; values != nil {
			p.Enum = values
			if slices.Contains(p.Types, "null") {
				p.Enum = append(slices.Clip(values), nil)
			}
		}
		complete(p, w)
	}
	if s.Items != nil {
		complete(s.Items, w)
	}
}

// OpenProperty sets the types of a property that holds foreign JSON.
func OpenProperty(s *jsonschema.Schema, name string, types ...string) {
	s.Properties[name] = &jsonschema.Schema{Types: types, Description: s.Properties[name].Description}
}

// MustJSON encodes a value of this program, such as a schema.
func MustJSON(v any) json.RawMessage {
	data, err := jsontext.Encode(v)
	if err != nil {
		panic(fmt.Sprintf("transport: %v", err)) // a bug in the program, found by its first test
	}
	return data
}
