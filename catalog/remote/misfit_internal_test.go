package remote

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is wrong is said with its place, the value and the limit.
func TestReq003_2_5_WhatDoesNotFitIsNamed(t *testing.T) {
	const schema = `{
		"$defs": {"item": {"type": "object", "properties": {"sku": {"type": "string", "pattern": "^[a-z]+$"}, "qty": {"type": "integer", "exclusiveMinimum": 0}},
			"required": ["sku", "qty"], "additionalProperties": false}},
		"type": "object",
		"properties": {
			"items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "maxItems": 3},
			"pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number", "maximum": 5}], "items": false},
			"ship": {"$ref": "#/$defs/item"},
			"note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
			"part": {"anyOf": [{"type": ["string", "null"]}, {"type": "number", "minimum": 5}]},
			"size": {"enum": ["s", "m<l"]},
			"never": false,
			"more": {"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "additionalProperties": {"type": "string", "minLength": 2}},
			"kind": {"const": 1},
			"both": {"allOf": [{"type": "number"}, {"minimum": 1, "exclusiveMaximum": 2}]},
			"odd": {"type": "integer", "multipleOf": 2}
		},
		"required": ["items"], "additionalProperties": false}`
	_, check, _, err := compileSchema(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	const fine = `{"sku":"a","qty":1}`
	for arguments, want := range map[string]string{
		`{}`:                  `missing required "items"`,
		`{"items":"x"}`:       `items: "x" is a string, and is to be an array`,
		`{"items":[]}`:        `items: it has 0 items, and is to have at least 1`,
		`{"items":[1,1,1,1]}`: `items[0]: 1 is an integer, and is to be an object`,
		`{"items":[` + fine + `,{"sku":"b","qty":"2"}]}`:                  `items[1].qty: "2" is a string, and is to be an integer`,
		`{"items":[{"sku":"b"}]}`:                                         `items[0]: missing required "qty"`,
		`{"items":[{"sku":"b","qty":0}]}`:                                 `items[0].qty: 0 is not more than 0`,
		`{"items":[{"sku":"B","qty":1}]}`:                                 `items[0].sku: "B" does not match the pattern ^[a-z]+$`,
		`{"items":[` + fine + `,` + fine + `,` + fine + `,` + fine + `]}`: `items: it has 4 items, and may have at most 3`,
		`"ship":{"sku":"a","qty":1,"x":1}`:                                `ship: there is no argument named "x"; there are qty, sku`,
		`"note":5`:                                                        `note: 5 is an integer, and is to be a string or null`,
		`"note":"long"`:                                                   `note: "long" fits none of the 2 forms that it may have: note: "long" has 4 characters, and may have at most 3; or: note: "long" is a string, and is to be null`,
		`"part":3`:                                                        `part: 3 fits none of the 2 forms`,
		`"size":"<"`:                                                      `size: "<" is none of "s", "m<l"`,
		`"never":1`:                                                       `never: nothing may be given here`,
		`"pair":["a",6]`:                                                  `pair[1]: 6 is more than 5`,
		`"pair":[1]`:                                                      `pair[0]: 1 is an integer, and is to be a string`,
		`"pair":["a",1,1]`:                                                `pair: it has 3 items, and may have at most 2`,
		`"more":{"x1":1}`:                                                 `more.x1: 1 is an integer, and is to be a boolean`,
		`"more":{"a b":"c"}`:                                              `more["a b"]: "c" has 1 character, and is to have at least 2`,
		`"kind":2`:                                                        `kind: 2 is not 1`,
		`"both":0.5`:                                                      `both: 0.5 is less than 1`,
		`"both":2`:                                                        `both: 2 is not less than 2`,
		`"other":1`:                                                       `there is no argument named "other"; there are both, items, kind`,
		`"odd":3`:                                                         `odd: multipleOf`, // in the validator's words
	} {
		if arguments[0] == '"' {
			arguments = `{"items":[` + fine + `],` + arguments + `}`
		}
		if err := check(json.RawMessage(arguments)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", arguments, err, want)
		}
	}
	if err := check(json.RawMessage(`{"items":[` + fine + `],"pair":["a",5],"note":null,"size":"s","more":{"x":true,"y":"zz"},"both":1.5}`)); err != nil {
		t.Error(err)
	}
	// Of draft-07, whose lists are told otherwise.
	_, check, _, err = compileSchema(json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"pair":{"items":[{"type":"string"}],"additionalItems":{"type":"null"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := check(json.RawMessage(`{"pair":["a",1]}`)); err == nil || err.Error() != `pair[1]: 1 is an integer, and is to be null` {
		t.Error(err)
	}
}
