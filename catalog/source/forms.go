package source

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
)

// flattened removes alternatives and conditions from the top of an object's schema: the result has the
// properties of all of them, and its description says which belong together.
func (p *portable) flattened(s node) node {
	out := withoutKeys(s, "anyOf", "oneOf", "allOf", "enum", "const", "not")
	var conditional []any
	for _, part := range get[[]any](s, "allOf") {
		if o, ok := part.(node); ok {
			out = intersection(out, p.flattened(o))
			conditional = append(conditional, get[any](o, "then"), get[any](o, "else"))
		}
	}
	branches, _ := p.union(conditional)
	out = out.Set("properties", merged(get[node](out, "properties"), get[node](branches, "properties")))
	for _, key := range []string{"anyOf", "oneOf"} {
		union, named := p.union(get[[]any](s, key))
		out = intersection(out, union)
		if len(named) > 1 {
			note := fmt.Sprintf("The arguments have one of these forms: %s.", strings.Join(named, "; "))
			out = out.Set("description",
				json.RawMessage(jsontext.Quote(
					strings.TrimSpace(stringOf(get[any](out, "description"))+" "+jsontext.Clip(note, maxFormsText)))))
		}
	}

	if len(withoutKeys(s, "anyOf", "oneOf", "allOf", "enum", "const", "not")) < len(s) {
		p.changed("oneOf, anyOf, allOf, enum, const and not at the top are replaced by the properties of all forms")
	}
	return out
}

// intersection returns the schema of an object that satisfies both: a, plus the properties and required names
// of b.
func intersection(a, b node) node {
	properties := slices.Clone(get[node](a, "properties"))
	for _, m := range get[node](b, "properties") {
		had, _ := properties.Get(m.Key)
		x, ok := had.(node)
		y, also := m.Value.(node)
		if ok && also {
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

// union returns the schema of an object that satisfies any of the forms. named says, for each form that an
// object can have, what distinguishes it: the properties that it requires, or else those that it has.
func (p *portable) union(forms []any) (union node, named []string) {
	var properties node // the different schemas of each property
	var required []any
	for _, form := range forms {
		o, _ := form.(node)
		if _, typed := o.Get("type"); o == nil || typed && !hasType(o, "object") {
			continue
		}
		o = p.flattened(o)

		var names []string
		needs := get[[]any](o, "required")
		for _, v := range needs {
			names = append(names, stringOf(v))
		}
		for _, m := range get[node](o, "properties") {
			if len(needs) == 0 {
				names = append(names, m.Key)
			}
			had, _ := properties.Get(m.Key)
			list, _ := had.([]any)
			if !slices.ContainsFunc(list, func(v any) bool { return reflect.DeepEqual(v, m.Value) }) {
				list = append(list, m.Value)
			}
			properties = properties.Set(m.Key, list)
		}

		if named == nil {
			required = needs
		}
		required = slices.DeleteFunc(slices.Clone(required), func(v any) bool {
			return len(needs) == 0 || !slices.Contains(names, stringOf(v))
		})
		named = append(named, cmp.Or(strings.Join(names, ", "), "others"))
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

// original restores the original names of properties in a value. own are the source's own schemas for the
// value.
func (a *Adaptation) original(value json.RawMessage, own ...node) json.RawMessage {
	own = a.inPlace(own)
	var out any
	switch kind := jsontext.Kind(value); {
	case len(own) == 0:
		return value
	case kind == "object":
		object := jsontext.OrderedMap[json.RawMessage]{}
		for m, err := range jsontext.Members(value) {
			if err != nil {
				return value // the check will report what is wrong
			}
			name, inside := a.member(m.Name, own)
			object = append(object, jsontext.Pair[json.RawMessage]{Key: name, Value: a.original(m.Value, inside...)})
		}
		out = object
	case kind == "array":
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return value
		}
		for i := range items {
			var inside []node
			for _, s := range own {
				first := slices.Concat(get[[]any](s, "items"), get[[]any](s, "prefixItems")) // draft 4 and 2020-12
				if i < len(first) {
					inside = appendNode(inside, first[i])
					continue
				}
				for _, key := range []string{"items", "additionalItems", "unevaluatedItems", "contains"} {
					inside = appendNode(inside, get[any](s, key))
				}
			}
			items[i] = a.original(items[i], inside...)
		}
		out = items
	default:
		return value
	}
	data, _ := jsontext.Encode(out) // every part of it was JSON
	return data
}

// member returns the original name of a member of an object, and the schemas of its value.
func (a *Adaptation) member(listed string, own []node) (name string, inside []node) {
	name, renamed := a.Renamed[listed]
	if !renamed {
		name = listed
	}

	known := false
	for _, s := range own {
		v, declared := get[node](s, "properties").Get(name)
		known = known || declared ||
			slices.ContainsFunc(get[[]any](s, "required"), func(v any) bool { return stringOf(v) == name })
		if declared {
			inside = appendNode(inside, v)
			continue
		}
		for _, m := range get[node](s, "patternProperties") {
			inside = appendNode(inside, m.Value)
		}
		for _, key := range []string{"additionalProperties", "unevaluatedProperties"} {
			inside = appendNode(inside, get[any](s, key))
		}
	}
	if !known {
		name = listed
	}
	return name, inside
}

func appendNode(all []node, v any) []node {
	if s, ok := v.(node); ok {
		return append(all, s)
	}
	return all
}

// inPlace returns schemas, and those that apply to the same value.
func (a *Adaptation) inPlace(all []node) []node {
	followed := map[string]bool{}
	for i := 0; i < len(all); i++ {
		if ref := stringOf(get[any](all[i], "$ref")); ref != "" && !followed[ref] {
			followed[ref] = true
			if target := find(a.own, ref); target != nil {
				all = append(all, target)
			}
		}
		for _, key := range []string{"anyOf", "oneOf", "allOf"} {
			for _, v := range get[[]any](all[i], key) {
				all = appendNode(all, v)
			}
		}
		for _, key := range []string{"dependentSchemas", "dependencies"} {
			for _, m := range get[node](all[i], key) {
				all = appendNode(all, m.Value)
			}
		}
		for _, key := range []string{"if", "then", "else"} {
			all = appendNode(all, get[any](all[i], key))
		}
	}
	return all
}
