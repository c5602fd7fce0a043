package remote

import (
	"encoding/json"
	"strings"
	"testing"
)

// A keyword that cannot be checked costs neither the schema nor the rest of the
// check.
func TestReq003_3_4_WhatCannotBeCheckedCostsNothingElse(t *testing.T) {
	const user = `{"type":"object","properties":{"user":{"type":"string","maxLength":5,"pattern":"^(?!admin)[a-z]+$"},"n":{"type":"integer"}},"required":["user"]}`
	const tree = `{"type":"object","$defs":{"node":{"$dynamicAnchor":"node","type":"object","properties":{"next":{"$dynamicRef":"#node"},"top":{"$ref":"#node"},"n":{"type":"integer"}}}},"properties":{"tree":{"$ref":"#/$defs/node"}}}`
	const keys = `{"type":"object","patternProperties":{"^(?=x)":{"type":"string"},"^y":{"type":"integer"}},"additionalProperties":false}`
	for _, test := range []struct{ schema, note, good, bad string }{
		{user, `#/properties/user/pattern ^(?!admin)[a-z]+$`, `{"user":"admin"}`, `{"user":"admins"}`},
		{user, `pattern`, `{"user":"ann","n":1}`, `{"user":"ann","n":"x"}`},
		{tree, `#/$defs/node/properties/next/$dynamicRef #node`, `{"tree":{"next":7}}`, `{"tree":{"top":{"n":"x"}}}`},
		{keys, `#/patternProperties ^(?=x)`, `{"x":1,"y":1}`, `{"y":"1"}`},
		// What takes more inside is not to refuse more outside.
		{`{"properties":{"a":{"type":"string","not":{"pattern":"^(?=x)"}}}}`, `not/pattern`, `{"a":"y"}`, `{"a":1}`},
		{`{"properties":{"a":{"type":"string","if":{"pattern":"^(?=x)"},"then":{"maxLength":1}}}}`, `if/pattern`, `{"a":"yy"}`, `{"a":1}`},
		{`{"properties":{"a":{"type":"string","oneOf":[{"pattern":"^(?=x)"},{"pattern":"^y"}]}}}`, `oneOf/0/pattern`, `{"a":"y"}`, `{"a":1}`},
		{`{"properties":{"a":{"type":"array","contains":{"pattern":"^(?=x)"},"maxContains":1}}}`, `contains/pattern`, `{"a":["y","z"]}`, `{"a":[]}`},
		{`{"$defs":{"x":{"pattern":"(?=x)"}},"properties":{"a":{"type":"string","not":{"$ref":"#/$defs/x"}}}}`, `$defs/x/pattern`, `{"a":"y"}`, `{"a":1}`},
		{`{"properties":{"x":true},"if":{"required":["x"],"properties":{"x":{"pattern":"\\1"}}},"then":{"properties":{"y":{"type":"string"}}},"unevaluatedProperties":false,"required":["x"]}`, `x/pattern`, `{"x":1,"y":2}`, `{"y":"z"}`},
	} {
		schema, check, unchecked, err := compileSchema(json.RawMessage(test.schema))
		if err != nil || !strings.Contains(strings.Join(unchecked, "; "), test.note) {
			t.Errorf("%s: %v, %q", test.schema, err, unchecked)
			continue
		}
		if own := strings.TrimPrefix(strings.TrimPrefix(test.schema, `{"type":"object",`), `{`); string(schema) != `{"type":"object",`+own {
			t.Errorf("%s is listed as %s", test.schema, schema)
		}
		if err := check(json.RawMessage(test.good)); err != nil {
			t.Errorf("%s refuses %s: %v", test.schema, test.good, err)
		}
		if check(json.RawMessage(test.bad)) == nil {
			t.Errorf("%s takes %s", test.schema, test.bad)
		}
	}
	// What can be checked is checked whole.
	if _, check, unchecked, err := compileSchema(json.RawMessage(`{"properties":{"a":{"not":{"pattern":"^x"}}},"unevaluatedProperties":false}`)); err != nil || unchecked != nil ||
		check(json.RawMessage(`{"a":"x"}`)) == nil || check(json.RawMessage(`{"b":1}`)) == nil {
		t.Error(unchecked, err)
	}
	many := `{"properties":{"a":{"pattern":"(?!a)"},"b":{"pattern":"(?!a)"}`
	for _, name := range strings.Fields("c d e f g h") {
		many += `,"` + name + `":{"pattern":"(?!a)"}`
	}
	if _, _, unchecked, _ := compileSchema(json.RawMessage(many + `}}`)); len(unchecked) != maxLoosened+1 || unchecked[maxLoosened] != "and 3 more" {
		t.Errorf("%q", unchecked)
	}
}

func TestForeignExpressions(t *testing.T) {
	for pattern, want := range map[string]bool{
		`^(?!admin)`: true, `(?<=a)b`: true, `(a)\1`: true, `\u0041`: true, `\p{Script=Greek}`: true, `a{1,2000}`: true, `[^]`: true, `\cA`: true,
		`^[a-z]+$`: false, `(`: false, `)`: false, `[`: false, `[z-a]`: false, `*`: false, `\`: false,
	} {
		if isForeign(pattern) != want {
			t.Errorf("%s: %v", pattern, !want)
		}
	}
}
