package schema

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
)

func compile(t *testing.T, text string) *Schema {
	t.Helper()
	return testkit.Get(Compile(json.RawMessage(text))).Must(t)
}

// What is wrong is said with its place, the value and the limit.
func TestReq003_2_5_WhatDoesNotFitIsNamed(t *testing.T) {
	check := compile(t, string(testkit.Get(os.ReadFile("testdata/order.json")).Must(t))).Check
	const file = "testdata/arguments.txt" // members beside items, or all, and what is said of them
	var all []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(testkit.Get(os.ReadFile(file)).Must(t))), "\n\n") {
		arguments, _, _ := strings.Cut(block, "\n")
		given := arguments
		if given[0] == '"' {
			given = `{"items":[{"sku":"a","qty":1}],` + given + `}`
		}
		all = append(all, fmt.Sprintf("%s\n! %v", arguments, check(json.RawMessage(given))))
	}
	testkit.Golden(t, file, strings.Join(all, "\n\n")+"\n", *update)
	testkit.Works(t,
		check(
			json.RawMessage(`{"items":[{"sku":"a","qty":1}],"pair":["a",5],"note":null,"size":"s",`+
				`"more":{"x":true,"y":"zz"},"both":1.5}`)))

	// Of draft-07, whose lists are told otherwise.
	check = compile(t,
		`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"pair":{"items":[{"type":"string"}],`+
			`"additionalItems":{"type":"null"}}}}`).Check
	testkit.Fails(t, check(json.RawMessage(`{"pair":["a",1]}`)), `pair[1]: 1 is an integer; expected null`)
}

var update = flag.Bool("update", false, "write golden files anew")

// A keyword that cannot be checked costs neither the schema nor the rest of the check.
func TestReq003_3_4_WhatCannotBeCheckedCostsNothingElse(t *testing.T) {
	const user = `{"type":"object","properties":{"user":{"type":"string","maxLength":5,` +
		`"pattern":"^(?!admin)[a-z]+$"},"n":{"type":"integer"}},"required":["user"]}`
	const tree = `{"type":"object","$defs":{"node":{"$dynamicAnchor":"node","type":"object",` +
		`"properties":{"next":{"$dynamicRef":"#node"},"top":{"$ref":"#node"},"n":{"type":"integer"}}}},` +
		`"properties":{"tree":{"$ref":"#/$defs/node"}}}`
	const keys = `{"type":"object","patternProperties":{"^(?=x)":{"type":"string"},"^y":{"type":"integer"}},` +
		`"additionalProperties":false}`
	for _, test := range []struct{ schema, note, good, bad string }{
		{user, `#/properties/user/pattern ^(?!admin)[a-z]+$`, `{"user":"admin"}`, `{"user":"admins"}`},
		{user, `pattern`, `{"user":"ann","n":1}`, `{"user":"ann","n":"x"}`},
		{tree, `#/$defs/node/properties/next/$dynamicRef #node`, `{"tree":{"next":7}}`, `{"tree":{"top":{"n":"x"}}}`},
		{`{"properties":{"format":{"pattern":"\\1"}},"dependentRequired":{"format":["b"]}}`, `format/pattern`,
			`{"format":"y","b":1}`, `{"format":"y"}`},
		{keys, `#/patternProperties ^(?=x)`, `{"x":1,"y":1}`, `{"y":"1"}`},
		// What takes more inside is not to refuse more outside.
		{`{"properties":{"a":{"type":"string","not":{"pattern":"^(?=x)"}}}}`, `not/pattern`, `{"a":"y"}`, `{"a":1}`},
		{`{"properties":{"a":{"type":"string","if":{"pattern":"^(?=x)"},"then":{"maxLength":1}}}}`, `if/pattern`,
			`{"a":"yy"}`, `{"a":1}`},
		{`{"properties":{"a":{"type":"string","oneOf":[{"pattern":"^(?=x)"},{"pattern":"^y"}]}}}`, `oneOf/0/pattern`,
			`{"a":"y"}`, `{"a":1}`},
		{`{"properties":{"a":{"type":"array","contains":{"pattern":"^(?=x)"},"maxContains":1}}}`, `contains/pattern`,
			`{"a":["y","z"]}`, `{"a":[]}`},
		{`{"$defs":{"x":{"pattern":"(?=x)"}},"properties":{"a":{"type":"string","not":{"$ref":"#/$defs/x"}}}}`,
			`$defs/x/pattern`, `{"a":"y"}`, `{"a":1}`},
		{`{"properties":{"x":true},"if":{"required":["x"],"properties":{"x":{"pattern":"\\1"}}},` +
			`"then":{"properties":{"y":{"type":"string"}}},"unevaluatedProperties":false,"required":["x"]}`,
			`x/pattern`, `{"x":1,"y":2}`, `{"y":"z"}`},
	} {
		s := compile(t, test.schema)
		testkit.True(t, strings.Contains(strings.Join(s.Unchecked, "; "), test.note), "%s: %q", test.schema,
			s.Unchecked)
		testkit.Works(t, s.Check(json.RawMessage(test.good)), "%s refuses %s", test.schema, test.good)
		testkit.True(t, s.Check(json.RawMessage(test.bad)) != nil, "%s takes %s", test.schema, test.bad)
	}

	// What can be checked is checked whole.
	s := compile(t, `{"properties":{"a":{"not":{"pattern":"^x"}}},"unevaluatedProperties":false}`)
	testkit.Need(t, s.Unchecked == nil, "%q", s.Unchecked)
	testkit.Need(t, s.Check(json.RawMessage(`{"a":"x"}`)) != nil, "%q", s.Unchecked)
	testkit.True(t, s.Check(json.RawMessage(`{"b":1}`)) != nil, "%q", s.Unchecked)

	many := `{"properties":{"a":{"pattern":"(?!a)"}`
	for _, name := range strings.Fields("b c d e f g h") {
		many += `,"` + name + `":{"pattern":"(?!a)"}`
	}
	s = compile(t, many+`}}`)
	testkit.True(t, len(s.Unchecked) == maxUnchecked+1 && s.Unchecked[maxUnchecked] == "and 3 more", "%q", s.Unchecked)
}

