package source

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
)

// flattened makes the schema of an object one without alternatives and conditions at its top: it has the
// properties of all of them, and its description says which go together.
func (p *portable) flattened(s node) node {
	out := without(s, "anyOf", "oneOf", "allOf", "enum", "const", "not")
	for _, part := range get[[]any](s, "allOf") {
		if o, ok := part.(node); ok {
			out = conjoined(out, p.flattened(o))
		}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if forms := get[[]any](s, key); len(forms) > 0 {
			union, named := p.union(forms)
			out = conjoined(out, union)
			note := fmt.Sprintf("The arguments have one of these forms: %s.", strings.Join(named, "; "))
			out = out.Set("description", json.RawMessage(jsontext.Quote(strings.TrimSpace(stringOf(get[any](out, "description"))+" "+jsontext.Clip(note, maxFormsText)))))
		}
	}
	if len(without(s, "anyOf", "oneOf", "allOf", "enum", "const", "not")) < len(s) {
		p.changed("oneOf, anyOf, allOf, enum, const and not at the top are replaced by the properties of all forms")
	}
	if stringOf(get[any](s, "type")) != "object" {
		p.changed("the type at the top is object alone")
		out = out.Set("type", json.RawMessage(`"object"`))
	}
	return out
}

// conjoined returns the schema of an object that fits both: a, with the properties and the required names of
// b as well.
func conjoined(a, b node) node {
	properties := slices.Clone(get[node](a, "properties"))
	for _, m := range get[node](b, "properties") {
		had, has := properties.Get(m.Key)
		x, ok := had.(node)
		y, also := m.Value.(node)
		if has && ok && also {
			m.Value = merged(x, y)
		}
		properties = properties.Set(m.Key, m.Value)
	}
	required := slices.Clone(get[[]any](a, "required"))
	for _, v := range get[[]any](b, "required") {
		if !slices.ContainsFunc(required, func(had any) bool { return stringOf(had) == stringOf(v) }) {
			required = append(required, v)
		}
	}
	if len(properties) > 0 {
		a = a.Set("properties", properties)
	}
	if len(required) > 0 {
		a = a.Set("required", required)
	}
	return a
}

// union returns the schema of an object that fits any of the forms, and what distinguishes each: the
// properties that it requires, else those that it has.
func (p *portable) union(forms []any) (union node, named []string) {
	var properties node // the different schemas of each
	var required []any
	for i, form := range forms {
		o, ok := form.(node)
		if !ok {
			continue
		}
		o = p.flattened(o)
		var names []string
		for _, m := range get[node](o, "properties") {
			names = append(names, m.Key)
			had, _ := properties.Get(m.Key)
			list, _ := had.([]any)
			if !slices.ContainsFunc(list, func(v any) bool { return reflect.DeepEqual(v, m.Value) }) {
				list = append(list, m.Value)
			}
			properties = properties.Set(m.Key, list)
		}
		needs := get[[]any](o, "required")
		if i == 0 {
			required = needs
		}
		required = slices.DeleteFunc(slices.Clone(required), func(v any) bool {
			return !slices.ContainsFunc(needs, func(n any) bool { return stringOf(n) == stringOf(v) })
		})
		if len(needs) > 0 {
			names = nil
			for _, v := range needs {
				names = append(names, stringOf(v))
			}
		}
		named = append(named, strings.Join(names, ", "))
	}
	for i, m := range properties {
		if list := m.Value.([]any); len(list) == 1 {
			properties[i].Value = list[0]
		} else {
			properties[i].Value = node{{Key: "anyOf", Value: list}}
		}
	}
	return node{{Key: "properties", Value: properties}, {Key: "required", Value: required}}, named
}

// original gives the properties in a value of the listed schemas their original names.
func (a *Adaptation) original(value json.RawMessage, listed []node) json.RawMessage {
	listed = inPlace(listed)
	var out any
	switch kind := jsontext.Kind(value); {
	case len(listed) == 0:
		return value
	case kind == "object":
		object := jsontext.OrderedMap[json.RawMessage]{}
		for m, err := range jsontext.Members(value) {
			if err != nil {
				return value // the check says what is wrong
			}
			var properties, others []node
			for _, s := range listed {
				properties = appendNode(properties, get[any](get[node](s, "properties"), m.Name))
				others = appendNode(others, get[any](s, "additionalProperties"))
			}
			if len(properties) == 0 {
				properties = others
			} else if name, ok := a.Renamed[m.Name]; ok {
				m.Name = name
			}
			object = append(object, jsontext.Pair[json.RawMessage]{Key: m.Name, Value: a.original(m.Value, properties)})
		}
		out = object
	case kind == "array":
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return value
		}
		for i := range items {
			var of []node
			for _, s := range listed {
				of = appendNode(of, get[any](s, "items"))
				if first := get[[]any](s, "prefixItems"); i < len(first) {
					of = appendNode(of, first[i])
				}
			}
			items[i] = a.original(items[i], of)
		}
		out = items
	default:
		return value
	}
	data, err := jsontext.Encode(out)
	if err != nil {
		return value
	}
	return data
}

func appendNode(all []node, v any) []node {
	if s, ok := v.(node); ok {
		return append(all, s)
	}
	return all
}

// inPlace returns schemas and those that apply to the same value.
func inPlace(all []node) []node {
	for i := 0; i < len(all); i++ {
		for _, key := range []string{"anyOf", "oneOf", "allOf"} {
			for _, v := range get[[]any](all[i], key) {
				all = appendNode(all, v)
			}
		}
		for _, key := range []string{"if", "then", "else"} {
			all = appendNode(all, get[any](all[i], key))
		}
	}
	return all
}
