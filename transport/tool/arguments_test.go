package tool

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// An argument that is given twice has two meanings.
func TestArgumentGivenTwice(t *testing.T) {
	check := newArguments("get_step", InputSchema(SessionID()), nil, nil)
	var args struct{}
	if _, err := check.decode(json.RawMessage(`{"session_id":"a","session_id":"b"}`), &args); err == nil || !strings.Contains(err.Message, "twice") {
		t.Errorf("got %v", err)
	}
}

// A tool takes the arguments of its schema, and those that it does not list.
func TestUnlistedArguments(t *testing.T) {
	input := InputSchema(Optional("a", 10, "A."))
	b := newArguments("t", input, nil, []Property{{"b", false, &jsonschema.Schema{Type: "string", Description: "B."}}})
	var got struct{ B string }
	if _, fault := b.decode(json.RawMessage(`{"b":"x"}`), &got); fault != nil || got.B != "x" {
		t.Errorf("%v, %+v", fault, got)
	}
	if _, fault := newArguments("t", input, nil, nil).decode(json.RawMessage(`{"b":"x"}`), &got); fault == nil {
		t.Error("the schema itself was changed")
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"outputs":{"a":"b"}}`, `{"outputs":[],"notes":"\ud800"}`, `{"outputs":1e999}`, `[]`, `null`, `{"a":{"b":[`} {
		f.Add(s)
	}
	outputs := Property{"outputs", true, &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Description: "o"}}}
	check := newArguments("t", InputSchema(outputs, Optional("notes", 10, "n")), nil, nil)
	f.Fuzz(func(t *testing.T, raw string) {
		var args struct {
			Outputs json.RawMessage
			Notes   *string
		}
		_, err := check.decode(json.RawMessage(raw), &args)
		if err == nil && (len(args.Outputs) == 0 || string(args.Outputs) == "null") {
			t.Errorf("%q was accepted without outputs", raw)
		}
		if err != nil && (err.Code == "" || !strings.Contains(err.Message, "t")) {
			t.Errorf("%q: %v", raw, err)
		}
		if err == nil && args.Notes != nil && len([]rune(*args.Notes)) > 10 {
			t.Errorf("%q: notes %q", raw, *args.Notes)
		}
	})
}
