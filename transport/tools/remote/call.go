package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
	sources "deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/transport/tool"
)

// A target executes a call of a workflow's tool.
type target func(ctx context.Context, c *tool.Caller, arguments json.RawMessage) (reply any, err error)

// handler returns the function that serves the tool of a workflow, or refuses a name that is
// ambiguous or that is gone with its source; nil means no workflow has that name (seed 003, 2.2).
func (r *Tools) handler(ctx context.Context, name string) tool.Handler {
	do, err := r.target(ctx, name)
	switch {
	case err != nil:
		do = func(context.Context, *tool.Caller, json.RawMessage) (any, error) { return nil, err }
	case do == nil:
		return nil
	}
	return func(ctx context.Context, c *tool.Caller, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return r.set.Serve(ctx, c, req, tool.CallLog{Tool: jsontext.Clip(name, tool.MaxName), Counted: tool.OtherTools},
			func(*tool.CallLog) *session.Error { return nil }, // the workflow's own schema checks them
			func(ctx context.Context) (any, error) { return do(ctx, c, req.Params.Arguments) })
	}
}

// run runs a workflow at its source and waits for its end (seed 003, 2.2 to 2.5
// and 7.1).
func (r *Tools) run(ctx context.Context, c *tool.Caller, t *sources.Tool, arguments json.RawMessage) (any, error) {
	calling, release := byCaller(ctx)
	defer release()
	id, said := "", ""
	ended, err := r.Runs.Call(calling, c.Identity, t, arguments, func(now remote.Run) {
		id = now.ExecutionID
		if words := tool.ProgressWords(&now); words != said {
			tool.Progress(ctx, words)
			said = words
		}
	})

	_, refused := errors.AsType[*session.Error](err)
	switch {
	case err == nil:
		return ended, nil
	case context.Cause(calling) == remote.ErrCancelled:
		// A caller that cancels a call wants no answer, not even of its success.
		return nil, fmt.Errorf("running workflow %q: %w: %w", t.Name, context.Canceled, err)
	case errors.Is(err, tool.ErrStopping) && id != "" && !refused:
		return nil, session.NotNow(codes.Stopping,
			"The server is stopping. Workflow '%s' continues at its source '%s'. When the server is back, "+
				"call workflow_status with execution_id '%s'; do not start it again.", t.Workflow.Name, t.Source,
			id).With("execution_id", id)
	}

	return nil, err
}

// byCaller returns a context that ends with ctx, and whose cause is remote.ErrCancelled if its
// caller cancelled the call: by a notification, which ends the request's context without a reason,
// or by hanging up, as in the newest protocol over HTTP. A lost connection has its reason (io.EOF,
// errGone), and so has a server that stops; then runs continue.
func byCaller(ctx context.Context) (context.Context, func()) {
	calling, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if cause == context.Canceled {
			cause = remote.ErrCancelled
		}
		cancel(cause)
	})
	return calling, func() {
		stop()
		cancel(nil)
	}
}

type callArgs struct {
	Name      string          `json:"name" arg:"Name from list_workflow_tools"`
	Arguments json.RawMessage `json:"arguments" arg:"What its input_schema allows" free:"true"`
}

// addCallWorkflowTool registers call_workflow_tool, for clients that request the list of tools only
// once.
func addCallWorkflowTool(s *tool.Set, r *Tools) {
	tool.Add(s, tool.Tool{
		Name: "call_workflow_tool", Title: "Call a workflow tool",
		Description: "Calls a workflow tool that is missing from your list of tools.",
		Hints:       tool.Hints{Destructive: true, Open: true},
		Output: &jsonschema.Schema{Type: "object",
			Description: "The reply is that of workflow_status; for a workflow of this project, that of " +
				"start_workflow."},
		Recheck: tool.SeeExecution,
	}, func(ctx context.Context, c *tool.Caller, args callArgs) (*any, error) {
		do, err := r.target(ctx, args.Name)
		if err == nil && do == nil {
			err = r.noTool(ctx, args.Name)
		}
		if err != nil {
			return nil, err
		}
		reply, err := do(ctx, c, args.Arguments)
		return &reply, err
	})
}