func TestForeignExpressions(t *testing.T) {
	for pattern, want := range map[string]bool{
		`^(?!admin)`:       true,
		`(?<=a)b`:          true,
		`(a)\1`:            true,
		`\u0041`:           true,
		`\p{Script=Greek}`: true,
		`a{1,2000}`:        true,
		`[^]`:              true,
		`\cA`:              true,
		`^[a-z]+$`:         false,
		`(`:                false,
		`)`:                false,
		`[`:                false,
		`[z-a]`:            false,
		`*`:                false,
		`\`:                false,
	} {
		testkit.Equal(t, isForeign(pattern), want, "%s: %v", pattern, !want)
	}
}

// A schema of a few lines that would take for ever is given up.
func TestCheckingIsBounded(t *testing.T) {
	doubling := `{"type":"object","$defs":{"d0":{}`
	for i := 1; i <= 40; i++ {
		doubling += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%[2]d"}]}`, i, i-1)
	}
	doubling += `},"properties":{"x":{"$ref":"#/$defs/d40"}}}`
	branching := `{"type":"object","properties":{"x":{"anyOf":[{"$ref":"#"},{"$ref":"#"},{"type":"string"}]}}}`
	deep := strings.Repeat(`{"x":`, 60) + `1` + strings.Repeat(`}`, 60)
	var names strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&names, `,"n%d"`, i)
	}
	comparing := `{"type":"object","properties":{"x":{"items":{"enum":[0` + names.String() + `]}}}}`
	demanding := `{"type":"object","properties":{"x":{"items":{"required":["n"` + names.String() + `]}}}}`
	for schema, arguments := range map[string]string{
		doubling: `{"x":1}`, branching: deep,
		comparing: `{"x":["n19999"` + strings.Repeat(`,"n19999"`, 100_000) + `]}`,
		demanding: `{"x":["n"` + strings.Repeat(`,1`, 100_000) + `]}`,
	} {
		check := compile(t, schema).Check
		began := time.Now()
		testkit.Fails(t, check(json.RawMessage(arguments)), "too large")
		testkit.True(t, time.Since(began) <= 30*time.Second, "giving up took %v", time.Since(began))
		testkit.Works(t, check(json.RawMessage(`{}`)))
	}
}

