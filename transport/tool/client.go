package tool

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
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

const (
	// signOfLife is how often a client is notified that its call still runs.
	signOfLife = 10 * time.Second
	// progressPause is the minimum time between two notifications of a call.
	progressPause = 100 * time.Millisecond
)

type progressKey struct{}

// Progress notifies the caller, if it asked for progress. It never blocks; only the newest unsent
// message is kept.
func Progress(ctx context.Context, message string) {
	if notify, ok := ctx.Value(progressKey{}).(func(string)); ok {
		notify(message)
	}
}

// withProgress notifies a client that asked for progress of a call: at each change, and from then
// on every 10 s, for clients that give up on silent calls. The value is the call's age in seconds,
// since it has to grow. The returned function stops the notifications and waits.
func (s *Set) withProgress(ctx context.Context, req *mcp.CallToolRequest) (context.Context, func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx, func() {}
	}
	began := time.Now()
	changed := wait.NewSignal()
	var newest atomic.Pointer[string]
	running, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(signOfLife)
		defer ticker.Stop()
		for {
			select {
			case <-changed:
			case <-ticker.C:
			case <-running.Done():
				return
			}
			message := newest.Load()
			if message == nil {
				continue
			}
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: time.Since(began).Seconds(), Message: *message,
			})
			if err != nil {
				s.Logger.LogAttrs(ctx, slog.LevelDebug, "a progress notification was not sent", slog.Any("error", err))
			}
			if wait.For(running, progressPause) != nil {
				return
			}
		}
	})
	notify := func(message string) {
		newest.Store(&message)
		changed.Wake()
	}
	notified := context.WithValue(ctx, progressKey{}, notify)
	return workflow.WithProgress(notified, func(_, _ int, message string) { notify(message) }), func() { end(); wg.Wait() }
}
