// Package schema checks JSON values against JSON Schemas and describes each violation with its location:
// `items[1].qty: "2" is a string; expected an integer`. It is the only validator of the program.
//
// Schemas may come from an untrusted system: compiling and checking are bounded, as is the number of errors
// kept while checking, nothing is fetched, and keywords that cannot be checked here are left out of the check
// (see Compile).
//
// The validator is santhosh-tekuri/jsonschema. Its errors are values with a location and a kind, and its
// compiled schemas show where references lead, so that work can be limited. google/jsonschema-go, which the
// MCP SDK uses to describe Go types, returns errors as text without the location of the value, and making up
// for both took 700 lines of our own. It compiles equally fast.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"deepwork/catalog/jsontext"
)

const (
	maxSchemas = 5000    // subschemas of one schema; compiling takes quadratic time
	maxSteps   = 500_000 // steps of one check of arguments
	maxDepth   = 200     // nesting of a value
)

// A Schema is a compiled schema. It is immutable and may be used by any goroutine.
type Schema struct {
	root      *jsonschema.Schema
	parts     map[*jsonschema.Schema]*parts // of root and all that it applies
	Unchecked []string                      // unchecked keywords, and where: at most five, and the number of others
}

// Compile compiles a schema. Without a known $schema it is read as draft 2020-12 and, if it is not valid in
// its draft, as one of the older drafts 7 and 4. Formats are not checked. Valid keywords that Go cannot check
// (regular expressions with a lookahead, dynamic references) are listed in Unchecked; the rest of the check
// still accepts every value that the whole schema accepts. An error says why the schema is unusable.
func Compile(raw json.RawMessage) (s *Schema, err error) {
	s, err = compileDraft(raw, "")
	for _, draft := range []string{"http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-04/schema"} {
		if _, invalid := errors.AsType[*jsonschema.SchemaValidationError](err); !invalid {
			break
		}
		if older, fault := compileDraft(raw, draft); fault == nil {
			return older, nil
		}
	}
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), location, ""))
	}

	return s, nil
}

const location = "schema:///root"

// compileDraft compiles a schema of a draft; "" means that of its $schema.
func compileDraft(raw json.RawMessage, draft string) (s *Schema, err error) {
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, err
	}

	p := &preparation{}
	p.schema(document, "#")
	if p.count > maxSchemas {
		return nil, fmt.Errorf("it has more than %d parts", maxSchemas)
	}
	if len(p.unchecked) > 0 {
		relax(document)
	}
	if root, ok := document.(map[string]any); ok {
		if given, _ := root["$schema"].(string); !isDraft(given) {
			delete(root, "$schema")
		}
		if draft != "" {
			root["$schema"] = draft
		}
	}
	defer recovered(&err)

	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(location, document); err != nil {
		return nil, err
	}

	root, err := c.Compile(location)
	if err != nil {
		return nil, err
	}
	all, ok := reachable(root)
	if !ok {
		return nil, errors.New("one of its $ref leads back to itself")
	}
	for part := range all {
		sweepParts(part)
	}
	return &Schema{root: root, parts: all, Unchecked: p.names()}, nil
}

// isDraft reports whether the library supports the draft of a $schema.
func isDraft(name string) bool {
	_, name, _ = strings.Cut(strings.TrimSuffix(name, "#"), "://")
	switch name {
	case "json-schema.org/draft-04/schema", "json-schema.org/draft-06/schema", "json-schema.org/draft-07/schema",
		"json-schema.org/draft/2019-09/schema", "json-schema.org/draft/2020-12/schema":
		return true
	}
	return false
}

type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside of it, and nothing is fetched", url)
}

// Check returns what is wrong with the arguments of a call, or nil. Empty arguments and null count as an
// empty object; values other than objects are refused. The error is an *Error unless the arguments cannot be
// checked at all.
func (s *Schema) Check(arguments json.RawMessage) error {
	object, err := Decode(arguments)
	if err != nil {
		return err
	}
	return s.Validate(object)
}

