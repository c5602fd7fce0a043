package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	sources "deepwork/catalog/remote"
	"deepwork/session"
	"deepwork/session/execution"
	"deepwork/transport/tool"
)

// countedAs is the name of all workflows' tools in the metrics.
const countedAs = "workflow_tool"

// A target is what a workflow's tool does with its arguments, and which outcome
// is logged of it.
type target func(ctx context.Context, c *tool.Caller, arguments json.RawMessage) (reply any, outcome string, err error)

// handler returns what serves the tool of a workflow, or refuses a name that others
// share or that is gone with its source; nil means none of that name (seed 003,
// 2.2).
func (r *Tools) handler(ctx context.Context, name string) tool.Handler {
	do, err := r.target(ctx, name)
	switch {
	case err != nil:
		do = func(context.Context, *tool.Caller, json.RawMessage) (any, string, error) { return nil, "", err }
	case do == nil:
		return nil
	}
	return func(ctx context.Context, c *tool.Caller, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return r.set.Serve(ctx, c, req, tool.CallLog{Tool: name, Counted: countedAs},
			func(*tool.CallLog) *session.Error { return nil }, // the workflow's own schema judges them
			func(ctx context.Context) (any, string, error) {
				return do(ctx, c, req.Params.Arguments)
			})
	}
}

// run runs a workflow at its source and waits for its end (seed 003, 2.2 to 2.5
// and 7.1).
func (r *Tools) run(ctx context.Context, c *tool.Caller, t *sources.Tool, arguments json.RawMessage) (any, string, error) {
	calling, release := byCaller(ctx)
	defer release()
	tell := tool.WantsProgress(ctx)
	id, said := "", ""
	ended, err := r.Executions.Call(calling, c.Identity, t, arguments, func(now execution.Execution) {
		id = now.ExecutionID
		if words := ""; tell {
			if words = progressWords(&now); words != said {
				tool.Progress(ctx, words)
				said = words
			}
		}
	})
	if err == nil {
		return ended, string(ended.State), nil
	}
	refusal, refused := errors.AsType[*session.Error](err)
	switch {
	case context.Cause(calling) == execution.ErrCancelled:
		// Whoever cancels a call wants no answer to it, not even that it worked.
		return nil, "", fmt.Errorf("running workflow %q: %w: %w", t.Name, context.Canceled, err)
	case refused:
		return nil, "", slim(refusal)
	case errors.Is(err, tool.ErrStopping) && id != "":
		return nil, "", session.NotNow("stopping", "The server is stopping. Workflow '%s' goes on at its source '%s'; when the server is back, "+
			"call workflow_status with execution_id '%s', and do not start it again.", t.Workflow.Name, t.Source, id).With("execution_id", id)
	}
	return nil, "", err
}

// byCaller returns a context that ends with ctx, and whose cause is
// execution.ErrCancelled where its caller cancelled the call: by a notification, which
// ends the request's context and gives no reason, or, in the newest protocol over
// HTTP, by hanging up, which is how it is done there. A connection that is lost
// has its reason (io.EOF, errGone), and so has a server that stops; then runs go
// on.
func byCaller(ctx context.Context) (context.Context, func()) {
	calling, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if cause == context.Canceled {
			cause = execution.ErrCancelled
		}
		cancel(cause)
	})
	return calling, func() { stop(); cancel(nil) }
}

// progressWords returns the message for a caller that waits (seed 003, 7.3).
func progressWords(now *execution.Execution) string {
	var b strings.Builder
	fmt.Fprintf(&b, "execution_id %s: ", now.ExecutionID)
	p := now.Progress
	if p == nil || p.Value == nil && p.Message == "" {
		return b.String() + string(now.State)
	}
	if p.Value != nil {
		b.WriteString(number(*p.Value))
		if p.Total != nil {
			b.WriteString(" of " + number(*p.Total))
		}
		if p.Message != "" {
			b.WriteString(", ")
		}
	}
	return b.String() + tool.Plain(p.Message)
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

// slim makes sure that a refusal's values for programs have room for its
// execution_id: the run that it holds goes first.
func slim(e *session.Error) *session.Error {
	if e.Details["run"] == nil {
		return e
	}
	if data, err := json.Marshal(e.Details["run"]); err == nil && len(data) < tool.ErrorMetaBytes/2 {
		return e
	}
	slimmer := *e
	slimmer.Details = maps.Clone(e.Details)
	delete(slimmer.Details, "run")
	return &slimmer
}
