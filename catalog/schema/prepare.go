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

// maxUnchecked is the maximum number of unchecked keywords of one schema that are named.
const maxUnchecked = 5

// A preparation removes from a schema what the validator cannot check.
type preparation struct {
	unchecked []string
	count     int // number of subschemas, and of values that may be one
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
				delete(s, "additionalProperties") // it applies to members that match none
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

// children returns the possible subschemas of a schema, by JSON pointer. It includes the values of unknown
// keywords, since references may lead there.
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

// relax is for a schema that accepts more than it should. It removes everything that would then refuse more:
// negations and counts of matches.
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

// isForeign reports whether a regular expression is valid in ECMAScript but not supported by Go, and not just
// invalid.
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
		return strings.HasPrefix(fault.Expr, "[]") || strings.HasPrefix(fault.Expr, "[^]") // any character, and none
	}

	return false
}

// A hostile schema of a few lines can refer to itself without end, or double the work with each reference,
// and the validator sets no limit. So references that lead back at the same value are refused at once, and
// the work of each check is counted in advance.

// parts are the schemas that a schema applies, without nil.
type parts struct {
	inPlace []*jsonschema.Schema // to the same value
	swept   []*jsonschema.Schema // to the members or items of a value, by a sweep
	inside  []*jsonschema.Schema // to the members or items of a value, by the validator
	first   []*jsonschema.Schema // to the item with the same index
}

func partsOf(s *jsonschema.Schema) *parts {
	p := &parts{first: items(s)}

	add := func(to *[]*jsonschema.Schema, children ...any) {
		for _, child := range children {
			if child, ok := child.(*jsonschema.Schema); ok && child != nil {
				*to = append(*to, child)
			}
		}
	}
	add(&p.inPlace, s.Ref, s.Not, s.If, s.Then, s.Else)
	p.inPlace = slices.Concat(p.inPlace, s.AllOf, s.AnyOf, s.OneOf)
	p.inPlace = slices.AppendSeq(p.inPlace, maps.Values(s.DependentSchemas))
	for _, child := range s.Dependencies {
		add(&p.inPlace, child)
	}

	add(&p.swept, s.PropertyNames, s.Items2020, s.AdditionalProperties, s.Items)
	p.swept = slices.AppendSeq(p.swept, maps.Values(s.PatternProperties))
	add(&p.inside, s.Contains, s.AdditionalItems, s.UnevaluatedProperties, s.UnevaluatedItems)
	return p
}

// items returns the schemas of the first items.
func items(s *jsonschema.Schema) []*jsonschema.Schema {
	if tuple, ok := s.Items.([]*jsonschema.Schema); ok {
		return tuple
	}
	return s.PrefixItems
}

// reachable returns the schemas reachable from root with their parts; ok is false if one of them applies itself to
// the same value again.
func reachable(root *jsonschema.Schema) (all map[*jsonschema.Schema]*parts, ok bool) {
	all = map[*jsonschema.Schema]*parts{}
	open := map[*jsonschema.Schema]bool{}
	later := []*jsonschema.Schema{root}
	var visit func(s *jsonschema.Schema) bool
	visit = func(s *jsonschema.Schema) bool {
		if all[s] != nil {
			return !open[s]
		}

		p := partsOf(s)
		all[s], open[s] = p, true
		for _, next := range p.inPlace {
			if !visit(next) {
				return false
			}
		}

		delete(open, s)
		later = append(append(append(later, p.swept...), p.inside...), p.first...)
		later = slices.AppendSeq(later, maps.Values(s.Properties))
		return true
	}
	for len(later) > 0 {
		next := later[len(later)-1]
		later = later[:len(later)-1]
		if !visit(next) {
			return nil, false
		}
	}

	return all, true
}

// affordable reports whether checking a value takes no more than most steps, and no more than maxSteps between two
// sweeps: the errors of these are kept together. It counts at least as many steps as the validator takes.
func (s *Schema) affordable(value any, most int) bool {
	steps, together := 0, 0
	var count func(s *jsonschema.Schema, v any) bool
	each := func(all []*jsonschema.Schema, v any) bool {
		return !slices.ContainsFunc(all, func(s *jsonschema.Schema) bool { return !count(s, v) })
	}

	// children counts the steps for an item or a member.
	children := func(p *parts, own *jsonschema.Schema, v any) bool {
		if own != nil && !count(own, v) || !each(p.inside, v) {
			return false
		}
		before := together
		for _, child := range p.swept {
			together = 0
			if !count(child, v) {
				return false
			}
		}
		together = before
		return true
	}

	count = func(at *jsonschema.Schema, v any) bool {
		// Comparing values one by one is work too, though less.
		compared := len(at.Required)
		if at.Enum != nil {
			compared += len(at.Enum.Values)
		}

		p := s.parts[at]
		steps += 1 + compared/16
		together++
		if steps > most || together > maxSteps || !each(p.inPlace, v) {
			return false
		}
		switch v := v.(type) {
		case map[string]any:
			steps += len(v) / 16
			for name, member := range v {
				if !children(p, at.Properties[name], member) {
					return false
				}
			}
		case []any:
			steps += len(v) / 16
			for i, item := range v {
				var own *jsonschema.Schema
				if i < len(p.first) {
					own = p.first[i]
				}
				if !children(p, own, item) {
					return false
				}
			}
		}

		return true
	}
	return count(s.root, value)
}
