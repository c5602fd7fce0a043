package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog"
	"deepwork/catalog/jsontext"
	sources "deepwork/catalog/source"
	"deepwork/session/replies"
	"deepwork/transport/tool"
	"deepwork/transport/tools/source"
	"deepwork/transport/tools/workflows"
)

const (
	// PageTools is the number of tools per page of tools/list, the same as the SDK's.
	PageTools = 1000
	// pageBytes is the approximate size of a page; a source's schemas may be large.
	pageBytes = 4 << 20
	// WorkflowMeta is the key in a tool's `_meta` for what MCP has no field for.
	WorkflowMeta = "deepwork/workflow"
	// descriptionChars is where clients silently cut descriptions.
	descriptionChars = 2047
)

// A Listing is the list of workflow tools at one moment. It is immutable.
type Listing struct {
	From    *sources.Snapshot
	exposed *catalog.Snapshot // nil if jobs are not exposed
	Tools   []*mcp.Tool       // by name; unchanged tools keep their pointer
	of      map[*sources.Tool]*mcp.Tool
	jobs    map[string]*jobTool // by name
}

// newListing returns the listing that follows old.
func newListing(old *Listing, from *sources.Snapshot, exposed *catalog.Snapshot) *Listing {
	l := &Listing{From: from, exposed: exposed, jobs: old.jobs, of: make(map[*sources.Tool]*mcp.Tool, len(from.Tools))}
	if exposed != old.exposed {
		l.jobs = jobTools(exposed, old.jobs)
	}
	l.Tools = make([]*mcp.Tool, 0, len(from.Tools)+len(l.jobs))
	for _, t := range from.Tools {
		if l.jobs[t.Name] != nil {
			continue // it gets another name when the catalog has seen this one
		}

		listed := old.of[t]
		if listed == nil {
			listed = listedWorkflow(t)
			// clients see no difference
			i, found := slices.BinarySearchFunc(old.Tools, t.Name, byName)
			if found && reflect.DeepEqual(old.Tools[i], listed) {
				listed = old.Tools[i]
			}
		}
		l.of[t] = listed
		l.Tools = append(l.Tools, listed)
	}
	if len(l.jobs) > 0 {
		for _, j := range l.jobs {
			l.Tools = append(l.Tools, j.listed)
		}
		slices.SortFunc(l.Tools, func(a, b *mcp.Tool) int { return strings.Compare(a.Name, b.Name) })
	}
	return l
}

func byName(t *mcp.Tool, name string) int { return strings.Compare(t.Name, name) }

// listedMeta is the value of WorkflowMeta.
type listedMeta struct {
	Source        string          `json:"source"`
	ID            string          `json:"id"`
	Category      string          `json:"category"`
	Version       string          `json:"version"`
	ExecutionType string          `json:"execution_type"`
	Metadata      json.RawMessage `json:"metadata"`

	InputSchema *sources.Adaptation `json:"input_schema,omitempty"`
}

func metaOf(w *sources.Workflow) listedMeta {
	m := listedMeta{
		Source:        w.Source,
		ID:            w.ID,
		Category:      tool.Plain(w.Category),
		Version:       tool.Plain(w.Version),
		ExecutionType: map[bool]string{true: "async", false: "sync"}[w.Async],
		Metadata:      w.Metadata,
		InputSchema:   w.Adapted,
	}
	if len(m.Metadata) == 0 {
		m.Metadata = json.RawMessage("null")
	}
	return m
}

// performedBy says in a description who must perform the steps of a workflow.
var performedBy = map[sources.Performer]string{
	sources.ByAgent:  "; an agent must perform the steps there",
	sources.ByPerson: "; a person must perform the steps there",
}

// The annotation headerKey asks clients of the newest version of MCP to repeat an argument in a header, for
// proxies before the server, which must then compare the two (SEP-2243). The SDK does that for its own
// tools only, and a source never gets its input by a header, so the annotation gets a name without a
// meaning.
var headerKey, noHeaderKey = []byte(`"x-mcp-header"`), []byte(`"x-unused-header"`)

