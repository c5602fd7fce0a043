package transport

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session"
)

// An ownWorkflow is a workflow of this project in the schema of seed 003, 6.1.
type ownWorkflow struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	Category      string          `json:"category"`
	Version       string          `json:"version"`
	InputSchema   json.RawMessage `json:"inputSchema"`
	ExecutionType string          `json:"executionType"`
	Metadata      json.RawMessage `json:"metadata"`
}

// An ownListReply is what workflows-list-tool answers.
type ownListReply struct {
	Workflows  []ownWorkflow `json:"workflows"`
	NextCursor *string       `json:"nextCursor"`
}

// textValue is what stands in the text of the result: the bare array.
func (r *ownListReply) textValue() any { return r.Workflows }

type ownListArgs struct {
	Cursor *string `json:"cursor"`
}

// addOwnList registers workflows-list-tool (seed 003, 6.1), by which this server
// is a source of workflows for others. It offers this project's own alone: two
// servers that are each other's sources would else pass on the same ones for ever.
func addOwnList(s *Server) {
	addTool(s, tool[ownListArgs, *ownListReply]{
		name: "workflows-list-tool", title: "Workflows as a source",
		description: "For servers that make tools of this project's workflows; agents use get_workflows. Lists what workflows-execute-tool can run.",
		hints:       hints{readOnly: true, idempotent: true},
		input:       inputSchema(optional("cursor", maxName, "nextCursor of the page before.")),
		output: &jsonschema.Schema{
			Type: "object",
			Properties: map[string]*jsonschema.Schema{
				"workflows": {Type: "array", Description: "the workflows: {id, name, description, category, version, inputSchema, executionType, metadata}",
					Items: &jsonschema.Schema{Type: "object", Description: "one workflow"}},
				"nextCursor": {Types: []string{"null", "string"}, Description: "cursor of the next page; null: this is the last"},
			},
			PropertyOrder: []string{"workflows", "nextCursor"},
			Required:      []string{"workflows"},
		},
		call: func(ctx context.Context, _ *connection, args ownListArgs) (*ownListReply, error) {
			return s.ownWorkflows(ctx, args.Cursor)
		},
	})
}

// ownWorkflows lists the workflows that can be started, in the order of their
// folders and files, a page after the workflow whose id the cursor holds.
func (s *Server) ownWorkflows(ctx context.Context, cursor *string) (*ownListReply, error) {
	after, skipping := "", false
	if cursor != nil {
		if after, skipping = decodeCursor(*cursor); !skipping {
			return nil, session.Wrong("invalid_argument", "Argument \"cursor\" is %q, which is none of ours: pass nextCursor of the page before, or leave it out.", clip(*cursor, 100)).With("argument", "cursor").With("value", clip(*cursor, 100))
		}
	}
	reply := &ownListReply{Workflows: []ownWorkflow{}}
	for _, j := range s.jobs(ctx).Jobs {
		for i := range j.Workflows {
			w := &j.Workflows[i]
			id := ownID(j, w)
			switch {
			case skipping:
				skipping = id != after
				continue
			case len(w.Entries) == 0:
				continue
			case len(reply.Workflows) == pageTools:
				reply.NextCursor = new(encodeCursor(reply.Workflows[pageTools-1].ID))
				return reply, nil
			}
			reply.Workflows = append(reply.Workflows, ownWorkflow{
				ID: id, Name: ownName(j, w), Description: ownDescription(j, w), Category: jobCategory, Version: j.Version,
				InputSchema: ownInputSchema(), ExecutionType: executionType(true), Metadata: ownMetadata(j, w),
			})
		}
	}
	if skipping {
		return nil, session.Wrong("invalid_argument", "Argument \"cursor\" names workflow %q, which is not there any more: list again from the beginning.", clip(after, 100)).With("argument", "cursor").With("value", clip(*cursor, 100))
	}
	return reply, nil
}
