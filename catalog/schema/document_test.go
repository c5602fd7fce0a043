package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
)

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
		"a: 1\na: 2\n":                   "already defined",
		"{a: [\n":                        "yaml",
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
		testkit.True(t, got == want || err != nil && strings.Contains(got, want), "%.60q: %.300s, want %.100s", text, got, want)
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
	for what, err := range map[string]error{"arguments": s.Validate(items(2 * maxSteps)), "a document": s.CheckDocument(items(2 * maxDocumentSteps))} {
		testkit.True(t, err != nil && strings.Contains(err.Error(), "too large"), "%s: %v", what, err)
	}
}
