package source

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// Each schema that model APIs refuse is listed in a form that they accept, which takes what the source's own
// takes; arguments are checked against the source's own.
func TestField03_SchemasAreListedAsModelAPIsAcceptThem(t *testing.T) {
	t.Parallel()
	const file = "testdata/portable.txt" // names, schemas, arguments that fit and that don't, and what is listed
	var all []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(testkit.Get(os.ReadFile(file)).Must(t))), "\n\n") {
		lines := strings.Split(block, "\n")
		name, schema, good, bad := lines[0], lines[1], json.RawMessage(lines[2]), json.RawMessage(lines[3])
		s := compileSchema(json.RawMessage(schema))
		testkit.Need(t, s.err == nil, "%s: %v", name, s.err)
		listed := string(s.listed)
		testkit.Equal(t, s.adapted == nil, listed == schema, "%s: nothing is said to be changed", name)
		if listed == schema {
			listed = "the same"
		} else {
			testkit.True(t, len(s.adapted.Changes) > 0, "%s: nothing says what was changed", name)
			again, _ := adapt(s.listed)
			testkit.Equal(t, string(again), listed, "%s, adapted again", name)
		}
		all = append(all, strings.Join(append(lines[:4], "= "+listed), "\n"))
		testkit.Equal(t, refusedByModelAPIs(t, s.listed), "", "%s: %s", name, listed)
		testkit.Works(t, s.check(good), "%s refuses %s", name, good)
		testkit.Fails(t, s.check(bad), "", "%s takes %s", name, bad)
		testkit.Works(t, compileSchema(s.listed).check(good), "%s: the listed schema refuses %s", name, good)
	}
	testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *renew)
}

var renew = flag.Bool("update", false, "write golden files anew")

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

// Properties whose names model APIs refuse have others, wherever they are, and go to the source under their own names.
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
