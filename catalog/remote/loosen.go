package remote

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A loosening takes out of a schema what is right and cannot be checked here, so that
// the rest of it can be: regular expressions of ECMAScript that Go has not, and
// dynamic references. What is left takes all that the schema takes, and more.
type loosening struct {
	notes []string // what was taken out, and where
	more  int      // that are not in notes
	at    map[*jsonschema.Schema]bool
}

// maxLoosened is how many keywords are named that were taken out of one schema.
const maxLoosened = 5

// loosen changes the schema and returns what was taken out of it, and where.
func loosen(root *jsonschema.Schema) []string {
	l := &loosening{at: make(map[*jsonschema.Schema]bool)}
	var walk func(s *jsonschema.Schema, path string)
	walk = func(s *jsonschema.Schema, path string) {
		l.take(s, path)
		for where, child := range children(s) {
			if child != nil {
				walk(child, path+where)
			}
		}
	}
	walk(root, "")
	if len(l.notes) > 0 {
		l.relax(root)
	}
	if l.more > 0 {
		l.notes = append(l.notes, fmt.Sprintf("and %d more", l.more))
	}
	return l.notes
}

// take takes out of one schema.
func (l *loosening) take(s *jsonschema.Schema, path string) {
	if s.Pattern != "" && isForeign(s.Pattern) {
		l.note(s, path+"/pattern", s.Pattern)
		s.Pattern = ""
	}
	for _, pattern := range slices.Sorted(maps.Keys(s.PatternProperties)) {
		if isForeign(pattern) {
			l.note(s, path+"/patternProperties", pattern)
			delete(s.PatternProperties, pattern)
			s.AdditionalProperties = nil // it is about those that match none
		}
	}
	if s.DynamicRef != "" {
		l.note(s, path+"/$dynamicRef", s.DynamicRef)
		s.DynamicRef = ""
	}
	if s.DynamicAnchor != "" {
		// A plain reference may name it, too.
		if s.Anchor == "" {
			s.Anchor = s.DynamicAnchor
		}
		s.DynamicAnchor = ""
	}
}

func (l *loosening) note(s *jsonschema.Schema, where, what string) {
	l.at[s] = true
	if len(l.notes) >= maxLoosened {
		l.more++
		return
	}
	l.notes = append(l.notes, "#"+clip(where, 100)+" "+clip(what, 100))
}

// relax takes out what would refuse more than before where a schema inside it takes
// more, and tells whether s itself does. A reference may lead to one that does.
func (l *loosening) relax(s *jsonschema.Schema) (loose bool) {
	loose = l.at[s] || s.Ref != "" || s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil
	s.UnevaluatedProperties, s.UnevaluatedItems = nil, nil
	inside := make(map[*jsonschema.Schema]bool)
	for _, child := range children(s) {
		if child != nil && l.relax(child) {
			inside[child], loose = true, true
		}
	}
	if inside[s.Not] {
		s.Not = nil
	}
	if inside[s.If] {
		s.If, s.Then, s.Else = nil, nil, nil
	}
	if inside[s.Contains] {
		s.MaxContains = nil
	}
	if slices.ContainsFunc(s.OneOf, func(one *jsonschema.Schema) bool { return inside[one] }) {
		s.AllOf, s.OneOf = append(s.AllOf, &jsonschema.Schema{AnyOf: s.OneOf}), nil
	}
	return loose
}

// isForeign tells whether a regular expression is one that Go does not know, and not
// one that is wrong everywhere.
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
