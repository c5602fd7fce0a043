package tasks

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/transport/tool"
)

// A task is about what goes on after its call: a call that is repeated means the same, another one something else.
func TestWorkOfACall(t *testing.T) {
	of := func(reply any, arguments string) *work {
		return workOf("m:/p", &mcp.CallToolParamsRaw{Name: "x", Arguments: json.RawMessage(arguments)}, reply)
	}
	checked := &replies.Finish{Going: &replies.Going{SessionID: "0a1b2c3d", StepID: "write", Submission: 7}}
	followed := &remote.Run{ExecutionID: "e", StatusSupported: true}
	ended := *followed
	ended.EndedAt = new(time.Now())
	for name, reply := range map[string]any{
		"a verdict":                     &replies.Finish{},
		"a run that ended":              &ended,
		"one that nobody can ask about": &remote.Run{ExecutionID: "e"},
		"a list":                        &[]string{},
	} {
		w := of(reply, "{}")
		testkit.True(t, w == nil && !(&work{}).goesOn(reply), "%s is followed by %+v", name, w)
	}
	step, run := of(checked, `{"outputs":{"a":"1","b":"2"}}`), of(followed, "{}")
	testkit.Equal(t, step.Step.Here, "m:/p")
	testkit.True(t, step.goesOn(checked), "%+v, %+v", step, run)
	testkit.Equal(t, run.Execution, "e")
	testkit.True(t, run.goesOn(followed), "%+v, %+v", step, run)
	testkit.Equal(t, step.key(), of(checked, `{"b":"2"}`).key())
	testkit.Equal(t, canonical(json.RawMessage(`{"b": 2,"a":1}`)), canonical(json.RawMessage(`{"a":1, "b":2}`)))
	seen := map[string]bool{step.key(): true, run.key(): true, (&work{Agent: &agent{Attempt: "e"}}).key(): true}
	testkit.Equal(t, len(seen), 3)
}

// What a server cannot look at is said: nothing can be read, or its tools are elsewhere.
func TestWorkThatCannotBeLookedAt(t *testing.T) {
	s := &Set{Runs: func() *remote.Engine { return nil }}
	for want, all := range map[string][]work{
		codes.StoreDamaged:   {{}},
		codes.ToolsetMissing: {{Agent: &agent{}}, {Execution: "e"}},
	} {
		for _, w := range all {
			_, err := w.look(t.Context(), s, &tool.Caller{}, &store.LongCall{ID: "1", Tool: "finished_step"})
			testkit.Equal(t, session.CodeOf(err), want, "%+v: %v", w, err)
		}
	}
}