// However many items or members do not fit, the errors of a few are kept, and the rest is not checked.
func TestErrorsOfASchemaAreBoundedWhileValidating(t *testing.T) {
	const draft7 = `"$schema":"http://json-schema.org/draft-07/schema",`
	const objects = `{"type":"object","properties":{"a":{"type":"string"}},"required":["c"],` +
		`"additionalProperties":false}`
	const items, size = 200_000, 10 * 200_000
	for schema, member := range map[string]string{
		`{"items":{"type":"string"}}`:                                 `        1`,
		`{` + draft7 + `"items":{"type":"string"}}`:                   `        1`,
		`{` + draft7 + `"items":[true],"additionalItems":false}`:      `        1`,
		`{"items":` + objects + `}`:                                   `{"a":1  }`,
		`{"items":{"items":{"type":"string"}}}`:                       `[1, 2, 3]`,
		`{"items":{"anyOf":[{"type":"string"},{"minimum":5}]}}`:       `        1`,
		`{"additionalProperties":{"type":"string"}}`:                  `"%06d":1`,
		`{"patternProperties":{".":{"type":"string"}}}`:               `"%06d":1`,
		`{"propertyNames":{"maxLength":1}}`:                           `"%06d":1`,
		`{"anyOf":[{"type":"object"},{"maxItems":1},{"enum":[1,2]}]}`: `"xxxxxxx"`,
	} {
		var text strings.Builder
		for i := range items {
			text.WriteByte(',')
			text.WriteString(strings.Replace(member, "%06d", fmt.Sprintf("%06d", i), 1))
		}
		brackets := "[]"
		if strings.Contains(member, `":1`) && member[0] == '"' {
			brackets = "{}"
		}
		value := testkit.Get(Document([]byte(brackets[:1] + text.String()[1:] + brackets[1:]))).Must(t)
		s := compile(t, schema)

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := s.CheckDocument(value)
		runtime.ReadMemStats(&after)
		wrong, ok := errors.AsType[*Error](err)
		testkit.Need(t, ok, "%s: %v", schema, err)
		testkit.True(t, len(wrong.Violations) <= maxViolations, "%s: %d violations", schema, len(wrong.Violations))
		allocated := after.TotalAlloc - before.TotalAlloc
		testkit.True(t, allocated < size, "%s: %d bytes for a document of %d", schema, allocated, size)
	}

	// Errors of unevaluated items, and of those looked for by contains, are kept by the validator.
	s := compile(t, `{"contains":{"type":"string"}}`)
	testkit.Fails(t, s.CheckDocument(make([]any, 2*maxSteps)), "too large")
	testkit.Fails(t, s.CheckDocument(make([]any, items)), "no items match contains schema")
	s = compile(t, `{"prefixItems":[true],"unevaluatedItems":false}`)
	testkit.Fails(t, s.CheckDocument(make([]any, 2*maxSteps)), "too large")
	testkit.Fails(t, s.CheckDocument(make([]any, items)), "nothing may be given here")
}

