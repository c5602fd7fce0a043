package transport

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/workflow"
)

// property is one argument of a tool.
type property struct {
	name     string
	required bool
	schema   *jsonschema.Schema
}

// inputSchema makes the input schema of a tool from its arguments, in order.
func inputSchema(props ...property) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, p := range props {
		s.Properties[p.name] = p.schema
		s.PropertyOrder = append(s.PropertyOrder, p.name)
		if p.required {
			s.Required = append(s.Required, p.name)
		}
	}
	return s
}

// required is a string that must be given.
func required(name string, limit int, description string) property {
	return property{name, true, &jsonschema.Schema{Type: "string", MaxLength: &limit, Description: description}}
}

// optional is a string that may be left out, or be null.
func optional(name string, limit int, description string) property {
	return property{name, false, &jsonschema.Schema{Types: []string{"null", "string"}, MaxLength: &limit, Description: description}}
}

// The arguments that several tools share.
func sessionID() property {
	return optional("session_id", maxName, "The session, 8 hexadecimal characters as in begin_step and stack. Leave it out for the workflow on top "+
		"of the stack; give it when several run side by side, or to take one up after a restart or a lost connection.")
}

func requestID() property {
	return optional("request_id", maxName, "Your own name for this call, new for each, any text. "+
		"If a reply is lost, the same call with it gives the same reply and does nothing twice.")
}

// nullable are the lists of replies that may be null; every other list is [].
var nullable = []string{"concurrent_steps", "failed_reviews", "failed_criteria", "pending_concurrent_steps"}

// words are what the types of replies cannot tell, by the names of their fields.
type words struct {
	nullable []string          // the lists that may be null; every other is []
	enums    map[string][]any  // the allowed values of fields that have few
	items    map[string]string // what one entry of a list is
}

// workflowWords are those of the workflow tools.
var workflowWords = words{nullable, enums, items}

// enums are the allowed values of the fields of replies that have few.
var enums = map[string][]any{
	"status":                        {string(workflow.NeedsWork), string(workflow.NextStep), string(workflow.WorkflowComplete)},
	"state":                         {"started", "completed"},
	"type":                          {"file", "files"},
	"syntax_for_finished_step_tool": {"filepath", "array of filepaths for all individual files"},
}

// items says what one entry of a list is, by the list's name.
var items = map[string]string{
	"stack":                    "one workflow in progress",
	"workflows":                "one workflow of the job",
	"concurrent_steps":         "one step of the group, in full",
	"step_expected_outputs":    "one expected output",
	"step_reviews":             "one review",
	"step_quality_criteria":    "one question",
	"failed_reviews":           "one review that did not pass",
	"failed_criteria":          "the verdict on one criterion",
	"criteria_results":         "the verdict on one criterion",
	"pending_concurrent_steps": "a step's id",
	"invalidated_steps":        "a step's id",
	"completed_steps":          "a step's id",
	"members":                  "the state of one step",
}

// outputSchema derives the schema of a reply from its type, with the
// descriptions of its jsonschema tags. It panics where that cannot be: a fault
// of the program, found by any start of it.
func outputSchema[R any]() *jsonschema.Schema { return outputSchemaIn[R](workflowWords) }

// outputSchemaIn is outputSchema in the words of another toolset.
func outputSchemaIn[R any](w words) *jsonschema.Schema {
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[workflow.OrderedMap[string]](): {
			Type:                 "object",
			AdditionalProperties: &jsonschema.Schema{Type: "string", Description: "the criterion's question, under its name"},
		},
		reflect.TypeFor[workflow.Outputs](): {
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
	shareSteps(s)
	return s
}

// stepFields are the fields of replies that describe steps, or lists of them.
var stepFields = []string{"begin_step", "concurrent_steps"}

// shareSteps puts the schema of a step, the largest there is, once into a reply
// that describes steps in two fields: clients read tools/list at every start.
// The fields keep their type and description beside the reference, for clients
// that do not follow it; the definition allows null, for those that follow the
// reference alone.
func shareSteps(s *jsonschema.Schema) {
	const name = "step"
	for _, field := range stepFields {
		p := s.Properties[field]
		if p == nil {
			continue
		}
		if p.Items != nil {
			p = p.Items
		}
		if s.Defs == nil {
			def := p.CloneSchemas()
			def.Type, def.Types, def.Description = "", []string{"null", "object"}, "all that is needed to do a step"
			s.Defs = map[string]*jsonschema.Schema{name: def}
		}
		p.Ref = "#/$defs/" + name
		p.Properties, p.PropertyOrder, p.Required, p.AdditionalProperties = nil, nil, nil, nil
	}
}

// complete says what Go's types cannot: which lists are never null, what the
// items of lists are, which values a field may have. That there are no other
// fields it does not say: a client that has kept a schema would refuse a reply
// that has come to tell more.
func complete(s *jsonschema.Schema, w words) {
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	for name, p := range s.Properties {
		if slices.Equal(p.Types, []string{"null", "array"}) && !slices.Contains(w.nullable, name) {
			p.Type, p.Types = "array", nil
		}
		if p.Items != nil && p.Items.Description == "" {
			p.Items.Description = w.items[name]
		}
		if values := w.enums[name]; values != nil {
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
