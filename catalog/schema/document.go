package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/jsontext"
)

// maxDocumentSteps is the limit of the steps of checking a document: seconds of work.
const maxDocumentSteps = 20_000_000

// Document decodes a YAML document, of which JSON is a subset, as json.Unmarshal decodes JSON. Dates are texts. A name
// that an object has twice is an error: who reads the document may count either.
func Document(data []byte) (value any, err error) {
	if json.Valid(data) && jsontext.Depth(data) <= maxDepth {
		if err = json.Unmarshal(data, &value); err != nil || members(value) == written(data) {
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
	if err := root.Decode(&value); err != nil {
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

// written counts the members of all objects as they are written in JSON, in which a name may be repeated.
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

// asTexts makes texts of dates. It reports false if a document is nested too deep.
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

// CheckDocument checks a value that Document returned. The error is an *Error if it does not match the schema.
func (s *Schema) CheckDocument(value any) error {
	if !affordable(s.root, value, maxDocumentSteps) {
		return errors.New("it is too large, or too deeply nested, for its schema to be checked: divide it")
	}
	return s.validate(value, "key")
}
