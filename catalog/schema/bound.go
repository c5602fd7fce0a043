package schema

import (
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A hostile schema of a few lines can refer to itself without end, or double the work with each
// reference; the validator has no bound of its own. So references that lead back at the same value
// are refused at once, and the work of each check is counted in advance.

// inPlace returns the schemas that apply to the same value as s.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf)
	for _, child := range s.DependentSchemas {
		all = append(all, child)
	}
	for _, child := range s.Dependencies {
		all = appendSchema(all, child)
	}
	return all
}

// inside returns the schemas that apply to the members or items of a value, except those of named
// members and of items at an index.
func inside(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems}
	for _, child := range s.PatternProperties {
		all = append(all, child)
	}
	for _, child := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		all = appendSchema(all, child)
	}
	return all
}

// appendSchema appends child if it is a schema, not another type.
func appendSchema(all []*jsonschema.Schema, child any) []*jsonschema.Schema {
	if s, ok := child.(*jsonschema.Schema); ok {
		all = append(all, s)
	}
	return all
}

// items returns the schemas of the first items.
func items(s *jsonschema.Schema) []*jsonschema.Schema {
	if tuple, ok := s.Items.([]*jsonschema.Schema); ok {
		return tuple
	}
	return s.PrefixItems
}

// reachable returns the schemas reachable from root; ok is false if one of them applies itself to
// the same value again.
func reachable(root *jsonschema.Schema) (all []*jsonschema.Schema, ok bool) {
	const open, done = 1, 2
	state := map[*jsonschema.Schema]int{nil: done}
	later := []*jsonschema.Schema{root}
	var visit func(s *jsonschema.Schema) bool
	visit = func(s *jsonschema.Schema) bool {
		if state[s] != 0 {
			return state[s] == done
		}
		state[s] = open
		for _, next := range inPlace(s) {
			if !visit(next) {
				return false
			}
		}
		state[s] = done
		all = append(all, s)
		later = append(append(later, inside(s)...), items(s)...)
		later = slices.AppendSeq(later, maps.Values(s.Properties))
		return true
	}
	for len(later) > 0 {
		next := later[len(later)-1]
		if later = later[:len(later)-1]; !visit(next) {
			return nil, false
		}
	}
	return all, true
}

// affordable reports whether checking a value takes no more than most steps. It counts at least as
// many steps as the validator takes.
func affordable(root *jsonschema.Schema, value any, most int) bool {
	steps := 0
	var count func(s *jsonschema.Schema, v any) bool
	each := func(all []*jsonschema.Schema, v any) bool {
		return !slices.ContainsFunc(all, func(s *jsonschema.Schema) bool { return s != nil && !count(s, v) })
	}
	count = func(s *jsonschema.Schema, v any) bool {
		// Comparing values one by one is work too, though less.
		compared := len(s.Required)
		if s.Enum != nil {
			compared += len(s.Enum.Values)
		}
		if steps += 1 + compared/16; steps > most || !each(inPlace(s), v) {
			return false
		}
		switch v := v.(type) {
		case map[string]any:
			all := inside(s)
			steps += len(v) / 16
			for name, member := range v {
				if child := s.Properties[name]; child != nil && !count(child, member) || !each(all, member) {
					return false
				}
				if s.PropertyNames != nil && !count(s.PropertyNames, name) {
					return false
				}
			}
		case []any:
			all, first := inside(s), items(s)
			steps += len(v) / 16
			for i, item := range v {
				if i < len(first) && !count(first[i], item) || !each(all, item) {
					return false
				}
			}
		}
		return true
	}
	return count(root, value)
}
