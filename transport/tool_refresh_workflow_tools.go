package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/remote"
)

// refreshWithin bounds the wait for sources: clients give up on a call after a
// minute.
const refreshWithin = 45 * time.Second

// skippedShown is how many skipped workflows a reply names.
const skippedShown = 200

// A refreshReply is what refresh_workflow_tools answers.
type refreshReply struct {
	Added   []string      `json:"added" jsonschema:"names of new tools"`
	Removed []string      `json:"removed" jsonschema:"names of tools that are gone"`
	Changed []string      `json:"changed" jsonschema:"names of tools that are described anew"`
	Skipped []skippedInfo `json:"skipped" jsonschema:"what is not offered, and sources that are away"`
}

// A skippedInfo is a workflow that is not offered, or a source that is away.
type skippedInfo struct {
	Source   string `json:"source"`
	Workflow string `json:"workflow"` // its id or name; "": the source as a whole
	Reason   string `json:"reason"`
}

// listOf is the schema of a list whose items are told in words: every client
// reads tools/list at every start, and few read this.
func listOf(s *jsonschema.Schema, name, item string) {
	s.Properties[name].Items = &jsonschema.Schema{Type: "object", Description: item}
}

const skippedItem = "{source, workflow, reason}; workflow is empty where the source as a whole is meant"

// addRefreshWorkflowTools registers refresh_workflow_tools (seed 003, 4.3).
func addRefreshWorkflowTools(s *Server) {
	output := outputSchemaIn[refreshReply](words{items: map[string]string{"added": "a name", "removed": "a name", "changed": "a name"}})
	listOf(output, "skipped", skippedItem)
	addTool(s, tool[noArgs, *refreshReply]{
		name: "refresh_workflow_tools", title: "Refresh workflow tools",
		description: "Asks every source for its workflows now, and tells what changed. Call it when a workflow was just added or mended at its source; else tools follow by themselves.",
		hints:       hints{idempotent: true, open: true},
		input:       inputSchema(), output: output,
		call: func(ctx context.Context, _ *connection, _ noArgs) (*refreshReply, error) {
			return s.remote.refresh(ctx)
		},
		outcome: func(r *refreshReply) string {
			if len(r.Added)+len(r.Removed)+len(r.Changed) == 0 {
				return "unchanged"
			}
			return "changed"
		},
	})
}

func (r *remotes) refresh(ctx context.Context) (*refreshReply, error) {
	limited, cancel := context.WithTimeout(ctx, refreshWithin)
	defer cancel()
	report, err := r.catalog.Refresh(limited)
	if err != nil && !(errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil) {
		return nil, fmt.Errorf("refreshing the workflow tools: %w", err)
	}
	r.relist(ctx)
	return &refreshReply{report.Added, report.Removed, report.Changed, skipped(r.catalog.Snapshot(), report.Skipped)}, nil
}

// skipped tells which sources are away and what else is not offered.
func skipped(now *remote.Snapshot, workflows []remote.Skipped) []skippedInfo {
	all := []skippedInfo{}
	for _, s := range now.Sources {
		if s.Err != nil {
			all = append(all, skippedInfo{s.Name, "", oneLine(plain(s.Err.Error()), 500)})
		}
	}
	for i, w := range workflows {
		if i == skippedShown {
			all = append(all, skippedInfo{w.Source, "", fmt.Sprintf("and %d more workflows; the log has them", len(workflows)-i)})
			break
		}
		all = append(all, skippedInfo{w.Source, plain(w.Workflow), oneLine(plain(w.Reason), 500)})
	}
	return all
}
