package transport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session"
)

// The limits of arguments. A character is a Unicode code point.
const (
	maxText         = 100_000 // goal, explanation, notes and reasons
	maxName         = 200     // names and ids
	maxOutputsBytes = 1 << 20 // outputs, as JSON
	maxOutputsDepth = 10      // outputs, nested
)

// arguments checks what a tool is called with against its input schema. The
// schema is flat: strings of bounded length, and outputs, which may be anything
// of bounded size that is an object or a list.
type arguments struct {
	tool     string
	names    []string
	required []string
	props    map[string]*jsonschema.Schema
	free     []string // of any value: whoever is called judges it
}

func newArguments(tool string, input *jsonschema.Schema) arguments {
	return arguments{tool: tool, names: input.PropertyOrder, required: input.Required, props: input.Properties}
}

// decode fills args, a pointer to a struct, from the arguments of a call. What
// does not fit the schema is a ToolError that names every fault; null for an
// argument that may be left out is as good as leaving it out.
func (a arguments) decode(raw json.RawMessage, args any) *session.Error {
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	given, err := members(raw)
	if err != nil {
		return session.Wrong("invalid_arguments", "The arguments of %s are not usable: %v. %s", a.tool, err, a.usage())
	}
	var faults []fault
	for _, g := range given {
		if a.props[g.name] == nil {
			faults = append(faults, fault{"unknown_argument", g.name, fmt.Sprintf("Unknown argument %q.", clip(g.name, maxName))})
		} else if f := a.fault(g.name, g.value); f != nil {
			faults = append(faults, *f)
		}
	}
	for _, name := range a.required {
		if !slices.ContainsFunc(given, func(g member) bool { return g.name == name && !isNull(g.value) }) {
			faults = append(faults, fault{"missing_argument", name,
				fmt.Sprintf("Missing required argument %q: %s", name, a.props[name].Description)})
		}
	}
	if len(faults) > 0 {
		return a.refuse(faults)
	}
	if err := json.Unmarshal(raw, args); err != nil {
		return session.Wrong("invalid_arguments", "The arguments of %s are not usable: %v. %s", a.tool, err, a.usage())
	}
	return nil
}

type fault struct{ code, argument, text string }

func (a arguments) refuse(faults []fault) *session.Error {
	const shown = 20
	texts := make([]string, 0, len(faults)+2)
	for i, f := range faults {
		if i == shown {
			texts = append(texts, fmt.Sprintf("And %d more.", len(faults)-shown))
			break
		}
		texts = append(texts, f.text)
	}
	texts = append(texts, a.usage())
	e := session.Wrong(faults[0].code, "%s was not called. %s", a.tool, strings.Join(texts, "\n"))
	return e.With("argument", clip(faults[0].argument, maxName)).With("allowed", a.names)
}

// usage says what the tool takes, and what to do next.
func (a arguments) usage() string {
	if len(a.names) == 0 {
		return fmt.Sprintf("%s takes no arguments: call it again with {}.", a.tool)
	}
	var optional []string
	for _, n := range a.names {
		if !slices.Contains(a.required, n) {
			optional = append(optional, n)
		}
	}
	var takes []string
	if len(a.required) > 0 {
		takes = append(takes, "requires "+strings.Join(a.required, ", "))
	}
	if len(optional) > 0 {
		takes = append(takes, "may be given "+strings.Join(optional, ", "))
	}
	return fmt.Sprintf("%s %s: correct the arguments and call it again.", a.tool, strings.Join(takes, " and "))
}

// fault says what is wrong with one argument, or nil.
func (a arguments) fault(name string, value json.RawMessage) *fault {
	if isNull(value) || slices.Contains(a.free, name) {
		return nil // absent, or not ours to judge
	}
	p := a.props[name]
	if isShaped(p) {
		return misfit(name, p, value)
	}
	kind := kindOf(value)
	types := p.Types
	if p.Type != "" {
		types = []string{p.Type}
	}
	list := kind == "array" && p.Type == "object" // outputs as seed 001 gives them; the engine judges
	if !list && !slices.Contains(types, kind) {
		expected := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == "null" })
		return &fault{"invalid_argument", name, fmt.Sprintf("Argument %q is %s (%s); it must be %s: %s",
			name, article(kind), clip(string(value), 80), articles(expected), p.Description)}
	}
	if kind != "string" {
		if len(value) > maxOutputsBytes {
			return tooLarge(name, fmt.Sprintf("%d bytes of JSON", len(value)), fmt.Sprintf("%d bytes", maxOutputsBytes))
		}
		if d := depth(value); d > maxOutputsDepth {
			return tooLarge(name, fmt.Sprintf("nested %d deep", d), fmt.Sprintf("a depth of %d", maxOutputsDepth))
		}
		return nil
	}
	if p.MaxLength == nil || len(value) <= *p.MaxLength {
		return nil // fewer bytes than characters allowed
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return &fault{"invalid_argument", name, fmt.Sprintf("Argument %q is not a usable string: %v.", name, err)}
	}
	if n := utf8.RuneCountInString(s); n > *p.MaxLength {
		return tooLarge(name, strconv.Itoa(n)+" characters long", fmt.Sprintf("%d characters", *p.MaxLength))
	}
	return nil
}

func tooLarge(name, is, limit string) *fault {
	return &fault{"argument_too_large", name, fmt.Sprintf(
		"Argument %q is %s; at most %s are allowed. Shorten it, or put the content in a file and give its path.", name, is, limit)}
}

type member struct {
	name  string
	value json.RawMessage
}

// members takes an object apart, in its order. A name that stands twice is an
// error: which of the two was meant cannot be known.
func members(raw json.RawMessage) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('{') {
		return nil, fmt.Errorf("they are %s, not an object", article(kindOf(raw)))
	}
	var out []member
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: t.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o member) bool { return o.name == m.name }) {
			return nil, fmt.Errorf("%q is given twice", clip(m.name, maxName))
		}
		if out = append(out, m); len(out) > 1000 {
			return nil, fmt.Errorf("there are more than 1000 of them")
		}
	}
	return out, nil
}

func isNull(v json.RawMessage) bool { return string(v) == "null" }

// kindOf is the JSON Schema type of a JSON value.
func kindOf(v json.RawMessage) string {
	v = bytes.TrimLeft(v, " \t\r\n")
	if len(v) == 0 {
		return "null"
	}
	switch v[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

func article(kind string) string {
	switch kind {
	case "null":
		return kind
	case "object", "array", "integer":
		return "an " + kind
	}
	return "a " + kind
}

func articles(kinds []string) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = article(k)
	}
	return strings.Join(words, " or ")
}

// depth is how deep a JSON value is nested; of "x" it is 0, of [] it is 1.
func depth(v json.RawMessage) (deepest int) {
	var now int
	var inString, escaped bool
	for _, b := range v {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = b == '\\', b != '"'
		case b == '"':
			inString = true
		case b == '{' || b == '[':
			now++
			deepest = max(deepest, now)
		case b == '}' || b == ']':
			now--
		}
	}
	return deepest
}
