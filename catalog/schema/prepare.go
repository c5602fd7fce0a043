package schema

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"deepwork/catalog/jsontext"
)

// maxUnchecked is how many unchecked keywords of one schema are named.
const maxUnchecked = 5

// A preparation removes from a schema what the validator cannot check.
type preparation struct {
	unchecked []string
	count     int // of subschemas and values that may be one
}

func (p *preparation) note(where, what string) {
	p.unchecked = append(p.unchecked, jsontext.Clip(where, 100)+" "+jsontext.Clip(what, 100))
}

func (p *preparation) names() []string {
	slices.Sort(p.unchecked)
	if more := len(p.unchecked) - maxUnchecked; more > 0 {
		return append(p.unchecked[:maxUnchecked], fmt.Sprintf("and %d more", more))
	}
	return p.unchecked
}

// schema prepares a schema and its subschemas.
func (p *preparation) schema(value any, path string) {
	s, ok := value.(map[string]any)
	if _, always := value.(bool); ok || always {
		p.count++
	}

	if !ok {
		return
	}

	delete(s, "format")
	if pattern, ok := s["pattern"].(string); ok && isForeign(pattern) {
		p.note(path+"/pattern", pattern)
		delete(s, "pattern")
	}
	if patterns, ok := s["patternProperties"].(map[string]any); ok {
		for pattern := range patterns {
			if isForeign(pattern) {
				p.note(path+"/patternProperties", pattern)
				delete(patterns, pattern)
				delete(s, "additionalProperties") // it applies to those that match none
			}
		}
	}

	for _, key := range []string{"$dynamicRef", "$recursiveRef"} {
		if to, ok := s[key].(string); ok {
			p.note(path+"/"+key, to)
			delete(s, key)
		}
	}
	for where, child := range children(s) {
		p.schema(child, path+where)
	}
}

// children returns the possible subschemas of a schema, by JSON pointer, including the values of
// unknown keywords, since references may lead there.
func children(s map[string]any) map[string]any {
	all := make(map[string]any)
	for key, value := range s {
		switch value := value.(type) {
		case map[string]any:
			switch key {
			case "enum", "const", "default", "examples", "dependentRequired":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
				for name, child := range value {
					all["/"+key+"/"+escape.Replace(name)] = child
				}
			default:
				all["/"+key] = value
			}
		case []any:
			if key != "enum" && key != "examples" && key != "default" && key != "const" {
				for i, child := range value {
					all[fmt.Sprintf("/%s/%d", key, i)] = child
				}
			}
		}
	}
	return all
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// relax removes from a schema that accepts more than it should everything that would then refuse
// more: negations and counts of matches.
func relax(value any) {
	s, ok := value.(map[string]any)
	if !ok {
		return
	}

	for _, key := range []string{"not", "if", "then", "else", "maxContains", "unevaluatedProperties",
		"unevaluatedItems"} {
		delete(s, key)
	}

	if forms, ok := s["oneOf"].([]any); ok {
		delete(s, "oneOf")
		all, _ := s["allOf"].([]any)
		s["allOf"] = append(all, map[string]any{"anyOf": forms})
	}

	for _, child := range children(s) {
		relax(child)
	}
}

// isForeign reports whether a regular expression is one of ECMAScript that Go does not support,
// rather than an invalid one.
func isForeign(pattern string) bool {
	_, err := regexp.Compile(pattern)
	fault, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return false
	}
	switch fault.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidNamedCapture, // (?=…), \1 and \u…, (?<ä>…)
		syntax.ErrInvalidRepeatSize, syntax.ErrNestingDepth, syntax.ErrLarge: // {2000}
		return true
	case syntax.ErrInvalidCharRange:
		return strings.HasPrefix(fault.Expr, `\p`) || strings.HasPrefix(fault.Expr, `\P`) // \p{Script=Greek}
	case syntax.ErrMissingBracket:
		return strings.HasPrefix(fault.Expr, "[]") || strings.HasPrefix(fault.Expr, "[^]") // any, and none
	}

	return false
}

// A hostile schema of a few lines can refer to itself without end, or double the work with each
// reference; the validator has no bound of its own. So references that lead back at the same value
// are refused at once, and the work of each check is counted in advance.

// inPlace returns the schemas that apply to the same value as s.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf)
	all = slices.AppendSeq(all, maps.Values(s.DependentSchemas))
	for _, child := range s.Dependencies {
		all = appendSchema(all, child)
	}
	return all
}

// inside returns the schemas that apply to the members or items of a value, except those of named
// members and of items at an index.
func inside(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems}
	all = slices.AppendSeq(all, maps.Values(s.PatternProperties))
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
