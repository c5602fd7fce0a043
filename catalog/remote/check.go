package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// decodeArguments reads the arguments of a call; none are an empty object.
func decodeArguments(arguments json.RawMessage) (map[string]any, error) {
	switch first(arguments) {
	case 0, 'n':
		return map[string]any{}, nil
	case '{':
	default:
		return nil, fmt.Errorf("the arguments are %s, and are to be an object", kindOf(arguments))
	}
	if depth(arguments) > maxArguments {
		return nil, fmt.Errorf("the arguments are nested more than %d deep", maxArguments)
	}
	var object map[string]any
	if err := json.Unmarshal(arguments, &object); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	return object, nil
}

// checkObject takes any object.
func checkObject(arguments json.RawMessage) error {
	_, err := decodeArguments(arguments)
	return err
}

// checkAgainst checks the arguments of a call against a schema.
func checkAgainst(schema *jsonschema.Resolved, g *graph, arguments json.RawMessage) (err error) {
	object, err := decodeArguments(arguments)
	if err != nil {
		return err
	}
	if !g.affordable(object) {
		return errors.New("the arguments are too large, or too deeply nested, for the workflow's schema to be checked; send less at once")
	}
	defer func() {
		if r := recover(); r != nil { // the library asserts what it takes for granted
			err = fmt.Errorf("the arguments cannot be checked against the workflow's schema: %v", r)
		}
	}()
	if err := schema.Validate(object); err != nil {
		text := misfit{g, make(map[string]*regexp.Regexp)}.words(g.root, object, "")
		if text == "" {
			text = explain(err.Error())
		}
		return errors.New(clip(text, 1000))
	}
	return nil
}

// The parts of the validator's errors: where, then what.
var (
	validating = regexp.MustCompile(`^validating (root|/[^ ]*): `)
	missing    = regexp.MustCompile(`^required: missing properties: \[(.*)\]$`)
	surplus    = regexp.MustCompile(`^unexpected additional properties \[(.*)\]$`)
)

// explain names the argument that an error of the validator is about, where a misfit
// does not know it. What it does not know either is passed on as it is.
func explain(text string) string {
	where := ""
	for {
		m := validating.FindStringSubmatch(text)
		if m == nil {
			break
		}
		if m[1] != "root" {
			where = m[1]
		}
		text = text[len(m[0]):]
	}
	if m := missing.FindStringSubmatch(text); m != nil {
		text = "missing required " + m[1]
	} else if m := surplus.FindStringSubmatch(text); m != nil {
		text = "there is no argument named " + m[1]
	}
	if where = argument(where); where == "" {
		return text
	}
	return where + ": " + text
}

// argument makes a path of arguments, a.b[], of a pointer into their schema; ""
// where the pointer goes through a reference and does not say.
func argument(pointer string) string {
	var b strings.Builder
	parts := strings.Split(pointer, "/")
	for i := 1; i < len(parts); i++ {
		switch parts[i] {
		case "properties":
			if i++; i == len(parts) {
				return ""
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(strings.ReplaceAll(strings.ReplaceAll(parts[i], "~1", "/"), "~0", "~"))
		case "items":
			b.WriteString("[]")
		case "additionalProperties", "patternProperties":
			b.WriteString(".*")
			if parts[i] == "patternProperties" {
				i++
			}
		case "allOf", "anyOf", "oneOf":
			i++
		case "not", "if", "then", "else":
		default:
			return ""
		}
	}
	return b.String()
}
