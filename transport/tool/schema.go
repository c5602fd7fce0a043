package tool

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/fieldtag"
	"deepwork/catalog/jsontext"
	"deepwork/session/outputs"
)

// An Argument is one argument of a tool, as the tags of its field describe it. Input schemas, the
// forms of pages and the flags of commands are made from it. The tags are:
//
//	arg:"…"          its description; a field without is not an argument
//	max:"n"          the most characters of a text (default MaxName), entries of a list, or value of a number
//	min:"n"          the least entries of a list, or value of a number
//	each:"n"         the most characters of a text in a list (default MaxName)
//	enum:"a,b"       the allowed values of a text
//	required:"true"  it must be given; texts and numbers that are not pointers always must
//	unlisted:"true"  it is accepted, but no schema lists it
//	free:"true"      the call checks its value itself
//	optional:"true"  of an embedded struct: none of its arguments must be given
type Argument struct {
	Name        string
	Description string
	Kind        string             // its type in JSON: string, boolean, integer, number, array or object
	Schema      *jsonschema.Schema // with its limits
	Required    bool
	Unlisted    bool
	Free        bool
	Index       []int // of the field
}

// Values returns the values that the argument may have, nil if that is any.
func (a Argument) Values() (all []string) {
	for _, v := range a.Schema.Enum {
		if text, ok := v.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// Arguments returns the arguments of a struct, in order; the fields of embedded structs are arguments
// of the struct. It panics on tags that cannot be read, which any start of the program finds.
func Arguments(of reflect.Type) []Argument { return argumentsOf(of, false) }

func argumentsOf(of reflect.Type, optional bool) (all []Argument) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			for _, a := range argumentsOf(f.Type, f.Tag.Get("optional") != "") {
				a.Index = append([]int{i}, a.Index...)
				all = append(all, a)
			}
			continue
		}
		f.Tag = fieldtag.Of(of, f)
		description, ok := f.Tag.Lookup("arg")
		if !ok {
			continue
		}
		a := Argument{Description: description, Index: []int{i}}
		a.Name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
		a.Unlisted, a.Free = f.Tag.Get("unlisted") != "", f.Tag.Get("free") != ""
		kind := f.Type.Kind()
		a.Required = !optional && (f.Tag.Get("required") != "" || kind == reflect.String || kind == reflect.Int)
		a.Kind, a.Schema = schemaOf(f, a.Required)
		a.Schema.Description = description
		all = append(all, a)
	}
	return all
}

// schemaOf returns the type and the schema of a field. What is optional may be null.
func schemaOf(f reflect.StructField, required bool) (kind string, s *jsonschema.Schema) {
	number := func(tag string) *float64 {
		text, ok := f.Tag.Lookup(tag)
		if !ok {
			return nil
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(fmt.Sprintf("transport: the tag %s of %s: %v", tag, f.Name, err))
		}
		return &n
	}
	whole := func(tag string) *int {
		n := number(tag)
		if n == nil {
			return nil
		}
		return new(int(*n))
	}
	name := func(n *int) *int {
		if n == nil {
			return new(MaxName)
		}
		return n
	}

	t := f.Type
	kind, s = "object", &jsonschema.Schema{}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage](): // of any form
	case t.Kind() == reflect.String:
		kind, s.MaxLength = "string", name(whole("max"))
		if values := f.Tag.Get("enum"); values != "" {
			for v := range strings.SplitSeq(values, ",") {
				s.Enum = append(s.Enum, v)
			}
			if !required {
				s.Enum = append(s.Enum, nil)
			}
		}
	case t.Kind() == reflect.Bool:
		kind = "boolean"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		kind = "integer"
		s.Minimum = number("min")
		s.Maximum = number("max")
	case t.Kind() == reflect.Float64:
		kind = "number"
		s.Minimum = number("min")
		s.Maximum = number("max")
	case t.Kind() == reflect.Slice:
		kind = "array"
		s.MinItems = whole("min")
		s.MaxItems = whole("max")
		if t.Elem().Kind() == reflect.Struct {
			s.Items = inputSchema(Arguments(t.Elem()))
		} else {
			s.Items = &jsonschema.Schema{Type: "string", MaxLength: name(whole("each"))}
		}
	case t.Kind() == reflect.Map: // of names to texts, or lists of them
		s.AdditionalProperties = &jsonschema.Schema{
			Types: []string{"null", "string", "array"},
			Items: &jsonschema.Schema{Type: "string"},
		}
	default:
		panic(fmt.Sprintf("transport: no schema for the argument %s, a %s", f.Name, t))
	}
	if required {
		s.Type = kind
	} else {
		s.Types = []string{"null", kind}
	}

	return kind, s
}

