package tool

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/source"
	"deepwork/session/remote"
	"deepwork/session/workflow/machine"
)

// Only a form that was sent with a decision is an answer of a client's user, and an answer that nothing took is said.
func TestAnswersOfAClientsUser(t *testing.T) {
	for _, c := range []struct {
		action, decision, feedback string
		want                       *machine.Answer
	}{
		{"accept", "pass", "", &machine.Answer{Passed: true}},
		{"accept", "fail", "more", &machine.Answer{Feedback: "more"}},
		{"accept", "perhaps", "more", nil},
		{"accept", "", "", nil},
		{"decline", "pass", "", nil},
		{"cancel", "fail", "no", nil},
	} {
		form := &mcp.ElicitResult{Action: c.action, Content: map[string]any{"decision": c.decision, "feedback": c.feedback}}
		testkit.Same(t, AnswerOf(form), c.want, "%+v", c)
		for _, used := range []bool{false, true} {
			req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{InputResponses: mcp.InputResponseMap{"k": form}}}
			testkit.Equal(t, len(tooLate(req, map[string]bool{"k": used})) > 0, c.want != nil && !used, "%+v, used %t", c, used)
		}
	}
	testkit.Equal(t, AnswerOf(nil), nil)
}

func TestWhatAWaitingCallerIsTold(t *testing.T) {
	for want, p := range map[string]*source.Progress{
		"execution_id e: running":       nil,
		"execution_id e: 1.5":           {Value: new(1.5)},
		"execution_id e: 1 of 2":        {Value: new(1.0), Total: new(2.0)},
		"execution_id e: 1 of 2, half ": {Value: new(1.0), Total: new(2.0), Message: "half \x1b"},
		"execution_id e: half":          {Message: "half"},
	} {
		testkit.Equal(t, ProgressWords(&remote.Run{ExecutionID: "e", State: remote.Running, Progress: p}), want)
	}
	testkit.Equal(t, ProgressWords(&remote.Run{ExecutionID: "e", State: remote.Running, Progress: &source.Progress{Total: new(2.0)}}), "execution_id e: running")
}

// The inputs of a workflow are arguments of its tool, by names that models can write, and come back as its inputs.
func TestInputsAsArguments(t *testing.T) {
	w := &job.Workflow{Inputs: []job.Parameter{
		{Name: "where to", Description: "A place", Required: true},
		{Name: "goal", Description: "A goal", Required: true, Default: new("rest")},
		{Name: "plan", Description: "A plan", Type: job.FilePath},
		{Name: "pages", Description: "Pages", Type: job.Files, Required: true},
		{Name: "map.svg", Description: "A map", Type: job.FilePath},
	}}
	all := InputArguments(w, "goal")
	args := struct {
		Goal *string `json:"goal" arg:"G"`
	}{}
	for raw, want := range map[string]string{
		`{"goal":"g","where_to":"sea","input_goal":"swim","plan":["a.md"],"pages":["b.md","c.md"]}`: `{"goal":{"Text":null,"Paths":["swim"],"List":false},"pages":{"Text":null,"Paths":["b.md","c.md"],"List":true},"plan":{"Text":null,"Paths":["a.md"],"List":true},"where to":{"Text":null,"Paths":["sea"],"List":false}}`,
		`{"where_to":"sea","plan":"a.md","pages":[],"input_goal":null}`:                             `{"pages":{"Text":null,"Paths":null,"List":true},"plan":{"Text":null,"Paths":["a.md"],"List":false},"where to":{"Text":null,"Paths":["sea"],"List":false}}`,
		`{"pages":["b.md"]}`:                        `Missing required argument "where_to"`,
		`{"where_to":["sea"],"pages":["b.md"]}`:     `"where_to"`,
		`{"where_to":"sea","pages":"b.md"}`:         `"pages"`,
		`{"where_to":"sea","pages":[],"plan":{}}`:   `"plan"`,
		`{"where_to":"sea","pages":[],"map.svg":7}`: `"[\"map.svg\"]": 7 is an integer; expected a string or an array: A map`,
	} {
		given, err := Decode("trip-plan", json.RawMessage(raw), &args, all...)
		if err != nil {
			testkit.Contains(t, err.Error(), want, "%s", raw)
			continue
		}
		type value struct {
			Text  *string
			Paths []string
			List  bool
		}
		got := map[string]value{}
		for name, v := range InputValues(w, all, given) {
			got[name] = value{v.Text, v.Paths, v.List}
		}
		testkit.Equal(t, string(testkit.Get(json.Marshal(got)).Must(t)), want, "%s", raw)
	}
	testkit.Equal(t, all[1].Name+": "+all[1].Description, "input_goal: A goal. Default: rest")
}

// Output schemas list the values that fields may have, with null where the field may be that.
func TestValuesOfFields(t *testing.T) {
	type reply struct {
		State string   `json:"state"`
		Kind  *string  `json:"kind"`
		Many  []string `json:"many"`
		Maybe *string  `json:"maybe,omitempty"`
	}
	s := OutputSchema[reply](Words{"state": {"a", "b"}, "kind": {"c"}})
	got := map[string]string{}
	for name, p := range s.Properties {
		got[name] = string(MustJSON([]any{p.Type, p.Types, p.Enum}))
	}
	testkit.Same(t, got, map[string]string{"state": `["string",null,["a","b"]]`, "kind": `["",["null","string"],["c",null]]`, "many": `["array",null,null]`, "maybe": `["string",null,null]`})
	type choice struct {
		Sure string  `json:"sure" arg:"S" required:"true" enum:"a,b"`
		May  *string `json:"may" arg:"M" enum:"c"`
	}
	in := Input[choice]()
	testkit.Equal(t, string(MustJSON([]any{in.Properties["sure"].Enum, in.Properties["may"].Enum, listedInput(in).Properties["may"].Enum, in.Required})), `[["a","b"],["c",null],["c"],["sure"]]`)
}

// A call's log names the session that the call began, was given, or is in; a call after its end is not told.
func TestTheSessionOfACall(t *testing.T) {
	in := []machine.StackEntry{{SessionID: "0000000a"}, {SessionID: "0000000b"}}
	for _, c := range []struct {
		log   CallLog
		reply any
		want  string
	}{
		{CallLog{}, nil, ""},
		{CallLog{stack: in}, nil, "0000000b"},
		{CallLog{stack: in, session: new("0000000c")}, &machine.StartReply{}, "0000000c"},
		{CallLog{stack: in, session: new("0000000c")}, &machine.StartReply{BeginStep: &machine.StepInfo{SessionID: "0000000d"}}, "0000000d"},
	} {
		testkit.Equal(t, c.log.sessionOf(c.reply), c.want)
	}
}
