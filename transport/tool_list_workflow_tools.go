package transport

import (
	"context"
	"encoding/json"
	"path"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
)

const (
	listedShort = 100 // tools in a page without their schemas
	listedFull  = 20  // and with them
	shortChars  = 300 // of a description without the schema
)

type listArgs struct {
	Name   *string `json:"name"`
	Cursor *string `json:"cursor"`
}

// A listReply is what list_workflow_tools answers.
type listReply struct {
	Tools      []toolInfo    `json:"tools" jsonschema:"the workflow tools, by name"`
	Skipped    []skippedInfo `json:"skipped" jsonschema:"what is not offered, and sources that are away"`
	NextCursor *string       `json:"next_cursor" jsonschema:"cursor of the next page; null: this is the last"`
}

// A toolInfo is one of them.
type toolInfo struct {
	Name          string          `json:"name"`
	Description   string          `json:"description"` // cut, unless a name was given
	Source        *string         `json:"source"`      // nil: this project
	WorkflowID    string          `json:"workflow_id"`
	Category      string          `json:"category"`
	Version       string          `json:"version"`
	ExecutionType string          `json:"execution_type"`
	Available     bool            `json:"available"`    // its source can be reached now
	InputSchema   json.RawMessage `json:"input_schema"` // null, unless a name was given
}

const toolItem = "{name, description, source (null: this project), workflow_id, category, version, execution_type (sync or async), " +
	"available (its source can be reached), input_schema (null unless name is given)}"

// addListWorkflowTools registers list_workflow_tools.
func addListWorkflowTools(s *Server) {
	output := outputSchemaIn[listReply](words{})
	listOf(output, "tools", toolItem)
	listOf(output, "skipped", skippedItem)
	addTool(s, tool[listArgs, *listReply]{
		name: "list_workflow_tools", title: "List workflow tools",
		description: "Lists the workflows of other systems that are tools here. Call it where your own list of tools may be old. " +
			"With name the input_schema comes too: call the tool itself, or through call_workflow_tool.",
		hints: hints{readOnly: true, idempotent: true},
		input: inputSchema(
			optional("name", maxName, "A tool's name, or a pattern of names such as `data-*`: only these, in full."),
			optional("cursor", maxName, "next_cursor of the page before."),
		),
		output: output,
		call: func(ctx context.Context, _ *connection, args listArgs) (*listReply, error) {
			return s.remote.list(ctx, args)
		},
	})
}

func (r *remotes) list(ctx context.Context, args listArgs) (*listReply, error) {
	pattern, size := "", listedShort
	if args.Name != nil {
		pattern, size = *args.Name, listedFull
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, session.Wrong("invalid_argument", "Argument \"name\" is %q, which is no name and no pattern: * stands for any text, ? for one character, [a-z] for one of them.", pattern).With("argument", "name").With("value", pattern)
		}
	}
	after := ""
	if args.Cursor != nil {
		var ok bool
		if after, ok = decodeCursor(*args.Cursor); !ok {
			return nil, session.Wrong("invalid_argument", "Argument \"cursor\" is %q, which is none of ours: pass next_cursor of the page before, or leave it out.", clip(*args.Cursor, 100)).With("argument", "cursor").With("value", clip(*args.Cursor, 100))
		}
	}
	r.follow(ctx)
	l := r.relist(ctx)
	reply := &listReply{Tools: []toolInfo{}, Skipped: skipped(r.unused(ctx), away(l.from), l.from.Skipped)}
	begin, found := slices.BinarySearchFunc(l.tools, after, byName)
	if found {
		begin++
	}
	for _, t := range l.tools[begin:] {
		if pattern != "" {
			if ok, err := path.Match(pattern, t.Name); !ok || err != nil {
				continue
			}
		}
		if len(reply.Tools) == size {
			reply.NextCursor = new(encodeCursor(reply.Tools[size-1].Name))
			break
		}
		reply.Tools = append(reply.Tools, l.describe(t, pattern != ""))
	}
	return reply, nil
}

// describe tells of a tool, in full or in short.
func (l *listing) describe(t *mcp.Tool, full bool) toolInfo {
	meta := t.Meta[workflowMeta].(listedMeta)
	info := toolInfo{
		Name: t.Name, Description: t.Description, WorkflowID: meta.ID, Category: meta.Category,
		Version: meta.Version, ExecutionType: meta.ExecutionType, Available: true, InputSchema: json.RawMessage("null"),
	}
	if meta.Source != "" {
		info.Source = &meta.Source
		now := l.from.Tool(t.Name)
		info.Available = now != nil && now.Away == ""
	}
	if full {
		info.InputSchema = t.InputSchema.(json.RawMessage) // as every listed workflow has it
	} else {
		info.Description = clip(info.Description, shortChars)
	}
	return info
}