// A schema is read by the draft that it names, also where others differ; one that names none of ours is read
// by the newest. Formats are not checked, and nothing outside of the schema is read.
func TestDraftsAndReferences(t *testing.T) {
	const draft7 = `"$schema":"http://json-schema.org/draft-07/schema#",`
	for schema, good := range map[string]string{
		`{` + draft7 +
			`"properties":{"a":{"$ref":"#/definitions/x","type":"string"}},"definitions":{"x":{}}}`: `{"a":1}`,
		`{` + draft7 + `"properties":{"a":{"format":"ipv4"}}}`:                                         `{"a":"x"}`,
		`{"$schema":"https://example.com/own","properties":{"a":{"prefixItems":[{"type":"string"}]}}}`: `{"a":["x"]}`,
	} {
		testkit.Works(t, compile(t, schema).Check(json.RawMessage(good)), "%s", schema)
	}

	outside := filepath.ToSlash(filepath.Join(testkit.Dir(t), "schema.json"))
	testkit.Write(t, outside, "{}")
	for schema, want := range map[string]string{
		`{"$ref":"file:///` + strings.TrimPrefix(outside, "/") +
			`"}`: "",
		`{"$ref":"https://json-schema.org/draft-04/none"}`:  "",
		`{"allOf":[{"$ref":"#"}]}`:                          "leads back to itself",
		`{` + draft7 + `"dependencies":{"a":{"$ref":"#"}}}`: "leads back to itself",
		`{` + draft7 +
			`"items":[{"$ref":"#/definitions/a"}],` +
			`"definitions":{"a":{"not":{"$ref":"#/definitions/a"}}}}`: "leads back to itself",
		`{"prefixItems":[{"$ref":"#/$defs/a"}],` +
			`"$defs":{"a":{"not":{"$ref":"#/$defs/a"}}}}`: "leads back to itself",
		`{"additionalProperties":{"$ref":"#/$defs/a"},` +
			`"$defs":{"a":{"if":{"$ref":"#/$defs/a"}}}}`: "leads back to itself",
	} {
		testkit.Fails(t, testkit.Get(Compile(json.RawMessage(schema))).Err(), want, "%s", schema)
	}
}

// A document is YAML or JSON; numbers, dates and keys are as JSON has them.
func TestDocuments(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":[1.5,true,null]}`:    `{"a":1,"b":[1.5,true,null]}`,
		"a: 1\nb: [x, 'y']\n":            `{"a":1,"b":["x","y"]}`,
		`{"a":1,"b":[{"a":1,"a":2}]}`:    "already defined",
		`{"a:\\\":":"\\\\","b":":"}`:     `{"a:\\\":":"\\\\","b":":"}`,
		"day: 2026-01-01\n":              `{"day":"2026-01-01"}`,
		"- &x {a: 1}\n- *x\n":            `[{"a":1},{"a":1}]`,
		"\n":                             "it is empty",
		"a: 1\n---\nb: 2\n":              "more than one document",
		"1: a\n<<: {[x]: y}\n":           "cannot be read: ", // the library panics
		"{a: [\n":                        "yaml",
		strings.Repeat("a: 1\n", 30_000): "line 2: the key \"a\" is already defined", // reported once
		"1: a\n":                         "what JSON cannot have",
		".nan\n":                         "what JSON cannot have",
		strings.Repeat("[", 1000) + "1":  "yaml",
		strings.Repeat("- ", 1000) + "1": "nested more than 200 deep",
		strings.Repeat("[", 150) + strings.Repeat("]", 150): strings.Repeat("[", 150) + strings.Repeat("]", 150),
	} {
		value, err := Document([]byte(text))
		got := fmt.Sprint(err)
		if err == nil {
			encoded, err := jsontext.Encode(value)
			testkit.Must(t, err)
			got = string(encoded)
		}
		testkit.True(t, got == want || err != nil && strings.Contains(got, want), "%.60q: %.300s, want %.100s", text,
			got, want)
	}
}

// What is wrong with a document is said of keys, and a document may be larger than arguments.
func TestCheckDocument(t *testing.T) {
	s := compile(t, `{"items": {"properties": {"a": {"type": "integer"}}, "additionalProperties": false}}`)
	err, ok := errors.AsType[*Error](s.CheckDocument([]any{map[string]any{"b": 1.0}}))
	testkit.True(t, ok && err.Error() == `[0]: there is no key named "b"; there are a`, "%v", err)

	s = compile(t, `{"items": {"enum": [`+strings.Repeat("1,", 16_000)+`2]}}`) // 1000 steps for each item
	items := func(steps int) (all []any) {
		for range steps / 1000 {
			all = append(all, 1.0)
		}
		return all
	}
	testkit.Works(t, s.CheckDocument(items(2*maxSteps)))

	for what, err := range map[string]error{
		"arguments":  s.Validate(items(2 * maxSteps)),
		"a document": s.CheckDocument(items(2 * maxDocumentSteps)),
	} {
		testkit.True(t, err != nil && strings.Contains(err.Error(), "too large"), "%s: %v", what, err)
	}
}
