package source

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/schema"
)

// An offered workflow is a valid workflow, with the data needed to call it.
type offered struct {
	Workflow
	check func(json.RawMessage) error
	sum   [sha256.Size]byte // digest of its JSON
	notes []string          // what was replaced by something usable
}

// parseWorkflow checks one workflow and fills in what is missing (seed 003, 3.3, 6.1 and 6.3). An error comes
// with a label for the workflow, if it has one.
func parseWorkflow(source string, text json.RawMessage) (_ *offered, label string, _ error) {
	if jsontext.Kind(text) != "object" {
		return nil, "", fmt.Errorf("it is %s, expected an object", kindOf(text))
	}

	var in struct{ ID, Name, Description, Category, Version, InputSchema, ExecutionType, Metadata json.RawMessage }
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, "", fmt.Errorf("it is not JSON: %w", err)
	}

	w := &offered{}
	w.Source, w.Async = source, true
	var faults []string
	need := func(key string, raw json.RawMessage, to *string) {
		if fault := textOf(raw, to); fault != "" {
			faults = append(faults, key+" "+fault)
		}
	}
	need("id", in.ID, &w.ID)
	need("name", in.Name, &w.Name)
	need("description", in.Description, &w.Description)
	if len(w.ID) > maxID {
		faults = append(faults, fmt.Sprintf("id has %d bytes, at most %d are allowed", len(w.ID), maxID))
	}
	if n := utf8.RuneCountInString(w.Name); n > maxName {
		faults = append(faults, fmt.Sprintf("name has %d characters, at most %d are allowed", n, maxName))
	}
	label = jsontext.Clip(cmp.Or(w.ID, w.Name), 100)
	if len(faults) > 0 {
		return nil, label, errors.New(strings.Join(faults, "; "))
	}
	if n := utf8.RuneCountInString(w.Description); n > maxDescription {
		w.Description = jsontext.Clip(w.Description, maxDescription)
		w.note("its description has %d characters and was cut", n)
	}
	w.Category = w.field("category", in.Category, "workflow")
	w.Version = w.field("version", in.Version, "1.0.0")
	switch kind := w.field("executionType", in.ExecutionType, "async"); kind {
	case "sync":
		w.Async = false
	case "async":
	default:
		w.note("its executionType %q is not one of sync, async; async is used", kind)
	}
	if !jsontext.IsNull(in.Metadata) {
		switch {
		case jsontext.Kind(in.Metadata) != "object":
			w.note("its metadata is %s, not an object, and was left out", kindOf(in.Metadata))
		case len(in.Metadata) > maxMetadata:
			w.note("its metadata has %d bytes and was left out", len(in.Metadata))
		case jsontext.Depth(in.Metadata) > maxDepth:
			w.note("its metadata is nested more than %d deep and was left out", maxDepth)
		default:
			w.Metadata = in.Metadata
			w.performer()
		}
	}

	c := compileSchema(in.InputSchema)
	if c.err != nil {
		w.note("its inputSchema is not usable, so that any object is taken: %s", jsontext.Clip(c.err.Error(), 500))
	}
	if len(c.unchecked) > 0 {
		w.note("its inputSchema is listed as it is, and arguments are checked against all of it but what this server "+
			"cannot check: %s", strings.Join(c.unchecked, "; "))
	}
	w.InputSchema = c.listed
	w.Adapted = c.adapted
	w.check = c.check
	return w, label, nil
}

func (w *offered) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// performer reads metadata.performer, which affects only limits and waiting.
func (w *offered) performer() {
	var in struct{ Performer any }
	if json.Unmarshal(w.Metadata, &in) != nil || in.Performer == nil {
		return
	}
	switch in.Performer {
	case string(ByAgent), string(ByPerson):
		w.Performer = Performer(in.Performer.(string))
	default:
		w.note("its metadata.performer %.100q is not one of %s, %s and is ignored", fmt.Sprint(in.Performer),
			ByAgent, ByPerson)
	}
}

// field returns an optional text of a workflow.
func (w *offered) field(key string, raw json.RawMessage, otherwise string) string {
	if jsontext.IsNull(raw) {
		return otherwise
	}

	var s string
	if fault := textOf(raw, &s); fault != "" {
		w.note("its %s %s; %s is used", key, fault, otherwise)
		return otherwise
	}
	if utf8.RuneCountInString(s) > maxField {
		w.note("its %s is longer than %d characters; %s is used", key, maxField, otherwise)
		return otherwise
	}
	return s
}

// textOf decodes a nonblank text, or returns what is wrong with it.
func textOf(raw json.RawMessage, to *string) (fault string) {
	if jsontext.IsNull(raw) {
		return "is missing"
	}
	if jsontext.Kind(raw) != "string" {
		return "is " + kindOf(raw) + "; expected a text"
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return "is not JSON: " + err.Error()
	}
	if strings.TrimSpace(*to) == "" {
		return "is empty"
	}

	return ""
}

// kindOf returns the kind of a JSON value.
func kindOf(raw json.RawMessage) string {
	if kind := jsontext.Kind(raw); kind != "string" {
		return jsontext.WithArticle(kind)
	}
	return "a text"
}

// anyObject is the schema of a workflow without a usable schema (seed 003, 3.5 and 6.3).
var anyObject = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":true}`)

// An inputSchema is the input schema of a workflow.
type inputSchema struct {
	listed    json.RawMessage // an object schema that model APIs accept
	check     func(json.RawMessage) error
	unchecked []string // its keywords that are not checked
	err       error    // why it was replaced by anyObject, or nil
	adapted   *Adaptation
}

// compileSchema returns a usable input schema. It replaces a missing or invalid one by anyObject.
func compileSchema(raw json.RawMessage) *inputSchema {
	s := &inputSchema{listed: anyObject, check: func(arguments json.RawMessage) error {
		_, err := schema.Decode(arguments)
		return err
	}}

	if len(raw) == 0 {
		return s
	}

	object, compiled, err := compileObject(raw)
	s.err = err
	if err != nil {
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
		// MCP requires the type. A schema with only properties implies it.
		rest := bytes.TrimPrefix(object, []byte("{"))
		object = json.RawMessage(`{"type":"object"`)
		if len(rest) > 1 {
			object = append(object, ',')
		}
		object = append(object, rest...)
	case string(in.Type) != `"object"`:
		return nil, nil, errors.New(`its type is not "object"`)
	}
	compiled, err := schema.Compile(object)
	return object, compiled, err
}