// Decode reads the arguments of a call as Check does.
func Decode(arguments json.RawMessage) (map[string]any, error) {
	switch kind := jsontext.Kind(arguments); kind {
	case "", "null":
		return map[string]any{}, nil
	case "object":
	default:
		return nil, fmt.Errorf("the arguments are %s; expected an object", jsontext.WithArticle(kind))
	}
	if jsontext.Depth(arguments) > maxDepth {
		return nil, fmt.Errorf("the arguments are nested more than %d deep", maxDepth)
	}

	var object map[string]any
	if err := json.Unmarshal(arguments, &object); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	return object, nil
}

// Validate checks a value decoded by json.Unmarshal. It returns the errors of Check.
func (s *Schema) Validate(value any) (err error) {
	if !s.affordable(value, maxSteps) {
		return errors.New("the arguments are too large, or too deeply nested, for the workflow's schema to be " +
			"checked; send less at once")
	}
	return s.validate(value, "argument")
}

func (s *Schema) validate(value any, member string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be checked against the schema: %v", r)
		}
	}()

	err = s.root.Validate(value)
	if found, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return &Error{Violations: (&wording{s, value, member}).violations(found)}
	}
	return err
}

// maxDocumentSteps limits the steps of checking a document, which may take seconds.
const maxDocumentSteps = 20_000_000

// Document decodes a YAML document, of which JSON is a subset, as json.Unmarshal decodes JSON. Dates are
// texts. A repeated name in an object is an error, since readers of the document may use either value.
func Document(data []byte) (value any, err error) {
	defer recovered(&err)
	if json.Valid(data) && jsontext.Depth(data) <= maxDepth {
		err = json.Unmarshal(data, &value)
		if err != nil || members(value) == written(data) {
			return value, err
		}
	}

	var root, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	switch err := d.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty")
	case err != nil:
		return nil, err
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	if !asTexts(&root, 0) {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	if value, err = Value(&root); err != nil {
		return nil, err
	}
	data, err = json.Marshal(value) // one type for all numbers
	if err != nil {
		return nil, fmt.Errorf("it has what JSON cannot have: %w", err)
	}
	err = json.Unmarshal(data, &value)
	return value, err
}

// members counts the members of all objects of a value.
func members(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		n = len(v)
		for _, of := range v {
			n += members(of)
		}
	case []any:
		for _, of := range v {
			n += members(of)
		}
	}
	return n
}

// written counts the members of all objects in JSON text, where names may be repeated.
func written(data []byte) (n int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch {
		case quoted && data[i] == '\\':
			i++
		case data[i] == '"':
			quoted = !quoted
		case !quoted && data[i] == ':':
			n++
		}
	}
	return n
}

// asTexts turns dates into texts. It reports false if a document is nested too deep.
func asTexts(n *yaml.Node, depth int) bool {
	if n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, child := range n.Content {
		if depth > maxDepth || !asTexts(child, depth+1) {
			return false
		}
	}
	return true
}

// maxPairs limits the pairs of keys that the YAML library compares, to about a second.
const maxPairs = 100_000_000

// Value decodes a YAML tree. It returns an error if that would take too much time or memory: the YAML library
// compares each key of an object with all others, and reports every pair of equal ones.
func Value(n *yaml.Node) (value any, err error) {
	defer recovered(&err)
	if err := checkKeys(n, new(int)); err != nil {
		return nil, err
	}
	err = n.Decode(&value)
	return value, err
}

// recovered turns a panic of the schema library or the YAML library into an error: both panic on some hostile
// input.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("it cannot be read: %v", r)
	}
}

func checkKeys(n *yaml.Node, pairs *int) error {
	seen := map[string]bool{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			key := fmt.Sprint(child.Kind, " ", child.Value)
			if seen[key] {
				return fmt.Errorf("line %d: the key %q is already defined", child.Line, jsontext.Clip(child.Value, 100))
			}
			seen[key] = true
			if *pairs += len(seen); *pairs > maxPairs {
				return errors.New("it has too many keys for YAML: write it as JSON, or divide it")
			}
		}
		if err := checkKeys(child, pairs); err != nil {
			return err
		}
	}

	return nil
}

// CheckDocument checks a value returned by Document. The error is an *Error if it does not match the schema.
func (s *Schema) CheckDocument(value any) error {
	if !s.affordable(value, maxDocumentSteps) {
		return errors.New("it is too large, or too deeply nested, for its schema to be checked: divide it")
	}
	return s.validate(value, "key")
}
