package source

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// Each schema that model APIs refuse is listed in a form that they accept, which takes what the source's own
// takes; arguments are checked against the source's own.
func TestField03_SchemasAreListedAsModelAPIsAcceptThem(t *testing.T) {
	t.Parallel()
	deep := `{"type":"string"}`
	for range 20 {
		deep = `{"type":"object","properties":{"in":` + deep + `}}`
	}
	for name, test := range map[string]struct{ schema, listed, good, bad string }{
		"either of two forms": {`{"oneOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}]}`,
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"description":"The arguments have one of these forms: a; b."}`,
			`{"a":"x"}`, `{"a":"x","b":"y"}`},
		"one of two names": {`{"type":"object","description":"d","properties":{"id":{"type":"string"},"name":{"type":"string"},"n":{}},"required":["n"],"anyOf":[{"required":["id"]},{"required":["name"]}]}`,
			`{"type":"object","description":"d The arguments have one of these forms: id; name.","properties":{"id":{"type":"string"},"name":{"type":"string"},"n":{}},"required":["n"]}`,
			`{"n":1,"id":"x"}`, `{"n":1}`},
		"kinds": {`{"$defs":{"a":{"properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},"b":{"properties":{"kind":{"const":"b"}},"required":["kind"]}},"type":"object","oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}`,
			`{"type":"object","properties":{"kind":{"anyOf":[{"const":"a"},{"const":"b"}]},"x":{"type":"integer"}},"required":["kind"],"description":"The arguments have one of these forms: kind, x; kind."}`,
			`{"kind":"a","x":1}`, `{"kind":"a"}`},
		"all of": {`{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"a":{"maxLength":1}},"required":["a"]}]}`,
			`{"type":"object","properties":{"a":{"type":"string","maxLength":1}},"required":["a"]}`,
			`{"a":"x"}`, `{"a":"xy"}`},
		"not, enum and const": {`{"type":"object","not":{"required":["a"]},"enum":[{"b":1},{}],"const":{"b":1}}`, `{"type":"object","properties":{}}`, `{"b":1}`, `{"a":1}`},
		"types at the top":    {`{"type":["object","null"],"required":["a"]}`, `{"type":"object","required":["a"],"properties":{}}`, `{"a":1}`, `{}`},
		"draft 4": {`{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","type":"object","properties":{"n":{"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false},"t":{"items":[{"type":"string"}],"additionalItems":{"type":"null"}}}}`,
			`{"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":0,"maximum":9},"t":{"prefixItems":[{"type":"string"}],"items":{"type":"null"}}}}`,
			`{"n":9,"t":["x",null]}`, `{"n":0}`},
		"draft 4, said to be the newest": {`{"$schema":"https://json-schema.org/draft/2020-12/schema","properties":{"n":{"type":"integer","exclusiveMinimum":true,"minimum":0}}}`,
			`{"type":"object","$schema":"https://json-schema.org/draft/2020-12/schema","properties":{"n":{"type":"integer","exclusiveMinimum":0}}}`,
			`{"n":1}`, `{"n":0}`},
		"lists of anything": {`{"properties":{"a":{"type":"array"},"b":{"type":["array","null"]},"c":{"items":true}}}`,
			`{"type":"object","properties":{"a":{"type":"array","items":{}},"b":{"type":["array","null"],"items":{}},"c":{"items":{}}}}`, `{"a":[1]}`, `{"a":1}`},
		"booleans":   {`{"properties":{"a":true,"b":false}}`, `{"type":"object","properties":{"a":{},"b":{"not":{}}}}`, `{"a":1}`, `{"b":1}`},
		"references": {`{"definitions":{"x/y":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/x~1y","description":"d"}}}`, `{"type":"object","properties":{"a":{"description":"d","type":"string"}}}`, `{"a":"x"}`, `{"a":1}`},
		"references of OpenAPI": {`{"components":{"schemas":{"A b":{"items":{"$ref":"#/components/schemas/c"}},"c":{"type":"string"}}},"properties":{"components":{"$ref":"#/components/schemas/A%20b"}}}`,
			`{"type":"object","properties":{"components":{"items":{"type":"string"}}}}`, `{"components":["x"]}`, `{"components":[1]}`},
		"a tree": {`{"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/node"}}}},"properties":{"t":{"$ref":"#/$defs/node"}}}`,
			`{"type":"object","properties":{"t":{"type":"object","properties":{"v":{"type":"integer"},"next":{"type":"object"}}}}}`,
			`{"t":{"next":{"next":{"v":1}}}}`, `{"t":{"next":{"next":{"v":"x"}}}}`},
		"an anchor":  {`{"$defs":{"a":{"$anchor":"here","type":"string"}},"properties":{"a":{"$ref":"#here"}}}`, `{"type":"object","properties":{"a":{}}}`, `{"a":"x"}`, `{"a":1}`},
		"deep":       {`{"properties":{"a":` + deep + `}}`, "", `{"a":{"in":{}}}`, `{"a":1}`},
		"nothing":    {`{"type":"object","properties":{"user-id":{"type":["string","null"],"anyOf":[{"minLength":1},{"type":"null"}]}},"additionalProperties":false}`, "=", `{"user-id":"x"}`, `{"user-id":""}`},
		"no members": {`{"type":"object"}`, `{"type":"object","properties":{}}`, `{"a":1}`, `[]`},
		"references beside properties": {`{"$ref":"#/$defs/base","properties":{"x":{"type":"string"}},"required":["x"],"$defs":{"base":{"properties":{"a":{"$ref":"#/allOf/0/properties/n"}},"required":["a"]}},"allOf":[{"properties":{"n":{"type":"integer"}}}]}`,
			`{"type":"object","properties":{"x":{"type":"string"},"a":{"type":"integer"},"n":{"type":"integer"}},"required":["x","a"]}`, `{"a":1,"x":"x"}`, `{"x":"x"}`},
		"conditions": {`{"type":"object","properties":{"k":{"type":"string"}},"unevaluatedProperties":false,"allOf":[{"if":{"properties":{"k":{"const":"a"}}},"then":{"properties":{"x":{"type":"string"}},"required":["x"]}},{"if":{"properties":{"k":{"const":"b"}}},"then":{"properties":{"x":{"type":"integer"},"k":{"const":"b"}}}}]}`,
			`{"type":"object","properties":{"k":{"type":"string"},"x":{"anyOf":[{"type":"string"},{"type":"integer"}]}},"unevaluatedProperties":false}`, `{"k":"a","x":"y"}`, `{"k":"a"}`},
		"an object or null": {`{"anyOf":[{"type":"null"},{"type":"object","properties":{"a":{}},"required":["a"]}]}`, `{"type":"object","properties":{"a":{}},"required":["a"]}`, `{"a":1}`, `{}`},
		"a form without names": {`{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]},{"minProperties":2}]}`,
			`{"type":"object","properties":{"a":{}},"description":"The arguments have one of these forms: a; others."}`, `{"b":1,"c":2}`, `{"b":1}`},
	} {
		s := compileSchema(json.RawMessage(test.schema))
		testkit.Need(t, s.err == nil, "%s: %v", name, s.err)
		if test.listed == "=" {
			test.listed = test.schema
			testkit.True(t, s.adapted == nil, "%s: changed: %+v", name, s.adapted)
		} else {
			testkit.Need(t, s.adapted != nil && len(s.adapted.Changes) > 0, "%s: nothing says what was changed", name)
		}
		testkit.True(t, test.listed == "" || string(s.listed) == test.listed, "%s:\n got %s\nwant %s", name, s.listed, test.listed)
		testkit.Equal(t, refusedByModelAPIs(t, s.listed), "", "%v %v", name, s.listed)
		testkit.Works(t, s.check(json.RawMessage(test.good)), "%s refuses %s", name, test.good)
		testkit.True(t, s.check(json.RawMessage(test.bad)) != nil, "%s takes %s", name, test.bad)
		if s.adapted != nil {
			again, _ := adapt(s.listed)
			testkit.Equal(t, string(again), string(s.listed), "%s, adapted again", name)
		}
		testkit.Works(t, compileSchema(s.listed).check(json.RawMessage(test.good)), "%s: the listed schema refuses %s", name, test.good)
	}
}