// listedWorkflow returns a source's workflow for tools/list (seed 003, 3.1).
func listedWorkflow(t *sources.Tool) *mcp.Tool {
	title := tool.Plain(t.Workflow.Name)
	return &mcp.Tool{
		Meta: mcp.Meta{WorkflowMeta: metaOf(&t.Workflow)},
		Name: t.Name, Title: title, Description: jsontext.Clip("[From the source "+t.Source+performedBy[t.Performer]+
			"] "+tool.Plain(t.Description), descriptionChars),
		InputSchema: json.RawMessage(bytes.ReplaceAll(t.InputSchema, headerKey, noHeaderKey)), OutputSchema: runJSON(),
		// What a workflow does is not known here: the hints assume the worst.
		Annotations: &mcp.ToolAnnotations{Title: title, DestructiveHint: new(true), OpenWorldHint: new(true)},
	}
}

// ListTools answers tools/list: the SDK's tools, which are in its first page, then those of
// workflows (seed 003, 2.1).
func (r *Tools) ListTools(
	ctx context.Context, next mcp.MethodHandler, method string, req *mcp.ListToolsRequest,
) (mcp.Result, error) {
	after, ours := "", false
	if req.Params != nil {
		if after, ours = tool.Workflows.Decode(req.Params.Cursor); ours {
			first, params := *req, *req.Params
			params.Cursor = ""
			first.Params, req = &params, &first
		}
	}
	res, err := next(ctx, method, req)
	list, ok := res.(*mcp.ListToolsResult)
	if err != nil || !ok || list.NextCursor != "" {
		return res, err
	}

	r.follow(ctx)
	page := *list
	if ours {
		page.Tools = nil
	}
	page.Tools, page.NextCursor = r.Listing(ctx).page(page.Tools, after)
	return &page, nil
}

// page returns first and as many tools after the name after as fit, and the cursor of the next
// page.
func (l *Listing) page(first []*mcp.Tool, after string) (tools []*mcp.Tool, next string) {
	tools = append([]*mcp.Tool{}, first...)
	begin, found := slices.BinarySearchFunc(l.Tools, after, byName)
	if found {
		begin++
	}

	size := 0
	for i, t := range l.Tools[begin:] {
		input, _ := t.InputSchema.(json.RawMessage)
		meta, _ := t.Meta[WorkflowMeta].(listedMeta)
		size += len(t.Description) + len(input) + len(meta.Metadata) // approximately what comes from the source
		// Without a workflow on the page there would be no name for the cursor.
		if i > 0 && (len(tools) >= PageTools || size > pageBytes) {
			return tools, tool.Workflows.Encode(l.Tools[begin+i-1].Name)
		}
		tools = append(tools, t)
	}
	return tools, ""
}

// A jobTool is a workflow of this project that is offered as its own tool (expose_jobs). It is
// immutable.
type jobTool struct {
	source.Workflow
	listed *mcp.Tool
}

// startJSON is the output schema of start_workflow.
var startJSON = sync.OnceValue(func() json.RawMessage {
	return tool.ListedOutput(workflows.OutputSchema[replies.Start]())
})

// jobTools makes the tools of all workflows of the exposed jobs; nil exposes none. Unchanged tools
// are taken from old.
func jobTools(exposed *catalog.Snapshot, old map[string]*jobTool) map[string]*jobTool {
	if exposed == nil {
		return nil
	}

	all := map[string]*jobTool{}
	for _, w := range source.Workflows(exposed) {
		title := tool.OneLine(w.Workflow.Summary, 200)
		t := &jobTool{w, &mcp.Tool{
			Meta: mcp.Meta{WorkflowMeta: listedMeta{
				ID:            w.ID,
				Category:      w.Category,
				Version:       w.Version,
				ExecutionType: w.ExecutionType,
				Metadata:      w.Metadata,
			}},
			Name: w.Name, Title: title,
			Description: jsontext.Clip("Starts a workflow of this project: "+w.Description+"\n\n"+
				"Returns its first step at once, as start_workflow does. Do what begin_step says, and report it with "+
				"finished_step and the session_id given there.", descriptionChars),
			InputSchema: w.InputSchema, OutputSchema: startJSON(),
			Annotations: &mcp.ToolAnnotations{Title: title, DestructiveHint: new(false), OpenWorldHint: new(false)},
		}}
		if was := old[w.Name]; was != nil && reflect.DeepEqual(was.listed, t.listed) {
			t.listed = was.listed
		}
		all[w.Name] = t
	}

	return all
}