// Input returns the input schema of a tool whose arguments are an A and some more.
func Input[A any](more ...Argument) *jsonschema.Schema {
	return inputSchema(append(Arguments(reflect.TypeFor[A]()), more...))
}

func inputSchema(all []Argument) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}

	for _, a := range all {
		if a.Unlisted {
			continue
		}

		s.Properties[a.Name] = a.Schema
		s.PropertyOrder = append(s.PropertyOrder, a.Name)
		if a.Required {
			s.Required = append(s.Required, a.Name)
		}
	}

	return s
}

// listedInput returns an input schema as clients see it. A model is shown every character of it, so
// it has only what an agent needs: calls are also checked against the limits of lengths and numbers,
// null is accepted for what is optional, and other arguments are refused.
func listedInput(s *jsonschema.Schema) *jsonschema.Schema {
	listed := s.CloneSchemas()
	listed.AdditionalProperties = nil
	for _, p := range listed.Properties {
		p.MinItems = nil
		p.MaxItems = nil
		p.MaxLength = nil
		p.Minimum = nil
		p.Maximum = nil
		p.Types = slices.DeleteFunc(slices.Clone(p.Types), func(t string) bool { return t == "null" })
		if len(p.Types) == 1 {
			p.Type, p.Types = p.Types[0], nil
		}
		p.Enum = slices.DeleteFunc(slices.Clone(p.Enum), func(v any) bool { return v == nil })
		if p.Items != nil {
			p.Items = listedInput(p.Items)
			p.Items.MaxLength = nil
		}
		p.AdditionalProperties = nil
	}

	return listed
}

// ListedOutput encodes an output schema as clients see it. They read it at every start, so it lacks what they do not
// need to read a reply: which fields are always there, and the values of a field whose description has them all.
func ListedOutput(s *jsonschema.Schema) json.RawMessage {
	listed := s.CloneSchemas()
	shorten(listed)
	return MustJSON(listed)
}

func shorten(s *jsonschema.Schema) {
	if s == nil {
		return
	}

	s.Required = nil
	unsaid := func(v any) bool { return v != nil && !strings.Contains(s.Description, fmt.Sprint(v)) }
	if !slices.ContainsFunc(s.Enum, unsaid) {
		s.Enum = nil
	}

	for _, p := range s.Properties {
		shorten(p)
	}
	for _, def := range s.Defs {
		shorten(def)
	}
	shorten(s.Items)
	shorten(s.AdditionalProperties)
}

// Words say, by field name, what the types of replies cannot: the allowed values.
type Words map[string][]any

// OutputSchema derives the schema of a reply from its type, the descriptions of its jsonschema tags
// and the words of its toolset. It panics if that is not possible, a bug that any start of the
// program finds.
func OutputSchema[R any](w Words) *jsonschema.Schema {
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[jsontext.OrderedMap[string]](): {
			Type: "object",
			AdditionalProperties: &jsonschema.Schema{
				Type:        "string",
				Description: "the criterion's question, under its name",
			},
		},
		reflect.TypeFor[outputs.Map](): {
			Type: "object",
			AdditionalProperties: &jsonschema.Schema{
				Types: []string{"string", "array"},
				Items: &jsonschema.Schema{
					Types: []string{"string", "array", "null"},
					Description: "a path as submitted; or, of a step that is done for each item of a list, what it " +
						"has for one item",
				},
				Description: "the output's path, or its list of paths, as submitted, under the output's name",
			},
		},
	}
	s, err := jsonschema.For[R](&jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		panic(fmt.Sprintf("transport: %v", err))
	}

	describe(s, reflect.TypeFor[R]())
	complete(s, w)
	return s
}

// describe adds the descriptions of fields that are in a method of their type, which jsonschema.For does not read.
func describe(s *jsonschema.Schema, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		describe(s, t.Elem())
	case reflect.Slice:
		if s.Items != nil {
			describe(s.Items, t.Elem())
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[name]
			if p == nil {
				continue
			}
			if text := fieldtag.Of(t, f).Get("jsonschema"); text != "" {
				p.Description = text
			}
			describe(p, f.Type)
		}
	}
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
		if values := w[name]; values != nil {
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

// Refer has a schema leave the fields of the objects in a property to that of another tool, which lists them. It panics
// if the property has none.
func Refer(s *jsonschema.Schema, name, other string) {
	p := s.Properties[name]
	of := p
	if p.Items != nil {
		of = p.Items
	}
	if len(of.Properties) == 0 {
		panic("transport: no fields in " + name)
	}

	of.Properties = nil
	of.PropertyOrder = nil
	of.Required = nil
	p.Description += "; its fields are in " + other + "'s output schema"
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
