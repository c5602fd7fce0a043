package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

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
	for _, key := range []string{"not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems"} {
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
