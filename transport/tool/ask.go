package tool

import (
	"context"
	"log/slog"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// withAsk lets a call ask the user of its client, by MCP's elicitation, if the client declares it and
// takes requests from the server while it waits for the call.
func (s *Set) withAsk(ctx context.Context, req *mcp.CallToolRequest) context.Context {
	if req.Session == nil { // a call that no client made
		return ctx
	}
	p := req.Session.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil {
		return ctx
	}
	return workflow.WithAsk(ctx, func(ctx context.Context, question string) *machine.Answer {
		r, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: question, RequestedSchema: answerSchema})
		if err != nil {
			s.Logger.LogAttrs(ctx, slog.LevelDebug, "the client did not ask its user", slog.Any("error", err))
			return nil
		}
		decision, _ := r.Content["decision"].(string)
		if r.Action != "accept" || decision != "pass" && decision != "fail" {
			return nil
		}
		feedback, _ := r.Content["feedback"].(string)
		return &machine.Answer{Passed: decision == "pass", Feedback: feedback}
	})
}

// answerSchema is the form that a client's user fills in. Nothing in it has a default: no answer is no
// approval.
var answerSchema = &jsonschema.Schema{
	Type:          "object",
	PropertyOrder: []string{"decision", "feedback"},
	Required:      []string{"decision"},
	Properties: map[string]*jsonschema.Schema{
		"decision": {Type: "string", Title: "Decision", Description: "pass: the step goes on; fail: the agent works on it again", Enum: []any{"pass", "fail"}},
		"feedback": {Type: "string", Title: "Feedback", Description: "What the agent should know; with fail, what to change"},
	},
}
