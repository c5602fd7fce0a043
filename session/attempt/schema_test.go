package attempt

import (
	"encoding/json"
	"testing"
)

// workspace_id is another name for attempt_id, at the top of the arguments.
func TestArgumentsAreFlat(t *testing.T) {
	var a FollowUpArgs
	must(t, json.Unmarshal([]byte(`{"workspace_id": "`+nobody+`", "action": "send", "prompt": "x"}`), &a))
	if id, err := a.id(); err != nil || deref(id) != nobody || a.Action != ActionSend {
		t.Errorf("%+v, %v", a, err)
	}
	var tail TailArgs
	must(t, json.Unmarshal([]byte(`{"attempt_id": "`+nobody+`", "wait": 1.5, "after_index": 7}`), &tail))
	if id, err := tail.ID(); err != nil || id != nobody || *tail.Wait != 1.5 || *tail.AfterIndex != 7 {
		t.Errorf("%+v, %v", tail, err)
	}
}
