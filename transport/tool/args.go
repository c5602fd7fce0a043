package tool

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
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
		if text, is := v.(string); is {
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
		description, is := f.Tag.Lookup("arg")
		if !is {
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
		text, is := f.Tag.Lookup(tag)
		if !is {
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
	case t == reflect.TypeFor[json.RawMessage]():
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
		kind, s.Minimum, s.Maximum = "integer", number("min"), number("max")
	case t.Kind() == reflect.Float64:
		kind, s.Minimum, s.Maximum = "number", number("min"), number("max")
	case t.Kind() == reflect.Slice:
		kind, s.MinItems, s.MaxItems = "array", whole("min"), whole("max")
		if t.Elem().Kind() == reflect.Struct {
			s.Items = inputSchema(Arguments(t.Elem()))
		} else {
			s.Items = &jsonschema.Schema{Type: "string", MaxLength: name(whole("each"))}
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

// Input returns the input schema of a tool whose arguments are an A.
func Input[A any]() *jsonschema.Schema { return inputSchema(Arguments(reflect.TypeFor[A]())) }

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
