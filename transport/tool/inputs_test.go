package tool

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"deepwork/session/board"
)

// Each value of the inputs of a task is a text or a list of them; the schema that agents see does not say so.
func TestInputsOfTasks(t *testing.T) {
	type all struct {
		Inputs board.Inputs `json:"inputs" arg:"Values"`
	}
	check := newArguments("create_task", reflect.TypeFor[all]())
	for raw, want := range map[string]string{
		`{"inputs":{"a":"x","b":["y"],"c":null}}`: "",
		`{"inputs":{"a":5}}`:                      `Argument "inputs.a": 5 is an integer; expected a string or an array`,
		`{"inputs":{"a":{"text":"x"}}}`:           `Argument "inputs.a"`,
	} {
		_, fault := check.decode(json.RawMessage(raw), new(all))
		if (fault == nil) != (want == "") || fault != nil && !strings.Contains(fault.Message, want) {
			t.Errorf("%s: %v, want %q", raw, fault, want)
		}
	}
	if listed := listedInput(check.input).Properties["inputs"]; listed.AdditionalProperties != nil || listed.Type != "object" {
		t.Errorf("listed as %s", MustJSON(listed))
	}
}
