package schema

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"deepwork/actor/xslices"
	"deepwork/catalog/jsontext"
)

// An Error reports a value that does not match its schema.
type Error struct {
	Violations []Violation // one to ten, shorter paths first
}

// A Violation is one way in which a value does not match.
type Violation struct {
	Path    string   // of the violating value, as items[1].qty; "" is the whole value
	Member  string   // the first name in the path, as in the whole value
	Keyword string   // keyword of the schema: required, type, additionalProperties, …
	Names   []string // missing or disallowed members
	Text    string   // what is wrong with the value
}

// Error describes the violations in at most 1,000 characters.
func (e *Error) Error() string {
	return jsontext.Clip(strings.Join(xslices.Map(e.Violations, func(v Violation) string { return v.String() }), "; "),
		1000)
}

// String returns the text with the path before it.
func (v Violation) String() string {
	if v.Path == "" {
		return v.Text
	}
	return jsontext.Clip(v.Path, 300) + ": " + v.Text
}

// maxViolations is the number of violations reported for one value.
const maxViolations = 10

// A wording formats the errors of one check.
type wording struct {
	schema *Schema
	value  any
	member string // the word for a member of an object
}

// violations flattens an error of the validator.
func (w *wording) violations(e *jsonschema.ValidationError) []Violation {
	var all []Violation
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		for _, cause := range e.Causes {
			if all = append(all, w.violations(cause)...); len(all) > maxKept {
				break
			}
		}
	default:
		v := Violation{Keyword: strings.Join(e.ErrorKind.KeywordPath(), ".")}
		at := w.value
		v.Path, at = locate(at, e.InstanceLocation)
		if v.Path != "" {
			v.Member = e.InstanceLocation[0]
		}
		v.Text, v.Names = w.words(e, at)
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(len(a.Path), len(b.Path)), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Text, b.Text))
	})
	return all[:min(len(all), maxViolations)]
}

var printer = message.NewPrinter(language.English)

// words describes what is wrong with a value.
func (w *wording) words(e *jsonschema.ValidationError, value any) (text string, names []string) {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return notOfType(value, k.Want), nil
	case *kind.Required:
		return "missing required " + list(k.Missing), k.Missing
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		text = "there is no " + w.member + " named " + list(k.Properties)
		for s := range w.schema.parts {
			if s.Location == e.SchemaURL && len(s.Properties) > 0 {
				known := slices.Sorted(maps.Keys(s.Properties))
				text += "; there are " + jsontext.Clip(strings.Join(known, ", "), 300)
			}
		}
		return text, k.Properties
	case *kind.FalseSchema:
		return "nothing may be given here", nil
	case *kind.Enum:
		return shown(value) + " is not one of " + list(k.Want[:min(len(k.Want), 30)]), nil
	case *kind.AnyOf:
		return w.noVariant(e, value), nil
	case *kind.OneOf:
		if k.Subschemas == nil {
			return w.noVariant(e, value), nil
		}
	}
	return jsontext.Clip(e.ErrorKind.LocalizedString(printer), 500), nil
}

// noVariant reports that a value matches none of several schemas.
func (w *wording) noVariant(e *jsonschema.ValidationError, value any) string {
	var types, why []string
	mistyped := 0
	for _, form := range e.Causes {
		if k, ok := form.ErrorKind.(*kind.Type); ok && len(form.InstanceLocation) == len(e.InstanceLocation) {
			types = append(types, k.Want...)
			mistyped++
		}
		why = append(why, w.violations(form)[0].String())
	}
	switch {
	case mistyped == len(e.Causes):
		return notOfType(value, types)
	case len(why) == 1:
		return why[0]
	}

	return fmt.Sprintf("%s fits none of the %d forms that it may have: %s", shown(value), len(why),
		jsontext.Clip(strings.Join(why, "; or: "), 500))
}

func notOfType(value any, types []string) string {
	articles := xslices.Map(types, jsontext.WithArticle)
	slices.Sort(articles)
	return fmt.Sprintf("%s is %s; expected %s", shown(value), jsontext.WithArticle(typeOf(value)),
		strings.Join(slices.Compact(articles), " or "))
}

// typeOf returns the type of a decoded value.
func typeOf(value any) string {
	if v, ok := value.(float64); ok && v == math.Trunc(v) {
		return "integer"
	}
	return jsontext.Kind([]byte(shown(value)))
}

// list returns values as JSON, with commas, clipped.
func list[T any](values []T) string {
	const clip = 500
	values = values[:min(len(values), clip)] // each takes more than a character
	return jsontext.Clip(strings.Join(xslices.Map(values, func(value T) string { return shown(value) }), ", "), clip)
}

// maxShown is the number of characters of a value that are shown.
const maxShown = 100

// shown returns a value as JSON, clipped.
func shown(value any) string {
	text, err := jsontext.Encode(beginning(value, new(maxShown)))
	if err != nil {
		return fmt.Sprint(value)
	}
	return jsontext.Clip(string(text), maxShown)
}

// beginning returns as much of a value as shown shows: as many texts, items and members as are left, each of which
// takes more than a character.
func beginning(value any, left *int) any {
	*left--
	switch v := value.(type) {
	case string:
		return jsontext.Clip(v, maxShown+1)
	case []any:
		some := []any{}
		for _, item := range v {
			if *left < 0 {
				break
			}
			some = append(some, beginning(item, left))
		}
		return some
	case map[string]any:
		some := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if *left < 0 {
				break
			}
			some[name] = beginning(v[name], left)
		}
		return some
	}
	return value
}

var plainName = regexp.MustCompile(`^[\pL\pN_$-]+$`)

// locate returns the path and the value of a location.
func locate(value any, location []string) (path string, at any) {
	for _, token := range location {
		switch v := value.(type) {
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(v) {
				return path, value
			}
			path, value = path+"["+token+"]", v[i]
		case map[string]any:
			switch {
			case !plainName.MatchString(token):
				path += "[" + shown(token) + "]"
			case path == "":
				path = token
			default:
				path += "." + token
			}
			value = v[token]
		}
	}
	return path, value
}
