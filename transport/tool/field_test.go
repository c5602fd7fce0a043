package tool

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What can only mean one thing is taken, however a client writes it; nothing else is, and outputs are never changed.
func TestField10_ValuesInAnotherForm(t *testing.T) {
	type line struct {
		Line int     `json:"line" arg:"l" min:"1"`
		File *string `json:"file" arg:"f"`
	}
	type given struct {
		N       *int            `json:"n" arg:"n" min:"1" max:"500"`
		F       *float64        `json:"f" arg:"f"`
		B       *bool           `json:"b" arg:"b"`
		List    []string        `json:"list" arg:"l"`
		Lines   []line          `json:"lines" arg:"l"`
		Text    *string         `json:"text" arg:"t"`
		Free    json.RawMessage `json:"free" arg:"f" free:"true"`
		Outputs json.RawMessage `json:"outputs" arg:"o"`
	}
	check := newArguments("t", reflect.TypeFor[given]())
	n, f, b, text := 5, 1.5, true, "5"
	file := "a"
	for raw, want := range map[string]given{
		`{"n":5.0}`:                           {N: &n},
		`{"n":0.5e1}`:                         {N: &n},
		`{"n":"5"}`:                           {N: &n},
		`{"n":" 5.0"}`:                        {N: &n},
		`{"f":"1.5"}`:                         {F: &f},
		`{"b":"true"}`:                        {B: &b},
		`{"list":"[\"a\",\"5\"]"}`:            {List: []string{"a", "5"}},
		`{"lines":[{"line":5.0,"file":"a"}]}`: {Lines: []line{{5, &file}}},
		`{"lines":"[{\"line\":\"5\",\"file\":\"a\"}]"}`:    {Lines: []line{{5, &file}}},
		`{"text":"5","free":"{\"a\":5.0}"}`:                {Text: &text, Free: json.RawMessage(`{"a":5.0}`)},
		`{"outputs":{"a":"5.0","b":5.0,"c":"[1]"}}`:        {Outputs: json.RawMessage(`{"a":"5.0","b":5.0,"c":"[1]"}`)},
		`{"n":5.0,"outputs":{"z":"5.0","a":5.0},"b":null}`: {N: &n, Outputs: json.RawMessage(`{"z":"5.0","a":5.0}`)},
		`"{\"n\":\"5\"}"`: {N: &n},
	} {
		var got given
		if _, fault := check.decode(json.RawMessage(raw), &got); fault != nil {
			t.Errorf("%s: %v", raw, fault)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", raw, diff)
		}
	}
	for raw, want := range map[string]string{
		`{"n":5.5}`: `"n"`, `{"n":"five"}`: `"n"`, `{"n":"5,0"}`: `"n"`, `{"n":"5 6"}`: `"n"`, `{"n":""}`: `"n"`, `{"n":"null"}`: `"n"`, `{"n":true}`: `"n"`,
		`{"n":1e30}`: `"n"`, `{"n":"0x5"}`: `"n"`, `{"b":"yes"}`: `"b"`, `{"b":1}`: `"b"`, `{"list":"a"}`: `"list"`, `{"list":"a,b"}`: `"list"`, `{"list":"{}"}`: `"list"`, `{"list":[1]}`: `"list[0]"`, `{"list":""}`: `"list"`, `{"list":"5"}`: `"list"`, `{"list":"[a"}`: `"list"`, `{"lines":"x"}`: `"lines"`,
		`{"text":5}`: `"text"`, `{"lines":[{"line":"x"}]}`: `"lines[0].line"`, `"n"`: "a string, not an object", `{"f":1e999}`: `"f"`,
	} {
		var got given
		if _, fault := check.decode(json.RawMessage(raw), &got); fault == nil || !strings.Contains(fault.Message, want) || strings.Contains(fault.Message, "Go ") {
			t.Errorf("%s: %v", raw, fault)
		}
	}
}
