package attempt

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/board"
)

// The replies have JSON Schemas, for that is how clients see them.
func TestRepliesHaveSchemas(t *testing.T) {
	for name, make := range map[string]func() (*jsonschema.Schema, error){
		"projects": schemaOf[board.ProjectsReply], "repos": schemaOf[board.ReposReply], "tasks": schemaOf[board.TasksReply], "attempts": schemaOf[board.AttemptsReply],
		"task": schemaOf[board.Task], "delete": schemaOf[DeleteReply], "attempt": schemaOf[AttemptReply], "follow-up": schemaOf[FollowUpReply],
		"tail": schemaOf[TailReply], "executors": schemaOf[ExecutorsReply], "context": schemaOf[board.ContextReply],
	} {
		s, err := make()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for field, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}

func schemaOf[R any]() (*jsonschema.Schema, error) { return jsonschema.For[R](nil) }

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
