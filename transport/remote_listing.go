package transport

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog"
	"deepwork/catalog/remote"
)

const (
	// pageTools is how many tools are in one page of tools/list; the SDK's is as long.
	pageTools = 1000
	// pageBytes is about how large a page becomes; a source's schemas may be large.
	pageBytes = 4 << 20
	// workflowMeta is the key in a tool's `_meta` for what MCP has no field for.
	workflowMeta = "deepwork/workflow"
	// descriptionChars is where clients cut descriptions, silently.
	descriptionChars = 2047
)

// A listing is the tools that workflows became, at one moment. It is immutable.
type listing struct {
	from    *remote.Snapshot
	exposed *catalog.Snapshot // nil: jobs are not exposed
	tools   []*mcp.Tool       // by name; one that did not change is the same pointer as before
	of      map[*remote.Tool]*mcp.Tool
	jobs    map[string]*jobTool // by name
}

// newListing makes the listing that follows old.
func newListing(old *listing, from *remote.Snapshot, exposed *catalog.Snapshot) *listing {
	l := &listing{from: from, exposed: exposed, jobs: old.jobs, of: make(map[*remote.Tool]*mcp.Tool, len(from.Tools))}
	if exposed != old.exposed {
		l.jobs = jobTools(exposed, old.jobs)
	}
	l.tools = make([]*mcp.Tool, 0, len(from.Tools)+len(l.jobs))
	for _, t := range from.Tools {
		if l.jobs[t.Name] != nil {
			continue // it gets another name as soon as the catalog has seen this one
		}
		listed := old.of[t]
		if listed == nil {
			listed = listedWorkflow(t)
			if i, found := slices.BinarySearchFunc(old.tools, t.Name, byName); found && sameTool(old.tools[i], listed) {
				listed = old.tools[i]
			}
		}
		l.of[t] = listed
		l.tools = append(l.tools, listed)
	}
	if len(l.jobs) > 0 {
		for _, j := range l.jobs {
			l.tools = append(l.tools, j.listed)
		}
		slices.SortFunc(l.tools, func(a, b *mcp.Tool) int { return strings.Compare(a.Name, b.Name) })
	}
	return l
}

func byName(t *mcp.Tool, name string) int { return strings.Compare(t.Name, name) }

// sameTool tells whether clients see no difference between two workflows' tools
// of the same name.
func sameTool(a, b *mcp.Tool) bool {
	x, y := a.Meta[workflowMeta].(listedMeta), b.Meta[workflowMeta].(listedMeta)
	input, ok := a.InputSchema.(json.RawMessage)
	other, too := b.InputSchema.(json.RawMessage)
	same := x.Source == y.Source && x.ID == y.ID && x.Category == y.Category && x.Version == y.Version &&
		x.ExecutionType == y.ExecutionType && bytes.Equal(x.Metadata, y.Metadata)
	return same && ok && too && bytes.Equal(input, other) && a.Title == b.Title && a.Description == b.Description
}

// listedMeta is what stands under workflowMeta.
type listedMeta struct {
	Source        string          `json:"source"`
	ID            string          `json:"id"`
	Category      string          `json:"category"`
	Version       string          `json:"version"`
	ExecutionType string          `json:"execution_type"`
	Metadata      json.RawMessage `json:"metadata"`
}

func metaOf(w *remote.Workflow) listedMeta {
	m := listedMeta{
		Source: w.Source, ID: w.ID, Category: plain(w.Category), Version: plain(w.Version),
		ExecutionType: executionType(w.Async), Metadata: w.Metadata,
	}
	if len(m.Metadata) == 0 {
		m.Metadata = json.RawMessage("null")
	}
	return m
}

func executionType(async bool) string {
	if async {
		return "async"
	}
	return "sync"
}

// listedWorkflow is a workflow of a source as tools/list has it (seed 003, 3.1).
func listedWorkflow(t *remote.Tool) *mcp.Tool {
	title := plain(t.Workflow.Name)
	return &mcp.Tool{
		Meta: mcp.Meta{workflowMeta: metaOf(&t.Workflow)},
		Name: t.Name, Title: title, Description: clip(plain(t.Description), descriptionChars),
		InputSchema: withoutHeaders(t.InputSchema), OutputSchema: runSchemaJSON(),
		// What a workflow does is not known here: the hints are those of the worst.
		Annotations: &mcp.ToolAnnotations{Title: title, DestructiveHint: new(true), OpenWorldHint: new(true)},
	}
}

// plain takes out of a source's text what is not seen, and so could hide
// something from who reads it: control characters, but for line breaks and tabs,
// and formatting ones.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u200c' || r == '\u200d': // the last two are part of words
			return r
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// listTools answers tools/list: the SDK's tools, which are in its first page, and
// after them the workflows' (seed 003, 2.1).
func (r *remotes) listTools(ctx context.Context, next mcp.MethodHandler, method string, req *mcp.ListToolsRequest) (mcp.Result, error) {
	after, ours := "", false
	if req.Params != nil {
		if after, ours = decodeCursor(req.Params.Cursor); ours {
			params := *req.Params
			params.Cursor = ""
			first := *req
			first.Params = &params
			req = &first
		}
	}
	res, err := next(ctx, method, req)
	list, ok := res.(*mcp.ListToolsResult)
	if err != nil || !ok || list.NextCursor != "" {
		return res, err
	}
	r.follow(ctx)
	l := r.relist(ctx)
	page := *list
	if ours {
		page.Tools = nil
	} else {
		page.Tools = slices.Clone(list.Tools)
	}
	begin, found := slices.BinarySearchFunc(l.tools, after, byName)
	if found {
		begin++
	}
	size, taken := 0, 0
	for _, t := range l.tools[begin:] {
		size += weight(t)
		// Without one of ours on the page there would be no name to go on from.
		if taken > 0 && (len(page.Tools) >= pageTools || size > pageBytes) {
			page.NextCursor = encodeCursor(l.tools[begin+taken-1].Name)
			break
		}
		page.Tools = append(page.Tools, t)
		taken++
	}
	if page.Tools == nil {
		page.Tools = []*mcp.Tool{}
	}
	return &page, nil
}

// weight is about how many bytes of a page are the source's.
func weight(t *mcp.Tool) int {
	n := len(t.Description)
	if input, ok := t.InputSchema.(json.RawMessage); ok {
		n += len(input)
	}
	if meta, ok := t.Meta[workflowMeta].(listedMeta); ok {
		n += len(meta.Metadata)
	}
	return n
}

// cursorMark tells our cursors from the SDK's.
const cursorMark = "workflow:"

// encodeCursor is the cursor of what comes after a tool.
func encodeCursor(last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorMark + last))
}

func decodeCursor(cursor string) (after string, ours bool) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(text), cursorMark)
}