// refusedByModelAPIs returns why a model API refuses a schema, as cmd/deepwork/docs/howto/sources.md lists their rules.
func refusedByModelAPIs(t *testing.T, listed json.RawMessage) string {
	t.Helper()
	var top map[string]any
	testkit.Must(t, json.Unmarshal(listed, &top))
	for _, key := range strings.Fields("oneOf anyOf allOf enum const not") {
		if top[key] != nil || top["type"] != "object" {
			return key + " at the top, or its type is not object"
		}
	}
	key := regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	var walk func(v any, level int, names bool) string
	walk = func(v any, level int, names bool) string {
		o, _ := v.(map[string]any)
		_, min := o["exclusiveMinimum"].(bool)
		_, list := o["items"].([]any)
		items, _ := o["items"].(map[string]any)
		switch {
		case o != nil && level > 2*(maxLevels+1):
			return "it is too deep"
		case !names && (min || list || o["$ref"] != nil || o["definitions"] != nil || o["id"] != nil):
			return "it is of draft 4, or has references"
		case !names && (o["type"] == "array" || o["prefixItems"] != nil) && items == nil:
			return "an array has no items"
		}
		for name, child := range o {
			if names && !key.MatchString(name) {
				return "a property is named " + name
			}
			if why := walk(child, level+1, !names && name == "properties"); why != "" {
				return why
			}
			list, _ := child.([]any)
			for _, child := range list {
				if why := walk(child, level, false); why != "" {
					return why
				}
			}
		}
		return ""
	}
	return walk(top, 0, false)
}

