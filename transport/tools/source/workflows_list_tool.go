package source

import (
	"context"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/transport/tool"
)

// pageSize is the number of workflows per reply.
const pageSize = 1000

// A listReply is the reply of workflows-list-tool.
type listReply struct {
	Workflows  []Workflow `json:"workflows"`
	NextCursor *string    `json:"nextCursor"`
}

// TextValue returns the value of the text content: the bare array.
func (r *listReply) TextValue() any { return r.Workflows }

type listArgs struct {
	Cursor *string `json:"cursor" arg:"nextCursor of the previous reply"`
}

// addList registers workflows-list-tool (seed 003, 6.1).
func addList(s *tool.Set, o Options) {
	add(s, o, tool.Tool{
		Name: "workflows-list-tool", Title: "Workflows as a source",
		Description: "For other servers, which make tools of this project's workflows; agents call get_workflows.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output: &jsonschema.Schema{
			Type: "object",
			Properties: map[string]*jsonschema.Schema{
				"workflows": {Type: "array", Description: "the workflows: {id, name, description, category, version, inputSchema, executionType, metadata}",
					Items: &jsonschema.Schema{Type: "object", Description: "one workflow"}},
				"nextCursor": {Types: []string{"null", "string"}, Description: "cursor of the next page; null: this is the last"},
			},
			PropertyOrder: []string{"workflows", "nextCursor"},
			Required:      []string{"workflows"},
		},
	}, func(ctx context.Context, _ *tool.Caller, args listArgs) (*listReply, error) {
		return list(Workflows(o.Jobs(ctx)), args.Cursor)
	})
}

// list returns the page after the workflow whose id the cursor holds.
func list(all []Workflow, cursor *string) (*listReply, error) {
	after, given, err := tool.CursorArgument(cursor, "nextCursor")
	if err != nil {
		return nil, err
	}
	if given {
		i := slices.IndexFunc(all, func(w Workflow) bool { return w.ID == after })
		if i < 0 {
			return nil, session.Wrong(codes.InvalidArgument, "Argument \"cursor\" names workflow %q, which no longer exists: list again without a cursor.", jsontext.Clip(after, 100)).
				With("argument", "cursor").With("value", jsontext.Clip(*cursor, 100))
		}
		all = all[i+1:]
	}
	reply := &listReply{Workflows: append([]Workflow{}, all[:min(pageSize, len(all))]...)}
	if len(all) > pageSize {
		reply.NextCursor = new(tool.Workflows.Encode(all[pageSize-1].ID))
	}
	return reply, nil
}
