package tool

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/jsontext"
	"deepwork/session/workflow/machine"
)

// Property is one argument of a tool.
type Property struct {
	Name     string
	Required bool
	Schema   *jsonschema.Schema
}

// InputSchema makes the input schema of a tool from its arguments, in order.
func InputSchema(props ...Property) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, p := range props {
		s.Properties[p.Name] = p.Schema
		s.PropertyOrder = append(s.PropertyOrder, p.Name)
		if p.Required {
			s.Required = append(s.Required, p.Name)
		}
	}
	return s
}

// Required is a string that must be given.
func Required(name string, limit int, description string) Property {
	return Property{name, true, &jsonschema.Schema{Type: "string", MaxLength: &limit, Description: description}}
}

// Optional is a string that may be left out, or be null.
func Optional(name string, limit int, description string) Property {
	return Property{name, false, &jsonschema.Schema{Types: []string{"null", "string"}, MaxLength: &limit, Description: description}}
}

func SessionID() Property {
	return Optional("session_id", MaxName, "The session, 8 hexadecimal characters as in begin_step and stack. Leave it out for the workflow on top "+
		"of the stack; give it when several run side by side, or to take one up after a restart or a lost connection.")
}

func RequestID() Property {
	return Optional("request_id", MaxName, "Your own name for this call, new for each, any text. "+
		"If a reply is lost, the same call with it gives the same reply and does nothing twice.")
}

// Words describe what the types of replies cannot, by the names of their fields.
type Words struct {
	Nullable []string          // the lists that may be null; every other is []
	Enums    map[string][]any  // the allowed values of fields that have few
	Items    map[string]string // what one entry of a list is
}

// OutputSchema derives the schema of a reply from its type, with the descriptions of
// its jsonschema tags, in the words of its toolset. It panics if that is not possible:
// a bug in the program, found by any start of it.
func OutputSchema[R any](w Words) *jsonschema.Schema {
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[machine.OrderedMap[string]](): {
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

// complete adds what Go's types cannot say: which lists are never null, what the items
// of lists are, which values a field may have. It allows other fields: a client that
// has kept a schema would otherwise refuse a reply with new ones.
func complete(s *jsonschema.Schema, w Words) {
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	for name, p := range s.Properties {
		if slices.Equal(p.Types, []string{"null", "array"}) && !slices.Contains(w.Nullable, name) {
			p.Type, p.Types = "array", nil
		}
		if p.Items != nil && p.Items.Description == "" {
			p.Items.Description = w.Items[name]
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

// OpenProperty says which types a property may have that is JSON from elsewhere.
func OpenProperty(s *jsonschema.Schema, name string, types ...string) {
	s.Properties[name] = &jsonschema.Schema{Types: types, Description: s.Properties[name].Description}
}

// MustJSON encodes a value of ours, such as a schema.
func MustJSON(v any) json.RawMessage {
	data, err := jsontext.Encode(v)
	if err != nil {
		panic(fmt.Sprintf("transport: %v", err)) // a bug in the program, found by its first test
	}
	return data
}
