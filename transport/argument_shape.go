package transport

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// take makes arguments known that no schema lists: another name, kept for those
// who still use it.
func (a *arguments) take(unlisted []property) {
	if len(unlisted) == 0 {
		return
	}
	a.props = maps.Clone(a.props)
	for _, p := range unlisted {
		a.props[p.name] = p.schema
	}
}

// isShaped tells whether a value has more to it than being a text of some length:
// numbers, truth values and lists.
func isShaped(p *jsonschema.Schema) bool {
	return p.Items != nil || slices.ContainsFunc(typesOf(p), func(t string) bool {
		return t == "integer" || t == "number" || t == "boolean"
	})
}

func typesOf(p *jsonschema.Schema) []string {
	if p.Type != "" {
		return []string{p.Type}
	}
	return p.Types
}

// misfit says how a value does not fit its schema, or nil. at names the value, as
// `repos[0].repo_id`. Ranges of numbers, and what texts say, are for whoever is
// called to judge, who knows what to do instead.
func misfit(at string, p *jsonschema.Schema, value json.RawMessage) *fault {
	kind, types := kindOf(value), typesOf(p)
	fits := slices.Contains(types, kind)
	if kind == "number" && slices.Contains(types, "integer") {
		_, err := strconv.ParseInt(string(value), 10, 64)
		fits = err == nil
	}
	if !fits {
		expected := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == "null" })
		return &fault{"invalid_argument", at, fmt.Sprintf("Argument %q is %s (%s); it must be %s: %s",
			at, article(kind), clip(string(value), 80), articles(expected), p.Description)}
	}
	switch kind {
	case "array":
		return misfitList(at, p, value)
	case "object":
		return misfitObject(at, p, value)
	case "string":
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return &fault{"invalid_argument", at, fmt.Sprintf("Argument %q is not a usable string: %v.", at, err)}
		}
		if n := utf8.RuneCountInString(s); p.MaxLength != nil && n > *p.MaxLength {
			return tooLarge(at, strconv.Itoa(n)+" characters long", fmt.Sprintf("%d characters", *p.MaxLength))
		}
	}
	return nil
}

func misfitList(at string, p *jsonschema.Schema, value json.RawMessage) *fault {
	var entries []json.RawMessage
	if err := json.Unmarshal(value, &entries); err != nil {
		return &fault{"invalid_argument", at, fmt.Sprintf("Argument %q is not a usable list: %v.", at, err)}
	}
	if p.MaxItems != nil && len(entries) > *p.MaxItems {
		return tooLarge(at, strconv.Itoa(len(entries))+" entries long", fmt.Sprintf("%d entries", *p.MaxItems))
	}
	for i, e := range entries {
		if f := misfit(fmt.Sprintf("%s[%d]", at, i), p.Items, e); f != nil {
			return f
		}
	}
	return nil
}

func misfitObject(at string, p *jsonschema.Schema, value json.RawMessage) *fault {
	given, err := members(value)
	if err != nil {
		return &fault{"invalid_argument", at, fmt.Sprintf("Argument %q is not usable: %v.", at, err)}
	}
	for _, g := range given {
		field := p.Properties[g.name]
		if field == nil {
			return &fault{"unknown_argument", at, fmt.Sprintf("Argument %q has the unknown field %q; its fields are %s.",
				at, clip(g.name, maxName), strings.Join(p.PropertyOrder, ", "))}
		}
		if f := misfit(at+"."+g.name, field, g.value); f != nil {
			return f
		}
	}
	for _, name := range p.Required {
		if !slices.ContainsFunc(given, func(g member) bool { return g.name == name }) {
			return &fault{"missing_argument", at + "." + name, fmt.Sprintf("Argument %q lacks the field %q: %s", at, name, p.Properties[name].Description)}
		}
	}
	return nil
}
