package remote

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
	sources "deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/transport/tool"
)

const (
	ListedShort = 100 // tools in a page without their schemas
	listedFull  = 20  // and with them
	shortChars  = 300 // of a description without the schema
)

type listArgs struct {
	Name   *string `json:"name" arg:"Name or pattern such as data-*: only these, with input_schema"`
	Cursor *string `json:"cursor" arg:"next_cursor"`
}

// A ListReply is the reply of list_workflow_tools.
type ListReply struct {
	Tools      []toolInfo        `json:"tools" jsonschema:"the workflow tools, by name"`
	Skipped    []sources.Skipped `json:"skipped" jsonschema:"what is not offered, and sources that cannot be reached"`
	NextCursor *string           `json:"next_cursor" jsonschema:"cursor of the next page; null: this is the last"`
}

// A toolInfo describes a tool.
type toolInfo struct {
	Name          string  `json:"name" jsonschema:"name of the tool"`
	Description   string  `json:"description" jsonschema:"what it does; cut unless name is given"`
	Source        *string `json:"source" jsonschema:"name of its source, or null for this project"`
	WorkflowID    string  `json:"workflow_id" jsonschema:"id of the workflow at its source"`
	Category      string  `json:"category" jsonschema:"the source's word"`
	Version       string  `json:"version" jsonschema:"the source's version"`
	ExecutionType string  `json:"execution_type" jsonschema:"sync or async"`
	Available     bool    `json:"available" jsonschema:"whether its source can be reached"`
	// DescriptionChanged is when its source last changed the description or the input schema.
	DescriptionChanged *time.Time      `json:"description_changed"`
	InputSchema        json.RawMessage `json:"input_schema"`
}

// Tags implements fieldtag.Tagger.
func (toolInfo) Tags() map[string]string {
	return map[string]string{
		"DescriptionChanged": `jsonschema:"when the source last changed it, RFC 3339"`,
		"InputSchema":        `jsonschema:"JSON Schema of the arguments, or null unless name is given"`,
	}
}

func addListWorkflowTools(s *tool.Set, r *Tools) {
	output := tool.OutputSchema[ListReply](nil)
	tool.OpenProperty(output.Properties["tools"].Items, "input_schema", "null", "object")
	tool.Add(s, tool.Tool{
		Name: "list_workflow_tools", Title: "List workflow tools",
		Description: "Lists the tools that run workflows of other systems. Call it if your tool list may be outdated.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output:      output,
		Smaller:     "give name, for one tool or those that match a pattern.",
	}, r.list)
}

func (r *Tools) list(ctx context.Context, _ *tool.Caller, args listArgs) (*ListReply, error) {
	pattern, size := "", ListedShort
	if args.Name != nil {
		pattern, size = *args.Name, listedFull
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, session.Wrong(codes.InvalidArgument,
				"Argument \"name\" is %q, which is not a valid pattern: * matches any text, ? one character, [a-z] "+
					"one of a range.", pattern).With("argument", "name").With("value", pattern)
		}
	}

	after, _, err := tool.CursorArgument(args.Cursor, "next_cursor")
	if err != nil {
		return nil, err
	}

	r.follow(ctx)
	l := r.Listing(ctx)
	reply := &ListReply{
		Tools:   []toolInfo{},
		Skipped: skipped(r.unused(ctx), append(unavailableSources(l.From), r.withheld(ctx)...), l.From.Skipped),
	}
	begin, found := slices.BinarySearchFunc(l.Tools, after, byName)
	if found {
		begin++
	}
	for _, t := range l.Tools[begin:] {
		if pattern != "" {
			if ok, err := path.Match(pattern, t.Name); !ok || err != nil {
				continue
			}
		}

		if len(reply.Tools) == size {
			reply.NextCursor = new(tool.Workflows.Encode(reply.Tools[size-1].Name))
			break
		}
		reply.Tools = append(reply.Tools, l.describe(t, pattern != ""))
	}
	return reply, nil
}

// describe describes a tool, in full or in short.
func (l *Listing) describe(t *mcp.Tool, full bool) toolInfo {
	meta := t.Meta[WorkflowMeta].(listedMeta)
	info := toolInfo{
		Name: t.Name, Description: t.Description, WorkflowID: meta.ID, Category: meta.Category,
		Version: meta.Version, ExecutionType: meta.ExecutionType, Available: true, InputSchema: json.RawMessage("null"),
	}
	if meta.Source != "" {
		info.Source = &meta.Source
		now := l.From.Tool(t.Name)
		info.Available = now != nil && now.Away == ""
		if now != nil && !now.Changed.IsZero() {
			info.DescriptionChanged = new(now.Changed.UTC().Truncate(time.Second))
		}
	}
	if full {
		info.InputSchema = t.InputSchema.(json.RawMessage) // every listed workflow has this type
	} else {
		info.Description = jsontext.Clip(info.Description, shortChars)
	}
	return info
}
