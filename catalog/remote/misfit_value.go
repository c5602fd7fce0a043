package remote

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// wrongType says that a value is of another type than it is to be.
func wrongType(s *jsonschema.Schema, v any) string {
	kinds := s.Types
	if s.Type != "" {
		kinds = []string{s.Type}
	}
	kind := kindOfValue(v)
	if len(kinds) == 0 || slices.Contains(kinds, kind) || kind == "integer" && slices.Contains(kinds, "number") {
		return ""
	}
	return notOfKind(v, kinds)
}

func notOfKind(v any, kinds []string) string {
	named := make([]string, len(kinds))
	for i, kind := range kinds {
		named[i] = article[kind]
	}
	slices.Sort(named)
	return fmt.Sprintf("%s is %s, and is to be %s", shownValue(v), article[kindOfValue(v)], strings.Join(slices.Compact(named), " or "))
}

var article = map[string]string{
	"object": "an object", "array": "an array", "string": "a string", "number": "a number",
	"integer": "an integer", "boolean": "a boolean", "null": "null",
}

// kindOfValue is the type of a decoded JSON value.
func kindOfValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// wrongValue says that a value is none of those, or beyond a limit.
func (m misfit) wrongValue(s *jsonschema.Schema, v any) string {
	same := func(other any) bool { return reflect.DeepEqual(other, v) }
	switch {
	case s.Enum != nil && !slices.ContainsFunc(s.Enum, same):
		named := make([]string, 0, len(s.Enum))
		for _, one := range s.Enum[:min(len(s.Enum), 30)] {
			named = append(named, shownValue(one))
		}
		return fmt.Sprintf("%s is none of %s", shownValue(v), clip(strings.Join(named, ", "), 500))
	case s.Const != nil && !same(*s.Const):
		return fmt.Sprintf("%s is not %s", shownValue(v), shownValue(*s.Const))
	}
	switch v := v.(type) {
	case float64:
		return wrongNumber(s, v)
	case string:
		n := utf8.RuneCountInString(v)
		switch {
		case s.MinLength != nil && n < *s.MinLength:
			return fmt.Sprintf("%s has %s, and is to have at least %d", shownValue(v), several(n, "character"), *s.MinLength)
		case s.MaxLength != nil && n > *s.MaxLength:
			return fmt.Sprintf("%s has %s, and may have at most %d", shownValue(v), several(n, "character"), *s.MaxLength)
		case s.Pattern != "" && !m.matches(s.Pattern, v):
			return fmt.Sprintf("%s does not match the pattern %s", shownValue(v), clip(s.Pattern, 300))
		}
	}
	return ""
}

func wrongNumber(s *jsonschema.Schema, v float64) string {
	n := new(big.Rat).SetFloat64(v)
	against := func(limit *float64) int { return n.Cmp(new(big.Rat).SetFloat64(*limit)) }
	switch {
	case s.Minimum != nil && against(s.Minimum) < 0:
		return fmt.Sprintf("%s is less than %s", shownValue(v), shownValue(*s.Minimum))
	case s.Maximum != nil && against(s.Maximum) > 0:
		return fmt.Sprintf("%s is more than %s", shownValue(v), shownValue(*s.Maximum))
	case s.ExclusiveMinimum != nil && against(s.ExclusiveMinimum) <= 0:
		return fmt.Sprintf("%s is not more than %s", shownValue(v), shownValue(*s.ExclusiveMinimum))
	case s.ExclusiveMaximum != nil && against(s.ExclusiveMaximum) >= 0:
		return fmt.Sprintf("%s is not less than %s", shownValue(v), shownValue(*s.ExclusiveMaximum))
	}
	return ""
}

// shownValue is a value as JSON, cut.
func shownValue(v any) string {
	text, err := encodeExact(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(bytes.TrimSpace(text)), 100)
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