// Properties whose names model APIs refuse have others, wherever they are, and go to the source under their
// own names.
func TestField03_PropertiesAreRenamedAndBack(t *testing.T) {
	schema := `{"type":"object","required":["user id"],"additionalProperties":{"type":"object","properties":{"a b":{}}},"properties":{"filter[name]":{"type":"string"},"user id":{"type":"number"},
		"user_id":{},"a tree":{"$ref":"#/$defs/tree"},"pair":{"prefixItems":[{"additionalProperties":{"properties":{"filter[name]":{}}}}],"items":{"$ref":"#/$defs/of"}},"deep":{"type":"object","required":["only required"]},"日本":{"type":"array","items":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/of"}]}},"2 x":{"type":"object","additionalProperties":{"type":"string"}},"` + strings.Repeat("n", 70) + `":{}},
		"patternProperties":{"^x-":{"$ref":"#/$defs/of"}},"$defs":{"tree":{"type":"object","properties":{"a tree":{"$ref":"#/$defs/tree"}},"dependentSchemas":{"a tree":{"properties":{"a b":{}}}}},"of":{"type":"object","properties":{"a b":{"type":"integer"}},"dependentRequired":{"a b":["filter[name]"]}}},"oneOf":[{"required":["filter[name]"]},{"required":["日本"]}]}`
	w, _, err := parseWorkflow("s", json.RawMessage(`{"id":"1","name":"n","description":"d","inputSchema":`+schema+`}`))
	testkit.Need(t, err == nil && w.Adapted != nil, "%v %v", err, w)
	why := refusedByModelAPIs(t, w.InputSchema)
	testkit.Need(t, why == "", "%s: %s", why, w.InputSchema)
	listed := map[string]string{}
	for name, original := range w.Adapted.Renamed {
		listed[original] = name
	}
	testkit.Need(t, listed["filter[name]"] == "filter_name" && listed["a b"] == "a_b" && listed["2 x"] == "p_2_x" && len(listed) == 8 && listed["user id"] != "user_id", "%v", listed)
	tool := &Tool{Name: "n", Workflow: w.Workflow, origin: w, check: w.check}
	user, japan, tree := listed["user id"], listed["日本"], listed["a tree"]
	for given, want := range map[string]string{
		`{"filter_name":"x","` + user + `":1.50,"user_id":"` + user + `"}`:                              `{"filter[name]":"x","user id":1.50,"user_id":"` + user + `"}`,
		`{"` + user + `":1,"` + japan + `":[null,{"a_b":2,"filter_name":3}],"other":{"a_b":[1]}}`:       `{"user id":1,"日本":[null,{"a b":2,"filter_name":3}],"other":{"a b":[1]}}`,
		`{"user id":1,"p_2_x":{"a_b":"free"},"filter[name]":"x"}`:                                       `{"user id":1,"2 x":{"a_b":"free"},"filter[name]":"x"}`,
		`{"` + user + `":1,"` + tree + `":{"` + tree + `":{"` + tree + `":{"a_b":1,"filter_name":2}}}}`: `{"user id":1,"a tree":{"a tree":{"a tree":{"a b":1,"filter_name":2}}}}`,
		`{"` + user + `":1,"x-1":{"a_b":1},"deep":{"only_required":1,"other":{"only_required":2}}}`:     `{"user id":1,"x-1":{"a b":1},"deep":{"only required":1,"other":{"only_required":2}}}`,
		`{"` + user + `":1,"pair":[{"a_b":{"filter_name":1}},{"a_b":1}]}`:                               `{"user id":1,"pair":[{"a_b":{"filter[name]":1}},{"a b":1}]}`,
		`[1]`: `[1]`, `{"a`: `{"a`, ``: ``,
	} {
		testkit.Equal(t, string(tool.Original(json.RawMessage(given))), want, "%v", given)
	}
	for _, change := range w.Adapted.Changes {
		testkit.True(t, !strings.Contains(change, "the top has properties") && !strings.Contains(change, "the type at the top"), "it says that this was changed: %s", change)
	}
	testkit.Fails(t, tool.Check(tool.Original(json.RawMessage(`{"filter_name":"x"}`))), `("user id" is `+user+` in the listed schema)`)
}

// A schema that doubles with each reference, or refers to a long text again and again, is listed in a bounded form.
func TestField03_ListedSchemasAreBounded(t *testing.T) {
	t.Parallel()
	doubling := `{"type":"object","properties":{"x":{"$ref":"#/$defs/d9"}},"$defs":{"d0":{"type":"string"}`
	for i := range 9 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i)
		doubling += fmt.Sprintf(`,"d%d":{"type":"object","properties":{"a":%s,"b":%s,"c":%s}}`, i+1, ref, ref, ref)
	}
	long := `{"type":"object","$defs":{"long":{"description":"` + strings.Repeat("x", maxSchema/2) + `"}},"properties":{"p0":{}`
	for i := range 3000 {
		long += fmt.Sprintf(`,"p%d":{"$ref":"#/$defs/long"}`, i+1)
	}
	for _, schema := range []string{doubling + "}}", long + "}}"} {
		s := compileSchema(json.RawMessage(schema))
		testkit.True(t, s.err == nil && len(s.listed) <= 2*maxSchema, "%d bytes, %v", len(s.listed), s.err)
		testkit.Equal(t, refusedByModelAPIs(t, s.listed), "")
	}
}
