package transport

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// A client that can ask its user does so during finished_step, over stdio and HTTP alike; one that
// cannot, or must not be asked in the middle of a call, gets the reply that says who has to answer.
func TestAClientIsAskedForItsUsersReview(t *testing.T) {
	for name, test := range map[string]struct {
		version string
		answer  *mcp.ElicitResult // nil means that the client declares no elicitation
		http    bool
		want    machine.Status
		says    string
	}{
		"pass":                     {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass", "feedback": "Fine"}}, false, machine.NextStep, "Fine"},
		"pass over HTTP":           {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}, true, machine.NextStep, ""},
		"fail":                     {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "fail", "feedback": "Too long"}}, false, machine.NeedsWork, "Too long"},
		"decline":                  {stateful, &mcp.ElicitResult{Action: "decline"}, false, machine.NeedsWork, "Waiting: "},
		"cancel":                   {stateful, &mcp.ElicitResult{Action: "cancel"}, false, machine.NeedsWork, "Waiting: "},
		"accept without an answer": {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"feedback": "pass"}}, false, machine.NeedsWork, "Waiting: "},
		"another answer":           {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "yes"}}, false, machine.NeedsWork, "Waiting: "},
		"no elicitation":           {stateful, nil, false, machine.NeedsWork, "Waiting: "},
		"newer MCP":                {"", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}, false, machine.NeedsWork, "Waiting: "},
	} {
		t.Run(name, func(t *testing.T) {
			s, root := project(t, nil)
			write(t, root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
			o := &mcp.ClientOptions{}
			if test.answer != nil {
				o.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					if !strings.Contains(r.Params.Message, "Would you sign it?") || !strings.Contains(r.Params.Message, "text.txt") {
						t.Errorf("asked %q", r.Params.Message)
					}
					return test.answer, nil
				}
			}
			here, there := mcp.NewInMemoryTransports()
			var over mcp.Transport = there
			if !test.http {
				go s.mcp.Run(localCall(), here)
			} else {
				over = &mcp.StreamableClientTransport{Endpoint: overHTTP(t, s, web.Options{}).URL(), HTTPClient: httpClient(t, "")}
			}
			cs := connect(t, over, test.version, o)
			id := into[machine.StartReply](t, cs, "start_workflow", startText).BeginStep.SessionID
			args := `{"outputs":{"text":"text.txt"},"session_id":"` + id + `","step_id":"text"}`
			res := callTool(t, cs, "finished_step", args)
			if !strings.Contains(text(res), test.says) || !strings.Contains(text(res), `"status":"`+string(test.want)+`"`) {
				t.Errorf("reply %s", text(res))
			}
			if waiting, _ := res.Meta[tool.WaitingMeta].(map[string]any); (waiting != nil) != strings.HasPrefix(test.says, "Waiting") {
				t.Errorf("waiting: %v", res.Meta)
			}
		})
	}
}
