package remote

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A misfit finds, in arguments that a schema refuses, the first that does not fit,
// and says so in words. It knows the common keywords, and says nothing where it is
// about others. It takes no more steps than the check that was affordable.
type misfit struct {
	*graph
	patterns map[string]*regexp.Regexp
}

// matches tells whether a text matches a pattern; one that is none is matched.
func (m misfit) matches(pattern, text string) bool {
	re, known := m.patterns[pattern]
	if !known {
		re, _ = regexp.Compile(pattern) // the validator has it, too
		m.patterns[pattern] = re
	}
	return re == nil || re.MatchString(text)
}

// words returns what is wrong with a value at a path of arguments; "": nothing that
// is known here. What it says is true: whatever it finds, the schema refuses.
func (m misfit) words(s *jsonschema.Schema, v any, path string) string {
	if isFalse(s) {
		return at(path, "nothing may be given here")
	}
	if to := m.refs[s]; to != nil {
		if text := m.words(to, v, path); text != "" || m.draft7() {
			return text
		}
	}
	if text := wrongType(s, v); text != "" {
		return at(path, text)
	}
	if text := m.wrongValue(s, v); text != "" {
		return at(path, text)
	}
	for _, all := range s.AllOf {
		if text := m.words(all, v, path); text != "" {
			return text
		}
	}
	if text := m.noneOf(s.AnyOf, v, path); text != "" {
		return text
	}
	if text := m.noneOf(s.OneOf, v, path); text != "" {
		return text
	}
	switch v := v.(type) {
	case []any:
		return m.items(s, v, path)
	case map[string]any:
		return m.members(s, v, path)
	}
	return ""
}

func (m misfit) draft7() bool { return m.root.Schema == draft07+"#" }

// noneOf says that a value fits none of several schemas.
func (m misfit) noneOf(all []*jsonschema.Schema, v any, path string) string {
	var kinds, why []string
	mistyped := 0
	for _, s := range all {
		text := m.words(s, v, path)
		if text == "" {
			return "" // it fits, or that is not known
		}
		if wrongType(s, v) != "" {
			mistyped++
			kinds = append(append(kinds, s.Types...), s.Type)
			kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "" })
		}
		why = append(why, text)
	}
	switch {
	case len(all) == 0:
		return ""
	case len(all) == 1:
		return why[0]
	case mistyped == len(all):
		return at(path, notOfKind(v, kinds))
	}
	return at(path, fmt.Sprintf("%s fits none of the %d forms that it may have: %s", shownValue(v), len(all), clip(strings.Join(why, "; or: "), 500)))
}

func (m misfit) items(s *jsonschema.Schema, v []any, path string) string {
	first, rest := s.PrefixItems, s.Items
	if m.draft7() {
		if first = s.ItemsArray; first != nil {
			rest = s.AdditionalItems
		}
	}
	if isFalse(rest) && len(v) > len(first) {
		return at(path, fmt.Sprintf("it has %s, and may have at most %d", several(len(v), "item"), len(first)))
	}
	for i, item := range v {
		of := rest
		if i < len(first) {
			of = first[i]
		}
		if of == nil {
			continue
		}
		if text := m.words(of, item, path+"["+strconv.Itoa(i)+"]"); text != "" {
			return text
		}
	}
	switch n := len(v); {
	case s.MinItems != nil && n < *s.MinItems:
		return at(path, fmt.Sprintf("it has %s, and is to have at least %d", several(n, "item"), *s.MinItems))
	case s.MaxItems != nil && n > *s.MaxItems:
		return at(path, fmt.Sprintf("it has %s, and may have at most %d", several(n, "item"), *s.MaxItems))
	}
	return ""
}

func (m misfit) members(s *jsonschema.Schema, v map[string]any, path string) string {
	var lacking []string
	for _, name := range s.Required {
		if _, there := v[name]; !there {
			lacking = append(lacking, strconv.Quote(name))
		}
	}
	if len(lacking) > 0 {
		return at(path, "missing required "+clip(strings.Join(lacking, ", "), 500))
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		of, known := s.Properties[name]
		if known {
			if text := m.words(of, v[name], inside(path, name)); text != "" {
				return text
			}
		}
		for pattern, of := range s.PatternProperties {
			if !m.matches(pattern, name) {
				continue
			}
			known = true
			if text := m.words(of, v[name], inside(path, name)); text != "" {
				return text
			}
		}
		switch {
		case known || s.AdditionalProperties == nil:
		case isFalse(s.AdditionalProperties):
			text := "there is no argument named " + strconv.Quote(clip(name, 100))
			if names := slices.Sorted(maps.Keys(s.Properties)); len(names) > 0 {
				text += "; there are " + clip(strings.Join(names, ", "), 300)
			}
			return at(path, text)
		default:
			if text := m.words(s.AdditionalProperties, v[name], inside(path, name)); text != "" {
				return text
			}
		}
	}
	return ""
}

// isFalse tells whether a schema is the one that nothing fits.
func isFalse(s *jsonschema.Schema) bool {
	return s != nil && s.Not != nil && reflect.DeepEqual(*s, jsonschema.Schema{Not: &jsonschema.Schema{}})
}

// at puts the path before what is wrong there.
func at(path, text string) string {
	if path == "" {
		return text
	}
	return clip(path, 300) + ": " + text
}

var plainKey = regexp.MustCompile(`^[\pL\pN_$-]+$`)

// inside is the path of a member.
func inside(path, name string) string {
	switch {
	case !plainKey.MatchString(name):
		return path + "[" + shownValue(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}
